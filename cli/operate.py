"""What an operator asks about a run: `restart`. A request, never an order: the monitor decides and answers."""

from collections.abc import Sequence

from rankpulse.cli import books, show
from rankpulse.cli.asking import answered, ask, good_reason, refused, unanswered
from rankpulse.cli.failing import Failed
from rankpulse.core import modes, resumption
from rankpulse.core.keys import Keys
from rankpulse.core.records import Breaker, CheckpointState, Incident, Request, Roster, RunMode, RunState
from rankpulse.core.settings import Settings
from rankpulse.store.api import Store


async def find_run(store: Store, keys: Keys, name: str) -> RunState:
    """The run going on that `name` means: run_uid, run_id, or the beginning of run_uid. Raises `Failed`."""
    return meant((await books.read(store, keys, keys.runs())).of(RunState), name, keys.cluster)


def meant(known: Sequence[RunState], name: str, cluster: str) -> RunState:
    """The run of `known` that `name` means, see `find_run`. Raises `Failed`."""
    going_on = [run for run in known if run.outcome == "running"]
    hint = f"going on: {', '.join(run.run_uid for run in going_on)}" if going_on else "no run is going on"
    if not name.strip():  # every uid begins so: an empty variable of a script must mean none of them
        raise Failed(f"name a run; {hint}")
    ways = (
        [run for run in known if run.run_uid == name],
        [run for run in going_on if run.run_id == name],
        sorted((run for run in known if run.run_id == name), key=lambda run: run.at)[-1:],  # ended: none that begins so
        [run for run in going_on if run.run_uid.startswith(name)],
    )
    found = next((way for way in ways if way), [])
    if len(found) > 1:
        rows = "\n".join(f"  {run.run_uid}  ({show.plain(run.run_id)}, round {run.round})" for run in found)
        raise Failed(f"{show.plain(name)!r} means several runs; name one:\n{rows}")
    if not found:
        raise Failed(f"no run {show.plain(name)!r} in cluster {cluster!r}; {hint}")
    if found[0].outcome != "running":
        raise Failed(f"run {found[0].run_uid} has ended ({found[0].outcome}): start it with its launcher")
    return found[0]


async def restart(
    settings: Settings, name: str, reason: str, resume_before_step: int | None = None, *, author: str = ""
) -> str:
    """Ask for a restart and wait for the answer; returns it in a sentence. Raises `Failed` when it was refused.

    `resume_before_step`: the next round is to load a checkpoint of an earlier step; None: the newest.
    `author` "": whoever runs this.
    """
    keys, reason = Keys(settings.cluster), good_reason(reason)
    async with books.opened(settings) as store:
        run = await find_run(store, keys, name)
        await not_held_back(store, keys, run.run_uid)
        known = await books.read(store, keys, f"{keys.runs()}{run.run_uid}/")
        note = limit_note(known, run, resume_before_step)
        limit = -1 if resume_before_step is None else resume_before_step
        request = await ask(
            store, keys, "restart", reason, run_uid=run.run_uid, author=author, resume_before_step=limit
        )
        return await _answer(store, keys, request) + note


async def not_held_back(store: Store, keys: Keys, uid: str) -> None:
    """Raises `Failed` where a person's word or the breaker keeps the monitor from restarting it."""
    breaker, mode = await books.one(store, keys.breaker(), Breaker), await books.one(store, keys.run_mode(uid), RunMode)
    if breaker is not None and breaker.open:
        raise Failed(
            f"the breaker is open: {show.plain(breaker.reason)}. Look why, then `rankpulse breaker close --reason …`"
        )
    if mode is not None and mode.mode == modes.PAUSED:
        raise Failed(paused(mode))


def paused(mode: RunMode) -> str:
    """Why nothing else can be asked about a run that is paused."""
    by = f"{show.plain(mode.author)}: {show.plain(mode.reason)}"
    return f"run {mode.run_uid} is paused, by {by}. First: rankpulse resume {mode.run_uid} --reason …"


def limit_note(known: books.Books, run: RunState, resume_before_step: int | None) -> str:
    """What to say about the limit besides the answer. Raises `Failed` when such a limit cannot be asked for."""
    if resume_before_step is None:
        return ""
    if resume_before_step < 0:
        raise Failed(f"--resume-before-step {resume_before_step}: name the step of a checkpoint, 1 or more")
    roster = next((roster for roster in known.of(Roster) if roster.round == run.round), None)
    newest = known.first(CheckpointState)
    refusal = resumption.refused(resume_before_step, joint=roster is None or roster.joint, state=newest)
    if refusal:
        raise Failed(f"--resume-before-step {resume_before_step}: {refusal}")
    if newest is None:
        return ". This run has told of no checkpoint: does it load by CheckpointManager?"
    if newest.step < resume_before_step:
        return f". Its newest checkpoint is that of step {newest.step}: nothing needs to be set aside"
    return (
        f". Checkpoints of step {resume_before_step} and beyond are set aside, not deleted."
        " If none lies before that step, the job does not start again: `rankpulse ckpt ls DIR` shows what there is"
    )


async def _answer(store: Store, keys: Keys, request: Request) -> str:
    if not await answered(store, keys, request):
        return unanswered(request)
    known = (await books.read(store, keys, keys.incidents())).incidents()
    for incident in reversed(known):
        if _is_answer(incident, request):
            return f"the restart is taken up: rankpulse explain {incident.id}"
    raise Failed(f"{await refused(store, keys)} (a run can be restarted once per round)")


def _is_answer(incident: Incident, request: Request) -> bool:
    """Its own incident, or one that was open already and is now ended because a person asked for it."""
    return (
        incident.run_uid == request.run_uid
        and incident.asked_by == request.author
        and request.reason in incident.action_reason
        and incident.state == "open"
    )
