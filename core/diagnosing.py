"""From a snapshot to its verdict: rules in an order of proof, then the hardware below and the past behind it.

What a kernel, a driver or an exit says comes before silence, silence before waiting, waiting before slowness. A fault
of the culprit's own device or node is the cause, and the hang its consequence. "Unknown" is an answer.
"""

from collections.abc import Iterator
from functools import cached_property

import msgspec

from rankpulse.core import policy, signs, told_machines, told_waits
from rankpulse.core import verdict as v
from rankpulse.core.causes_cut import of_cut
from rankpulse.core.causes_endings import of_endings, stopped_at
from rankpulse.core.causes_exits import numerical, of_exits
from rankpulse.core.causes_hang import NEVER_OF_A_LINK, of_culprits
from rankpulse.core.causes_hardware import broken, faults, of_hardware, suspect
from rankpulse.core.causes_memory import of_orphans
from rankpulse.core.causes_monitor import blind, degraded, is_blind, lemon, notes, outdated_driver
from rankpulse.core.causes_network import of_mismatch, of_ports, of_stall
from rankpulse.core.causes_silence import of_silence
from rankpulse.core.causes_slow import of_alike, of_phase, of_watchdog, straggler
from rankpulse.core.causes_start import of_start, port_taken
from rankpulse.core.causes_storage import of_checkpoints, of_full, of_regression
from rankpulse.core.ends import Weight, ends
from rankpulse.core.laggards import MISMATCH, OUT_OF_STEP, Laggards, laggards
from rankpulse.core.precedents import with_past
from rankpulse.core.remembered import past, signature
from rankpulse.core.scene import Scene as Facts
from rankpulse.core.snapshot import Snapshot
from rankpulse.core.stacks import folded, in_words
from rankpulse.core.verdict import Cause, Culprits, Verdict
from rankpulse.core.waiting import Waits

STACKS_TOLD = 8
JUST_BEFORE_S = 60.0
OUTLIVED_S = 300.0  # a job that made steps for so long after a fault did not need that device
NOT_HEARD_S = 5.0  # a stop that came so soon after a machine's last word may be why it is silent
BESIDE_THE_JOB = (v.SIDECAR_DEAD, v.CONTROL_PLANE_DELAY, v.PARTITION)  # silences with which a job may go on


class Scene(Facts):
    """The same, with whom everybody waits for: found once, for it takes the longest."""

    @cached_property
    def lagging(self) -> Laggards:
        return laggards(self)


def diagnose(snap: Snapshot) -> Verdict:
    """The verdict on a snapshot. Total: what is not understood is `unknown`."""
    scene = Scene(snap)
    cause = with_past(scene, _cause(scene))
    beside = (*notes(scene), *_beside(scene, cause), suspect(scene), of_regression(scene))
    also = tuple(one for one in beside if one and _is_other(one, cause))
    return _verdict(scene, cause, also)


def _cause(scene: Scene) -> Cause:
    return _by_proof(scene) or _by_waiting(scene) or _by_the_rest(scene) or _unknown(scene)


def _by_proof(scene: Scene) -> Cause | None:
    """What was told by a kernel, a driver, an exit, a launcher; then who is silent."""
    ended, silence = of_endings(scene), _silence(scene)
    if ended is not None:
        return silence if silence is not None and _fell_before(scene, silence, ended) else ended
    exits = of_exits(scene)
    hardware = _hardware(scene, exits)
    if hardware is not None:
        return hardware
    if silence is not None and silence.klass in BESIDE_THE_JOB and exits is None and scene.moves is False:
        silence = _stands_for_another_reason(scene, silence) or silence
    if silence is not None and silence.klass == v.NODE_DEAD and not _before(scene, exits):
        return silence
    for found in (of_full(scene), of_checkpoints(scene), port_taken(scene), exits, silence):
        if found is not None:
            return found
    return numerical(scene) or of_start(scene)


def _silence(scene: Scene) -> Cause | None:
    return None if is_blind(scene) else of_silence(scene)


def _fell_before(scene: Scene, silence: Cause, ended: Cause) -> bool:
    """Whether the machine was gone before anybody was told to stop: a scheduler ends the rest of such a job."""
    nodes = [n for n in scene.snap.nodes if n.node in silence.culprits.nodes]
    ages = [n.silent_s for n in nodes if n.silent_s is not None and not n.planned_stop]
    at, now = stopped_at(scene), scene.snap.taken_at
    known = silence.klass == v.NODE_DEAD and ended.klass in (v.STOPPED_BY_USER, v.PREEMPTED)
    return known and bool(ages) and at is not None and now is not None and now - max(ages) < at - NOT_HEARD_S


