"""Weighing exits: a failure, an end on purpose, or nothing yet. Pure functions of one round and `now`."""

from collections.abc import Container

from rankpulse.core import diagnosis as d
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis, Ending, name
from rankpulse.core.exits import SIGNALS, Exit, Kind
from rankpulse.core.last_places import odd_ones
from rankpulse.core.records import Launcher
from rankpulse.core.settings import DetectSettings
from rankpulse.core.telling import in_words
from rankpulse.core.views import RoundView, RunView, process_of

CAUSE_WINDOW = 3.0  # times settle_s: what dies later, torchelastic's grace over or a person impatient, is a consequence
EXPLAINED = 0.3  # times settle_s: an exception of its own is the cause, unless the death before it was told of later
GRACE_S = 20.0  # torchelastic, Slurm and Kubernetes all wait 30 s between SIGTERM and SIGKILL
HELD_STOP_S = 10.0  # whoever asks workers to end asks their holders, too: one that waits for so long was not asked
NOBODY_FIRST = "nobody was seen to go first"
CAUSES = (Kind.KILLED, Kind.FAILED, Kind.ABORTED)


def is_held(round_: RoundView) -> bool:
    """Workers died and torchelastic knows of none of it: their holders wait for a verdict."""
    telling = [exit_ for exit_ in round_.exits.values() if exit_.kind not in (Kind.CLEAN, Kind.ORDERED)]
    return bool(telling) and all(exit_.held for exit_ in telling)


def has_parted(round_: RoundView) -> bool:
    """All ranks of one of its nodes have ended by themselves: its torchrun is done, and meets nobody any more."""
    if not round_.complete():
        return False
    clean = {process for process, exit_ in round_.exits.items() if exit_.kind is Kind.CLEAN}
    going = {member.node for member in round_.members.values() if process_of(member) not in clean}
    return any(member.node not in going for member in round_.members.values())


def is_judged(run: RunView, round_: RoundView, told: bool) -> bool:
    """Whether nothing that is known of the exits of a round waits for its verdict. `told`: an incident tells of it."""
    telling = any(exit_.kind not in (Kind.CLEAN, Kind.ORDERED) for exit_ in round_.exits.values())
    return told or not telling or round_.accounted or round_.number in run.ordered


def weigh(
    run: RunView, round_: RoundView, now: float, settings: DetectSettings, missed: Container[str] = ()
) -> Diagnosis | Ending | None:
    """What the exits of a round mean. `missed`: nodes that are late."""
    telling = sorted(
        (exit_ for exit_ in round_.exits.values() if exit_.kind not in (Kind.CLEAN, Kind.ORDERED)),
        key=lambda exit_: exit_.revision,
    )
    if not telling:
        return _finished(run, round_)
    stops = _stops(telling)
    went_on = run.current.number > round_.number
    causes = [exit_ for exit_ in telling if exit_.kind in CAUSES and (went_on or not _of_a_stop(exit_, stops))]
    if causes:
        return _crash(round_, causes, now, settings)
    if stops:
        return _stop(run, round_, min(stops.values(), key=lambda exit_: exit_.revision), now, settings)
    return _victims(round_, telling, now, settings, missed)


def _stops(telling: list[Exit]) -> dict[str, Exit]:
    """node -> the exit by which workers there were asked to end.

    torchelastic itself ends the siblings of a worker that failed, by SIGTERM: after a failure on the same node that is
    an echo, not a wish. SIGINT and its like come from people only, and then some rank may lose its peers first.
    """
    stops: dict[str, Exit] = {}
    failed: set[str] = set()
    for exit_ in telling:
        if exit_.kind is not Kind.STOPPED:
            failed.add(exit_.member.node)
        elif not exit_.terminated or exit_.member.node not in failed:
            stops.setdefault(exit_.member.node, exit_)
    return stops


def _of_a_stop(exit_: Exit, stops: dict[str, Exit]) -> bool:
    """What dies after a stop began is the stop's doing: on its own node at once, elsewhere when the grace is over.

    The exits of two nodes may reach us seconds apart, so that a stop elsewhere explains nothing that dies soon after.
    """
    stop = stops.get(exit_.member.node)
    if stop is not None:
        return exit_.revision > stop.revision
    return any(exit_.received_at - other.received_at >= GRACE_S for other in stops.values())


