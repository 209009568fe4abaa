"""Jobs that end on purpose: finished, stopped by a person, preempted. None of that is a failure."""

from rankpulse.core import policy, signs
from rankpulse.core import verdict as v
from rankpulse.core.causes_finish import of_finish
from rankpulse.core.ends import GRACE_S, End, Weight, ends, first_movers
from rankpulse.core.scene import Said, Scene
from rankpulse.core.snapshot_nodes import Node
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.verdict import Cause, Culprits

STOPS = (1, 2, 3, 15)
MOST = 0.5  # of the ranks: a stop reaches all of them; a few that got a signal were met by something else


def of_endings(scene: Scene) -> Cause | None:
    found = ends(scene)
    movers = first_movers(found)
    return _stopped(scene, found, movers) or of_finish(scene, found, movers)


def _stopped(scene: Scene, found: list[End], movers: list[End]) -> Cause | None:
    """Somebody's signal or a scheduler's word, unless a failure went before it."""
    told = [s for s in scene.of(signs.PREEMPTED, signs.STOPPED) if s.sign == signs.PREEMPTED or _of_launcher(scene, s)]
    if movers and (_went_before(movers, _since(scene, told)) or _among_living(scene, movers, found)):
        return None
    preempted = _preempted(scene, told)
    if preempted:
        return _by_scheduler(scene, preempted, told)
    leavers = _leavers(scene, told)
    signal = scene.snap.job.stop_signal or next((s for s in leavers.values() if s), None)
    by_word = [s for s in told if s.sign == signs.STOPPED]
    polite = tuple(end.rank for end in found if end.weight == Weight.STOPPED)
    all_polite = len(polite) == len(found) >= MOST * len(scene.ranks) and not movers
    if signal in STOPS or by_word or (polite and all_polite):
        alone = 0 < len(leavers) < len(scene.node_names) and scene.snap.job.stop_signal is None
        if alone and 2 not in leavers.values():
            return _by_scheduler(scene, (f"only {', '.join(sorted(leavers)[:8])} got SIGTERM",), told)
        return _by_person(scene, signal, by_word, polite)
    closed = tuple(r.rank for r in scene.snap.ranks if r.pulse == "closed" and r.signal is None and not r.exit_code)
    return _closed(scene, closed, found) if closed else None


def _leavers(scene: Scene, told: list[Said]) -> dict[str, int | None]:
    """The nodes whose launcher was told to end, with the signal where it is known."""
    found: dict[str, int | None] = {
        s.node: 2 if "INT" in s.text or "Keyboard" in s.text else None for s in told if s.node
    }
    return found | {n.node: s for n in scene.snap.nodes if (s := _signal(n)) in STOPS}


def _signal(node: Node) -> int | None:
    """What its launcher got; a shell writes 128 + signal."""
    return node.launcher_signal or {143: 15, -15: 15, 130: 2, -2: 2}.get(node.launcher_exit or 0)


def _of_launcher(scene: Scene, said: Said) -> bool:
    """SIGTERM in the words of a launcher or scheduler; in those of one rank it is what torchelastic does to all."""
    return said.rank is None or scene.snap.job.stop_signal is not None


def _since(scene: Scene, told: list[Said]) -> float | None:
    times = [s.at for s in told if s.at is not None]
    times += [n.launcher_at - n.clock_offset_s for n in scene.snap.nodes if _signal(n) and n.launcher_at is not None]
    return min(times, default=None)


def stopped_at(scene: Scene) -> float | None:
    """When the stop began, as far as anything tells."""
    told = _since(scene, [s for s in scene.of(signs.PREEMPTED, signs.STOPPED) if s.rank is None])
    times = [end.at for end in ends(scene) if end.at is not None]
    return min((at for at in (told, *times) if at is not None), default=None)


def _went_before(movers: list[End], at: float | None) -> bool:
    """A failure before the stop is its cause; what has no time is part of the stop, but for what no stop does."""
    lead = movers[0]
    if lead.at is not None and at is not None:
        return lead.at < at
    hard = lead.signal in (4, 7, 8, 11) or lead.sign in (signs.OOM_GPU, signs.OOM_HOST, signs.ECC, signs.CUDA)
    return hard or (at is None and lead.weight >= Weight.FAILED and lead.signal != 9)


