"""Machines that are not heard: dead, cut off, without their agent, or only late. Silence alone proves nothing."""

from typing import Final, NamedTuple

from rankpulse.core import policy, signs
from rankpulse.core import verdict as v
from rankpulse.core.scene import Scene
from rankpulse.core.snapshot_nodes import Node
from rankpulse.core.verdict import Cause, Culprits, step

SILENT_S: Final = 5.0
MANY: Final = 0.5  # of all nodes: it may be the observer who is cut off
ANSWERED: Final = ("answered", "ok", "answer")
REFUSED: Final = ("refused", "reset", "closed")
NO_ANSWER: Final = ("timeout", "timed out", "no answer", "unreachable", "no route", "no route to host", "host down")


class Silence(NamedTuple):
    node: Node
    klass: str
    confidence: float
    why: str


def silent(scene: Scene) -> list[Node]:
    """Nodes that are not heard, by far longer than the others are, or that others do not reach."""
    known = [node.silent_s for node in scene.snap.nodes if node.silent_s is not None]
    least = min(known) if len(known) == len(scene.snap.nodes) > 1 else 0.0
    limit = max(SILENT_S, 3.0 * least)
    return [node for node in scene.snap.nodes if _is_quiet(node, limit)]


def _is_quiet(node: Node, limit: float) -> bool:
    late = node.silent_s is not None and node.silent_s >= limit
    return late or node.agent_alive is False or node.peers_reach is False or node.probe.lower() in NO_ANSWER


def of_silence(scene: Scene) -> Cause | None:
    """What has become of those that are silent; the worst of it decides, one incident for all of a kind."""
    quiet = silent(scene)
    if not quiet:
        return _all_late(scene)
    found = [_judge(scene, node) for node in quiet]
    for klass in (v.NODE_DEAD, v.PARTITION, v.SIDECAR_DEAD, v.CONTROL_PLANE_DELAY, v.UNKNOWN):
        mine = [one for one in found if one.klass == klass]
        if mine:
            return _cause(scene, klass, mine)
    return None


def _all_late(scene: Scene) -> Cause | None:
    """Everybody is late alike: the path to us is, or we are."""
    late = [node.silent_s for node in scene.snap.nodes if node.silent_s is not None]
    if len(late) < 2 or len(late) < len(scene.snap.nodes) or min(late) < SILENT_S:
        return None
    klass = v.CONTROL_PLANE_DELAY if scene.moves is True else v.MONITOR_BLIND
    return Cause(
        klass=klass,
        confidence=0.7,
        summary=f"all {len(late)} nodes are heard late alike, by {min(late):g} s and more",
        reasons=("many that have nothing in common are late at once: it is the path to the monitor, or the monitor",),
        evidence=("nodes[*].silent_s",),
        action=policy.NONE,
        steps=(v.WAIT,),
        fault="all late",
    )


def _judge(scene: Scene, node: Node) -> Silence:
    probe, moving = node.probe.lower(), scene.moves is True
    if any(s.sign == signs.PANIC and s.node == node.node for s in scene.said):
        return Silence(node, v.NODE_DEAD, 0.95, "its kernel panicked or it lost power")
    heard = node.silent_s is not None and node.silent_s < SILENT_S and node.agent_alive is not False
    if node.peers_reach is False and (probe in ANSWERED or heard):
        return Silence(node, v.PARTITION, 0.85, "it answers us, and the other nodes do not reach it")
    if probe in ANSWERED:
        return Silence(
            node, v.CONTROL_PLANE_DELAY, 0.9, "its agent answers a direct look: only its way to the store is late"
        )
    if probe in REFUSED or (node.agent_alive is False and (moving or node.peers_reach or _seen(scene, node.node))):
        return Silence(node, v.SIDECAR_DEAD, 0.9, "the machine answers, its agent does not run")
    if moving:
        return Silence(node, v.CONTROL_PLANE_DELAY, 0.8, "the job makes steps that need its ranks: it takes part")
    if node.peers_reach or (probe in NO_ANSWER and node.exporter_alive):
        return Silence(node, v.PARTITION, 0.8, "others still reach it, we do not: it is cut off, not dead")
    if probe in NO_ANSWER:
        more = ", its exporter is silent too" if node.exporter_alive is False else ""
        return Silence(node, v.NODE_DEAD, 0.95 if more else 0.9, f"no answer to a direct look{more}")
    if node.agent_alive is False and node.exporter_alive is not True:
        return Silence(node, v.NODE_DEAD, 0.8, "its agent is gone, and nothing speaks for the machine")
    if node.exporter_alive:
        return Silence(node, v.SIDECAR_DEAD, 0.7, "the machine still exports its figures: its agent is what is silent")
    return Silence(node, v.NODE_DEAD, 0.75, "nothing speaks for it on any way that was tried")