def _stands_for_another_reason(scene: Scene, silence: Cause) -> Cause | None:
    """Who holds up a job that stands, where the silence is of what the job does not need."""
    if any(n.peers_reach is False for n in scene.snap.nodes if n.node in silence.culprits.nodes):
        return None
    waiting = _by_waiting(scene)
    named = waiting is not None and waiting.confidence >= 0.6 and bool(waiting.culprits.ranks)
    return waiting if named or silence.klass != v.PARTITION else None


def _hardware(scene: Scene, exits: Cause | None) -> Cause | None:
    """A broken device, unless somebody else is plainly the first mover and it is none of theirs."""
    first = exits.culprits.ranks if exits is not None else ()
    waited = () if first or scene.moves is True else scene.lagging.ranks
    found = of_hardware(scene, first or waited)
    if found is None or scene.moves is True:
        return found
    blamed = set(first or waited)
    beside = set(scene.where(blamed)) & set(found.culprits.nodes) and not _outlived(scene, found)
    theirs = blamed & set(found.culprits.ranks) or beside
    return found if not blamed or theirs or _just_before(scene, first) or not _explained(scene, exits, blamed) else None


def _beside(scene: Scene, cause: Cause) -> Iterator[Cause | None]:
    """What is as true as the cause, and has to be mended as well."""
    yield _broken_elsewhere(scene, cause)
    if cause.klass in (v.COLLECTIVE_HANG, v.DATA_STALL, v.STORAGE_STALL):
        yield _silence(scene)
        yield of_ports(scene)


def _broken_elsewhere(scene: Scene, cause: Cause) -> Cause | None:
    """Another machine whose device is broken: not the cause, and the next start would fail there."""
    known = {*cause.culprits.nodes, *scene.in_domain(_domain_of(scene, cause))}
    return broken(scene, [f for f in faults(scene) if f.said.node and f.said.node not in known])


def _domain_of(scene: Scene, cause: Cause) -> str:
    return scene.domain(cause.culprits.nodes[0]) if cause.klass == v.NVLINK_DOMAIN and cause.culprits.nodes else ""


def _outlived(scene: Scene, found: Cause) -> bool:
    """Whether the job made steps for long after what the devices of these machines told."""
    times = [f.said.at for f in faults(scene) if f.said.node in found.culprits.nodes]
    known = [at for at in times if at is not None]
    since = scene.still_since
    return since is not None and len(known) == len(times) > 0 and max(known) < since - OUTLIVED_S


def _just_before(scene: Scene, ranks: tuple[int, ...]) -> bool:
    """Whether the first fault of a device came shortly before these ranks ended."""
    at = min((f.said.at for f in faults(scene) if f.said.at is not None), default=None)
    ended = min((e.at for e in ends(scene) if e.rank in ranks and e.at is not None), default=None)
    return at is not None and ended is not None and 0 <= ended - at <= JUST_BEFORE_S


def _explained(scene: Scene, exits: Cause | None, blamed: set[int]) -> bool:
    """Whether what the first movers did has a reason of its own, so that a fault elsewhere is not needed for it."""
    if exits is not None:
        return exits.confidence >= 0.8
    waiting = _by_waiting(scene)
    return waiting is not None and waiting.confidence >= 0.6 and bool(waiting.culprits.ranks)


def _before(scene: Scene, exits: Cause | None) -> bool:
    """Whether a rank ended before the node fell silent: then its end is the cause."""
    if exits is None:
        return False
    now = scene.snap.taken_at
    ages = [n.silent_s for n in scene.snap.nodes if n.silent_s is not None]
    times = [e.at for e in ends(scene) if e.rank in exits.culprits.ranks and e.at is not None]
    return bool(now is not None and ages and times and min(times) < now - max(ages))


def _by_waiting(scene: Scene) -> Cause | None:
    """Who is waited for, in a job that stands."""
    if scene.moves is True:
        return None
    found = scene.lagging
    cut = of_cut(scene, found)
    if found.kind in (MISMATCH, OUT_OF_STEP):
        return cut or of_mismatch(scene, found)
    named = of_culprits(scene, found)
    plain = named is not None and named.fault in NEVER_OF_A_LINK
    network = (None if plain else of_ports(scene)) or cut
    if network is not None and (named is None or named.klass in (v.COLLECTIVE_HANG, v.NETWORK_STALL)):
        return network
    stuck = _watchdog_first(scene, named) if named is not None else None
    return stuck or of_phase_of_all(scene, found) or of_stall(scene, found)


def _watchdog_first(scene: Scene, named: Cause) -> Cause:
    """A culprit that is only known by a watchdog of its own and is at work has not hung."""
    barking = of_watchdog(scene)
    mine = set(barking.culprits.ranks) if barking is not None else set()
    at_work = all(scene.ranks[r].cpu_moving for r in named.culprits.ranks if r in scene.ranks)
    if barking is not None and named.klass == v.COLLECTIVE_HANG and set(named.culprits.ranks) <= mine and at_work:
        held = any(scene.ranks[r].gil_held for r in named.culprits.ranks if r in scene.ranks)
        return named if held else barking
    return _killed_in_slow_phase(scene, named)