def _finished(run: RunView, round_: RoundView) -> Ending | None:
    ended = [exit_ for exit_ in round_.exits.values() if exit_.kind is Kind.CLEAN]
    everyone = round_.complete() or run.launchers_gone()
    if ended and len(ended) == len(round_.members) and everyone:
        return Ending(d.FINISHED, f"all {len(ended)} ranks ended by themselves, without error")
    return None


def _crash(round_: RoundView, causes: list[Exit], now: float, settings: DetectSettings) -> Diagnosis | None:
    window = [
        exit_ for exit_ in causes if exit_.received_at <= causes[0].received_at + CAUSE_WINDOW * settings.settle_s
    ]
    strongest = max(exit_.kind for exit_ in window)
    first = next(exit_ for exit_ in window if exit_.kind == strongest)
    if strongest is not Kind.KILLED and now - first.received_at < _settled_s(first, settings) and round_.alive():
        return None  # an exception may be the echo of a death that is still on its way to us
    until = first.received_at + settings.settle_s
    if strongest is Kind.KILLED:  # several at once have one cause, the machine's memory for one
        group = [exit_ for exit_ in window if exit_.kind is Kind.KILLED and exit_.received_at <= until]
    else:  # the same words from several ranks are the program's own fault, not the first one's
        group = [exit_ for exit_ in window if exit_.kind is strongest and exit_.what == first.what]
    if strongest is Kind.ABORTED and (odd := _odd(round_, first)) is not None:
        return odd
    guilty = {exit_.member for exit_ in group}
    ended = sorted(round_.exits.values(), key=lambda exit_: exit_.revision)
    echoes = [exit_ for exit_ in ended if exit_.member not in guilty and exit_.kind is not Kind.CLEAN]
    reasons = [f"{name(exit_.member)} {exit_.what}" for exit_ in group[:8]]
    reasons += [f"then {name(exit_.member)} {exit_.what}" for exit_ in echoes[:3]]
    more = f", and {len(group) - 1} more" if len(group) > 1 else ""
    return Diagnosis(
        d.WORKER_DEAD,
        tuple(exit_.member for exit_ in group[:NAMED_MAX]),
        d.others(round_, guilty),
        d.nodes_of(guilty)[:NAMED_MAX],
        {Kind.KILLED: 0.99, Kind.FAILED: 0.9, Kind.ABORTED: 0.7}[strongest],
        f"{name(first.member)} {first.what}{more}",
        tuple(reasons),
        tuple(exit_.key for exit_ in ended[:NAMED_MAX]),
        first.received_at,
        first.what if strongest is Kind.FAILED else "",
    )


def _settled_s(first: Exit, settings: DetectSettings) -> float:
    """How long a failure waits for its cause, until it is told of.

    A death that is told of later still corrects the incident, and nothing is ordered for it before `settle_s` is over.
    """
    return settings.settle_s * (EXPLAINED if first.kind is Kind.FAILED and first.explained else 1.0)


def _stop(
    run: RunView, round_: RoundView, first: Exit, now: float, settings: DetectSettings
) -> Diagnosis | Ending | None:
    """Workers were asked to end: by torchelastic, which goes on, or by a person or scheduler. The launcher tells."""
    here_ended = not run.launchers.get(first.launcher, True) if run.elastic else not round_.alive()
    went_on = run.current.number > round_.number
    if not went_on and _asks_again(run, first):
        return None  # torchelastic goes on; the round that comes will tell whether somebody left or joined
    waited = now - first.received_at >= (HELD_STOP_S if first.held else settings.stop_settle_s)
    if went_on and (here_ended or round_.membership() != run.current.membership()):
        return None  # a node left on purpose, or another joined: torchelastic met anew, nothing failed
    everyone = not run.elastic or (run.launchers_gone() and not round_.alive())
    if not went_on and here_ended and (waited or everyone):
        signal = SIGNALS.get(first.signal or 0, "a request to stop")
        return Ending(d.STOPPED_BY_USER, f"{signal} ended the workers, and their launcher ended with them")
    if not went_on and not waited:
        return None
    after = "the job went on without a stop" if went_on else "its launcher neither ended nor went on"
    if first.held and not went_on:
        after = "its holder was not asked to end: somebody meant this process alone"
    return Diagnosis(
        d.WORKER_DEAD,
        (first.member,),
        d.others(round_, (first.member,)),
        (first.member.node,),
        0.6,
        f"{name(first.member)} {first.what}, and {after}",
        (f"{name(first.member)} {first.what} before any other rank ended", after),
        (first.key,),
        first.received_at,
    )


