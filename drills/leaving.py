"""Scenes of a job that leaves a node for one that waits: because it was lost, and because a person asks for it."""

import signal
import time
from collections.abc import Collection, Iterable

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.drills import curve
from rankpulse.drills.resumes import between_saves, losses, watch, worth
from rankpulse.drills.scenes import Result, Show, judge, report
from rankpulse.drills.spared import NODES, Spared
from rankpulse.drills.together import arm, closed

SAVE_EVERY = 50  # steps of 0.15 s: whether a drain waited for the next save, or happened on it, can be told
GOAL_S = 12.0  # first step of the next round after the loss of a node, where a job starts in so little
# On one machine whatever is frozen still has a kernel that takes connections. One without power has none.
UNREACHABLE = '[probe]\nlisten = ""\n'


async def node(show: Show) -> Result:
    """A node loses its power, with agent, torchrun and workers: the job goes on where a spare waits, by one order."""
    spared, state, roster = await _with_spare(show)
    job, lost = spared.job, show.rng.choice(sorted(spared.nodes()))
    await between_saves(job, show.rng)
    watching = watch(job)
    show.tell(f"node: {lost} loses its power: agent, torchrun and workers stand still, nothing answers")
    done = f"{lost} frozen, with agent, torchrun and workers; {spared.spare} waited"
    since = time.time()
    spared.strike(lost, signal.SIGSTOP)
    took_s = await spared.goes_on(lost, since)
    await closed(show, job, since, "the end of the incident")
    result = report(show, "node", done, since, state.run_uid, roster.round)
    limit_s = max(GOAL_S, (result.time_to_detect_s or 0.0) + 2.0 + 1.5 * spared.start_s)
    if took_s > limit_s:
        result.wrong.append(f"first step of the next round after {took_s:.1f} s, should be at most {limit_s:.1f}")
    expected = await worth(result, watching, job, state, roster.round, show.stage.witness)
    gone = sorted(member.rank for member in roster.members if member.node == lost)
    expected |= {"culprits": gone, "cascade": sorted({member.rank for member in roster.members} - set(gone))}
    again = 0 if result.last_words else curve.ENOUGH  # steps to be computed twice: nothing is lost with last words
    result.wrong += _moved(spared, lost, since) + _curve(spared, roster.round, again)
    return judge(result, diagnosis="node_dead", action="restart_without", restarts=1, incidents=1, **expected)


async def cordon(show: Show) -> Result:
    """`rankpulse cordon --drain` of a node that works: the job leaves it after its next checkpoint, losing nothing."""
    spared, state, roster = await _with_spare(show)
    job, left = spared.job, show.rng.choice(sorted(spared.nodes()))
    await between_saves(job, show.rng)
    watching, at_step, since = watch(job), job.last_step(), time.time()
    await _ask(show, "cordon", left, "fan broken", drain=True)
    await spared.goes_on(left, since)
    await closed(show, job, since, "the end of the drain")
    done = f"{left} cordoned with a drain, at step {at_step}"
    result = report(show, "cordon", done, since, state.run_uid, roster.round)
    expected = await worth(result, watching, job, state, roster.round, show.stage.witness)
    result.wrong += drained(result, at_step) + _moved(spared, left, since) + _curve(spared, roster.round, 0)
    await _ask(show, "uncordon", left, "fan replaced")
    await spared.until(lambda: not show.stage.witness.all(r.Cordon), 10.0, "the end of the cordon")
    return judge(
        result,
        diagnosis="drain",
        culprits=[],
        cascade=[],
        action="restart_without",
        restarts=1,
        incidents=1,
        **expected,
    )


async def _with_spare(show: Show) -> tuple[Spared, r.RunState, r.Roster]:
    """The job of these scenes: started when there is none; a torchrun of it waits on the third node."""
    if show.spared is None:
        await show.alone()
        await arm(show, "the demo shows how a job leaves a node")
        for name in NODES:
            await show.stage.add(name, UNREACHABLE)
        show.tell("starting another job on two nodes, under holders, and a torchrun of it on a third: the spare")
        where = show.directory / "spared"
        show.spared = Spared(show.stage, where, name="spared-job", save_every=SAVE_EVERY, last_words=True)
        await show.spared.start()
    elif not show.spared.spare_is_there():
        show.tell(f"{show.spared.spare} is there again: another agent, and a torchrun by the same command, which waits")
        await show.spared.comes_back()
    state = show.stage.witness.run(show.spared.job.name)
    roster = show.stage.witness.roster(state.run_uid) if state is not None else None
    assert state is not None
    assert roster is not None
    return show.spared, state, roster


async def _ask(show: Show, kind: str, name: str, reason: str, *, drain: bool = False) -> None:
    """What `rankpulse cordon` and `uncordon` do."""
    show.tell(f"rankpulse {kind} {name}{' --drain' if drain else ''} --reason '{reason}'")
    asked = r.Request(
        id=f"demo-{kind}", kind=kind, run_uid="", node=name, author="demo", reason=reason, at=time.time(), drain=drain
    )
    await show.stage.store.put(show.stage.keys.request(asked.id), codec.encode(asked))


def _moved(spared: Spared, left: str, since: float) -> list[str]:
    return moved(left, spared.nodes(), spared.given, spared.witness.incidents(since))


def moved(left: str, nodes: Collection[str], orders: Iterable[r.Order], incidents: Iterable[r.Incident]) -> list[str]:
    """What is wrong with the move of a job from the node `left` to the spare, by one restart and no further rung."""
    wrong = []
    if set(nodes) != set(NODES) - {left}:
        wrong.append(f"the round is of {sorted(nodes)}, should be of all but {left}")
    given = [(order.kind, order.without) for order in orders]
    if given != [("restart", (left,))]:
        wrong.append(f"orders: {given}, should be one restart without {left}")
    outcomes = [incident.outcome for incident in incidents]
    if outcomes != ["recovered"]:
        wrong.append(f"the incidents ended as {outcomes}, should be one that recovered")
    return wrong


def drained(result: Result, at_step: int) -> list[str]:
    """Whether the job left after a checkpoint that it made since it was asked to, and soon after it.

    What it resumes from is that one, or last words of a few steps further.
    """
    resumed, lost = result.resumed_from_step, result.lost_steps
    if resumed is None or lost is None:
        return ["the job is not seen to resume"]
    wrong = []
    further = resumed % SAVE_EVERY if result.last_words else 0
    saved = resumed - further
    if saved <= at_step or saved % SAVE_EVERY:
        wrong.append(f"it went on from step {resumed}: not from a checkpoint of after step {at_step}")
    if further + lost >= SAVE_EVERY // 2:
        wrong.append(f"{further + lost} steps after its checkpoint was saved: it did not leave then")
    return wrong


def _curve(spared: Spared, round_: int, least: int) -> list[str]:
    """What is wrong with the losses so far; at least so many steps are to be computed again after `round_`."""
    seen = losses(spared.job)
    again = curve.compared(seen)[round_ + 1] if round_ + 1 in seen.rounds else 0
    few = [f"only {again} steps were computed again: too few to tell whether all came back"] if again < least else []
    return curve.wrong(seen) + few