def _seen(scene: Scene, node: str) -> bool:
    """Whether anything of its ranks was seen just now."""
    rows = (scene.ranks[rank] for rank in scene.on([node]))
    return any(
        row.alive or row.stack or row.positions or (row.beat_age_s is not None and row.beat_age_s < SILENT_S)
        for row in rows
    )


def _cause(scene: Scene, klass: str, mine: list[Silence]) -> Cause:
    names = tuple(sorted(one.node.node for one in mine))
    place = _shared(scene, names)
    if klass == v.NODE_DEAD and len(names) > MANY * len(scene.node_names) > 1:
        return _many(scene, names)
    where = f" ({place})" if place else ""
    stuck = tuple(r for r in sorted(scene.ranks) if scene.ranks[r].node not in names)
    return Cause(
        klass=klass,
        culprits=Culprits(scene.on(names), names),
        confidence=min(one.confidence for one in mine),
        summary=f"{', '.join(names[:8])}{where}: {IN_WORDS[klass]}",
        reasons=_reasons(mine, place),
        evidence=tuple(f"nodes[{name}]" for name in names[:16]),
        action=policy.RESTART_WITHOUT if klass == v.NODE_DEAD else "",
        steps=_steps(klass, names, stuck),
        fault=IN_WORDS[klass],
    )


IN_WORDS: Final = {
    v.NODE_DEAD: "the machine is dead",
    v.PARTITION: "cut off by the network",
    v.SIDECAR_DEAD: "its agent is dead, the job is not touched",
    v.CONTROL_PLANE_DELAY: "heard late, the job is not touched",
    v.UNKNOWN: "silent, why is not known",
}


def _steps(klass: str, names: tuple[str, ...], stuck: tuple[int, ...]) -> tuple[str, ...]:
    if klass == v.NODE_DEAD:
        kill = (step(v.KILL_STEP, "survivors"),) if stuck else ()
        return (*kill, step(v.RESTART_EXCLUDING, *names))
    if klass == v.SIDECAR_DEAD:
        return (step(v.RESTART_AGENT, *names),)
    return (step(v.PROBE_FABRIC, *names), v.TELL_USER) if klass == v.PARTITION else (v.WAIT,)


def _reasons(mine: list[Silence], place: str) -> tuple[str, ...]:
    told = [
        f"{one.node.node}"
        + (f" is silent for {one.node.silent_s:g} s" if one.node.silent_s is not None else "")
        + f": {one.why}"
        for one in mine[:4]
    ]
    return (*told, f"they share {place}: one cause") if place and len(mine) > 1 else tuple(told)


def _shared(scene: Scene, names: tuple[str, ...]) -> str:
    """What these nodes have in common that no other has wholly: a rack, a switch, a domain."""
    places = [scene.place(name) for name in names]
    for kind in ("rack", "switch", "domain"):
        values = {getattr(place, kind) for place in places}
        if len(values) == 1 and (value := values.pop()) and len(names) > 1:
            return f"{kind} {value}"
    return ""


def _many(scene: Scene, names: tuple[str, ...]) -> Cause:
    """So many at once: it may be we who are cut off. Nobody is convicted."""
    return Cause(
        klass=v.PARTITION if scene.snap.monitor.store.lower() in ("", "ok") else v.MONITOR_BLIND,
        culprits=Culprits((), names),
        confidence=0.6,
        summary=f"{len(names)} of {len(scene.node_names)} nodes are silent at once: the observer may be cut off",
        reasons=(
            "more than half of all nodes fell silent together: rather the network, or ourselves, than all of them",
        ),
        evidence=tuple(f"nodes[{name}].silent_s" for name in names[:16]),
        action=policy.PAGE,
        steps=(v.TELL_USER,),
        fault="many silent",
    )