def _among_living(scene: Scene, movers: list[End], found: list[End]) -> bool:
    """A few that are dead among many that live, and no times: a stop ends all, so they went before it."""
    living = len(scene.ranks) - len(found)
    return all(end.at is None for end in movers) and len(movers) < living


def _preempted(scene: Scene, told: list[Said]) -> tuple[str, ...]:
    """Why it is the scheduler's doing, nothing when it is not known to be."""
    found = []
    if scene.snap.job.preempted:
        found.append("the scheduler says that it was preempted")
    stopping = any(_signal(n) for n in scene.snap.nodes) or bool(scene.snap.job.stop_signal)
    planned = [n.node for n in scene.snap.nodes if n.planned_stop]
    if planned and (stopping or scene.moves is not True):
        found.append(f"a stop of {', '.join(planned)} was announced")
    found += [s.text for s in told if s.sign == signs.PREEMPTED][:2]
    return tuple(found)


def _first(scene: Scene, told: list[Said]) -> tuple[str, ...]:
    """The nodes that were told to leave first; all that were told where no times are known."""
    times = {n.node: _left_at(n) for n in scene.snap.nodes if _signal(n) in STOPS or n.planned_stop}
    for said in told:
        if said.node and times.get(said.node) is None:
            times[said.node] = said.at
    timed = {node: at for node, at in times.items() if at is not None}
    first = min(timed.values(), default=0.0)
    names = tuple(sorted(node for node in timed if timed[node] <= first + GRACE_S) if timed else sorted(times))
    return () if len(names) == len(scene.node_names) > 1 else names  # all alike: the job as a whole


def _left_at(node: Node) -> float | None:
    return node.launcher_at - node.clock_offset_s if node.launcher_at is not None else None


def _by_scheduler(scene: Scene, why: tuple[str, ...], told: list[Said]) -> Cause:
    nodes = _first(scene, told)
    closed = scene.of(signs.RDZV_CLOSED)
    others = tuple(sorted({s.node for s in closed if s.node} - set(nodes)))
    return Cause(
        klass=v.PREEMPTED,
        culprits=Culprits(scene.on(nodes), nodes),
        confidence=0.9,
        summary=f"preempted: {', '.join(nodes[:8]) or 'the job'} {'were' if len(nodes) > 1 else 'was'} told to leave",
        reasons=(
            *why,
            *((f"{', '.join(others[:8])} print a closed rendezvous: that follows from it",) if others else ()),
        ),
        evidence=tuple(f"nodes[{n}].launcher_signal" for n in nodes) or tuple(s.ref for s in told[:4]),
        action=policy.RESTART,
        steps=(v.RESTART_JOB,),
        hints=("start it with a new run id: the old rendezvous is closed",),
        fault="preempted",
    )


def _by_person(scene: Scene, signal: int | None, told: list[Said], polite: tuple[int, ...]) -> Cause:
    why = [f"the launcher got signal {signal}"] if signal else [s.text for s in told[:2]]
    why += [f"{ranks_in_words(polite)} ended by a signal that asks"] if polite else []
    return Cause(
        klass=v.STOPPED_BY_USER,
        confidence=0.9 if signal or told else 0.7,
        summary="the job was stopped",
        reasons=(*why, "what ends within a stop is part of it, no failure"),
        evidence=("job.stop_signal",) if scene.snap.job.stop_signal else tuple(s.ref for s in told[:4]),
        action=policy.NONE,
    )


def _closed(scene: Scene, closed: tuple[int, ...], found: list[End]) -> Cause | None:
    """A rank that closed its pulse said that it is done; others may still be at work."""
    if any(end.weight > Weight.CLEAN for end in found if end.rank in closed):
        return None
    return Cause(
        klass=v.STOPPED_BY_USER,
        culprits=Culprits(closed if len(closed) < len(scene.ranks) else (), ()),
        confidence=0.8,
        summary=f"{ranks_in_words(closed)} said goodbye",
        reasons=("its pulse was closed by the program itself: that is an end on purpose",),
        evidence=tuple(f"ranks[{rank}].pulse" for rank in closed[:8]),
        action=policy.NONE,
    )