def _killed_in_slow_phase(scene: Scene, named: Cause) -> Cause:
    """A slow phase that a timeout has ended is over: the job has to be started again."""
    gone = [e for e in ends(scene) if e.code is not None or e.signal is not None]
    if named.klass != v.PLANNED_SLOW_PHASE or not any(e.weight <= Weight.ABORTED and e.sign for e in gone):
        return named
    return msgspec.structs.replace(
        named,
        action=policy.RESTART,
        steps=(v.RESTART_JOB,),
        reasons=(*named.reasons, "a timeout ended the job meanwhile: nothing was broken"),
        hints=("resume from the previous complete checkpoint", *named.hints),
    )


def of_phase_of_all(scene: Scene, found: Laggards) -> Cause | None:
    """Everybody in one slow phase: nobody lags."""
    return None if found.ranks and found.confidence > 0.5 else of_phase(scene)


def _by_the_rest(scene: Scene) -> Cause | None:
    """What is not a failure, or not of now."""
    for rule in (
        of_watchdog,
        of_ports,
        of_phase,
        of_alike,
        straggler,
        suspect,
        blind,
        outdated_driver,
        of_regression,
        lemon,
        degraded,
    ):
        found = rule(scene)
        if found is not None:
            return found
    left = of_orphans(scene, []) if scene.moves is not True else None
    return left or _lost_peers(scene)


def _lost_peers(scene: Scene) -> Cause | None:
    """Only victims are seen: whoever went first is not among those who told."""
    lost = scene.of(signs.VICTIM, signs.IB_FLUSHED, signs.TIMED_OUT)
    if not lost or scene.moves is True:  # of a job that moves these lines are old, or about something else
        return None
    return Cause(
        klass=v.UNKNOWN,
        confidence=0.4,
        summary="ranks lost their peers, and nobody that is seen went first",
        reasons=(f"first of all: {lost[0].text}", "these lines are those of victims: none of them is blamed"),
        evidence=tuple(s.ref for s in lost[:4]),
        action=policy.PAGE,
        steps=(v.DUMP_STACKS, v.TELL_USER),
        fault="lost peers",
    )


def _unknown(scene: Scene) -> Cause:
    if scene.moves is True:
        return Cause(
            klass=v.UNKNOWN,
            kind="false_alarm",
            confidence=0.8,
            summary="the job makes steps, and nothing is seen to be wrong",
            reasons=("steps move",),
            action=policy.NONE,
        )
    return Cause(
        klass=v.UNKNOWN,
        confidence=0.2,
        summary="what is seen does not say why",
        reasons=("no rule fits what is known",),
        action=policy.PAGE,
        steps=(v.DUMP_STACKS, v.TELL_USER),
    )


def _is_other(one: Cause, cause: Cause) -> bool:
    return one.summary != cause.summary and not (
        one.klass == cause.klass and one.culprits.nodes == cause.culprits.nodes
    )


def _waiting(scene: Scene) -> frozenset[int]:
    """Those that are inside of something, by their positions."""
    found: Waits | None = scene.kept.get("waits")
    return frozenset(found.of) if found is not None else frozenset()


def _verdict(scene: Scene, cause: Cause, also: tuple[Cause, ...]) -> Verdict:
    guilty = set(cause.culprits.ranks)
    harmless = (v.FINISHED, v.STOPPED_BY_USER, v.SIDECAR_DEAD, v.CONTROL_PLANE_DELAY, v.MONITOR_BLIND)
    calm = cause.klass in harmless or scene.moves is True
    waiting = _waiting(scene)
    return Verdict(
        klass=cause.klass,
        kind=cause.family,
        culprits=cause.culprits,
        cascade=()
        if calm or cause.culprits == Culprits()
        else tuple(r for r in sorted(scene.ranks) if r not in guilty),
        action=cause.choice,
        steps=cause.todo,
        confidence=cause.confidence,
        summary=cause.summary,
        reasons=cause.reasons,
        evidence=cause.evidence,
        hints=cause.hints,
        signature=signature(cause),
        seen=past(scene, cause).seen,
        waits=() if calm else told_waits.told(scene.kept.get("waits"), guilty, scene.snap.groups),
        machines=told_machines.told(scene, cause.culprits.nodes),
        stacks=tuple(in_words(fold, waiting) for fold in folded(scene.snap.ranks)[:STACKS_TOLD]),
        also=also,
        unread=scene.snap.unread,
    )