def _asks_again(run: RunView, exit_: Exit) -> bool:
    """The torchrun of this worker waits for another round, in our rendezvous."""
    waiting = run.joint.waiting() if run.joint is not None else []
    return any(Launcher(joiner.node, joiner.launcher) == exit_.launcher for joiner in waiting)


def _victims(
    round_: RoundView, telling: list[Exit], now: float, settings: DetectSettings, missed: Container[str]
) -> Diagnosis | None:
    """Every exit told of is an echo. Whom its peers lost, and who says nothing itself, is where to look first."""
    first = telling[0]
    if now - first.received_at < settings.settle_s:
        return None
    left = [exit_ for exit_ in round_.exits.values() if exit_.wordless and exit_.revision < first.revision]
    if left:
        return _left(round_, min(left, key=lambda exit_: exit_.revision), telling)
    seen = {exit_.member.node for exit_ in telling}
    lost = [m for m in round_.members.values() if m.node in missed and m.node not in seen]
    silent = in_words(d.nodes_of(lost))
    why = [f"{name(exit_.member)} {exit_.what}" for exit_ in telling[:3]]
    why.append("every exit seen is that of a rank that lost its peers; none of them went first")
    if lost:
        why.append(f"{silent}: neither a beat nor an exit has come since")
    unwatched = round_.world_size - len(round_.members)
    if unwatched:
        why.append(f"{unwatched} of {round_.world_size} ranks are watched by no agent: one of those may be the cause")
    return Diagnosis(
        d.UNKNOWN,
        tuple(sorted(lost, key=lambda member: member.rank)[:NAMED_MAX]),
        tuple(sorted(exit_.member.rank for exit_ in telling)),
        d.nodes_of(lost)[:NAMED_MAX],
        0.6 if lost else 0.3,
        f"{len(telling)} ranks lost their peers" + (f", and {silent} fell silent" if lost else f" and {NOBODY_FIRST}"),
        tuple(why),
        tuple(exit_.key for exit_ in telling[:NAMED_MAX]),
        first.received_at,
    )


def _left(round_: RoundView, exit_: Exit, telling: list[Exit]) -> Diagnosis:
    """One that ended with code 0 and without the end of its interpreter, and whose peers lost it: no good end."""
    why = f"{exit_.what} and without a word, while its peers went on"
    echoes = [f"then {name(echo.member)} {echo.what}" for echo in telling[:3]]
    return Diagnosis(
        d.WORKER_DEAD,
        (exit_.member,),
        d.others(round_, (exit_.member,)),
        (exit_.member.node,),
        0.8,
        f"{name(exit_.member)} {why}",
        (f"{name(exit_.member)} {why}", *echoes),
        (exit_.key, *(echo.key for echo in telling))[:NAMED_MAX],
        exit_.received_at,
    )


def _odd(round_: RoundView, first: Exit) -> Diagnosis | None:
    """Ranks that called another collective than their peers, which is what the first of them was aborted for."""
    ended = sorted(round_.exits.values(), key=lambda exit_: exit_.revision)
    odd = odd_ones({exit_.member.rank: exit_.place for exit_ in ended if exit_.place}, first.member.rank)
    if odd is None:
        return None
    guilty = [exit_.member for exit_ in ended if exit_.member.rank in odd.ranks]
    others = "what the others did not call"
    return Diagnosis(
        d.COLLECTIVE_MISMATCH,
        tuple(guilty[:NAMED_MAX]),
        d.others(round_, guilty),
        d.nodes_of(guilty)[:NAMED_MAX],
        0.9,
        f"ranks call different collectives at the same place: {', '.join(map(name, guilty[:3]))} called {others}",
        (odd.text, f"{name(first.member)} {first.what}: the library ends whoever is sent more than it expects"),
        tuple(exit_.key for exit_ in ended[:NAMED_MAX]),
        first.received_at,
        "ranks call different collectives",
    )
