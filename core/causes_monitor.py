"""The observer itself, nodes whose past speaks against them, and what will go wrong with the next job only."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from rankpulse.core import policy, signs
from rankpulse.core import verdict as v
from rankpulse.core.causes_hardware import SLOW_QUERY_S
from rankpulse.core.ends import ends
from rankpulse.core.remembered import nodes_of
from rankpulse.core.scene import Scene
from rankpulse.core.snapshot import Failure
from rankpulse.core.verdict import Cause, Culprits, step

LATE_S: Final = 5.0  # a monitor's own loop
LEMON: Final = 2  # failures on one node in the time below
LEMON_S: Final = 2 * 86_400.0


def is_blind(scene: Scene) -> bool:
    """Whether silence means nothing: the observer cannot trust its own sight."""
    monitor = scene.snap.monitor
    return bool(monitor.blind) or monitor.store.lower() in ("silent", "unreachable", "down") or monitor.late_s >= LATE_S


def blind(scene: Scene) -> Cause | None:
    monitor = scene.snap.monitor
    if not is_blind(scene):
        return None
    why = [monitor.why] if monitor.why else []
    why += [f"the store is {monitor.store}"] if monitor.store.lower() not in ("", "ok") else []
    why += [f"its own loop is {monitor.late_s:g} s late"] if monitor.late_s >= LATE_S else []
    return Cause(
        klass=v.MONITOR_BLIND,
        confidence=0.9,
        summary="the monitor cannot trust its own sight: nobody's silence is judged",
        reasons=tuple(why) or ("it says so itself",),
        evidence=("monitor",),
        action=policy.NONE,
        steps=(v.WAIT, v.TELL_USER),
    )


def degraded(scene: Scene) -> Cause | None:
    """Probes of the monitor that do not come back: a finding of its own, beside whatever else is wrong."""
    slow = {
        scene.owner(d)[0]: d.query_s for d in scene.snap.devices if d.query_s is not None and d.query_s >= SLOW_QUERY_S
    }
    blocked = scene.snap.monitor.blocked
    if not slow and not blocked:
        return None
    return Cause(
        klass=v.MONITOR_BLIND,
        culprits=Culprits((), tuple(sorted(slow))),
        confidence=0.8,
        summary="the monitor's own probes are slow or blocked",
        reasons=(*(f"a health query on {node} took {s:g} s" for node, s in sorted(slow.items())[:4]), *blocked[:4]),
        evidence=("monitor.blocked",) if blocked else ("devices[*].query_s",),
        action=policy.NONE,
        steps=(v.TELL_USER,),
    )


def outdated_driver(scene: Scene) -> Cause | None:
    """A driver that was changed under a running job: new jobs will fail there, this one goes on."""
    nodes = {n.node for n in scene.snap.nodes if n.driver_mismatch}
    nodes |= {s.node for s in scene.of(signs.DRIVER_MISMATCH) if s.node}
    if not nodes:
        return None
    names = tuple(sorted(nodes))
    running = scene.moves is True or (scene.moves is None and not scene.starting)
    return Cause(
        klass=v.STARTUP_FAILURE,
        kind="host_fault",
        culprits=Culprits((), names),
        confidence=0.85,
        summary=f"{', '.join(names)}: driver and library differ, {'new jobs will fail' if running else 'none starts'}",
        reasons=("the driver was changed by an update; who runs has the old library loaded and is not touched",),
        evidence=tuple(s.ref for s in scene.of(signs.DRIVER_MISMATCH)[:4]) or tuple(f"nodes[{n}]" for n in names),
        action=policy.NONE if running else policy.RESTART_WITHOUT,
        steps=(v.TELL_USER, step(v.DRAIN_AFTER_JOB, *names)) if running
        else (step(v.RESTART_EXCLUDING, *names), step(v.DRAIN_REBOOT, *names)),
        hints=("hold back driver packages from unattended updates",),
        fault="driver mismatch",
    )  # fmt: skip


def lemon(scene: Scene) -> Cause | None:
    """A node that fails again and again, though nothing is wrong with it at this moment."""
    young = _young(scene)
    count = _failures(scene)
    bar = _bar(count)
    bad = tuple(sorted(node for node, times in count.items() if times >= bar))
    if not bad:
        return None
    klasses = Counter(f.klass for f in young if f.klass and set(nodes_of(f)) & set(bad))
    klass = klasses.most_common(1)[0][0] if klasses else v.NODE_DEAD
    return Cause(
        klass=klass if klass in v.KINDS else v.NODE_DEAD,
        kind="host_fault",
        culprits=Culprits(scene.on(bad), bad),
        confidence=0.75,
        summary=f"{', '.join(bad)} failed again and again",
        reasons=tuple(f"{node}: {count[node]} failures" for node in bad[:8]),
        evidence=("history",),
        action=policy.RESTART_WITHOUT if scene.moves is False or ends(scene) else policy.DRAIN,
        steps=(step(v.RESTART_EXCLUDING, *bad), step(v.DRAIN_REBOOT, *bad)),
        hints=("keep it in quarantine until it has passed a burn-in", *spares(scene)),
        fault="lemon",
    )


def _young(scene: Scene) -> list[Failure]:
    return [f for f in scene.snap.history if f.age_s is None or f.age_s <= LEMON_S]


def _failures(scene: Scene) -> Counter[str]:
    return Counter(node for failure in _young(scene) for node in nodes_of(failure))


def is_lemon(scene: Scene, node: str) -> bool:
    count = _failures(scene)
    return count[node] >= _bar(count)


def _bar(count: Counter[str]) -> int:
    """From how many failures on a node stands out: nodes that all fail alike are the program's victims."""
    times = sorted(count.values())
    return max(LEMON, 2 * times[len(times) // 4]) if len(times) > 1 else LEMON


def spares(scene: Scene) -> tuple[str, ...]:
    """Whether the pool of spares lasts for as long as a repair takes."""
    job = scene.snap.job
    if job.spares is None or job.failures_per_day is None:
        return ()
    need = job.failures_per_day * (job.repair_days if job.repair_days is not None else 1.0)
    if job.spares >= need:
        return ()
    return (f"too few spares: {job.spares} are there, {need:g} fail before one comes back",)


def notes(scene: Scene) -> Iterable[Cause]:
    """What is worth telling beside the cause."""
    for found in (blind(scene) or degraded(scene), outdated_driver(scene)):
        if found is not None:
            yield found
