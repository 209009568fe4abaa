"""What silence means: the path they share, one sidecar, or a dead node. Pure functions of the fleet and `now`."""

from dataclasses import dataclass, field

from rankpulse.core import diagnosis as d
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.records import Member
from rankpulse.core.settings import DetectSettings
from rankpulse.core.views import NodeView, RunView


def _dead_after_s(settings: DetectSettings) -> float:
    return settings.node_dead_after_s or 30.0


@dataclass
class Peers:
    """What the nodes that are on time say of one run, gathered once per tick however many nodes are late."""

    run: RunView
    best: tuple[int, int] | None = None  # (step, rank): how far the seen ranks have come
    moved_at: float = float("-inf")  # when a seen rank last moved
    phases: set[str] = field(default_factory=set)  # of the seen ranks
    by_node: dict[str, list[Member]] = field(default_factory=dict)  # living members


def gather(runs: list[RunView], fresh: set[str]) -> list[Peers]:
    """One look over all ranks: linear in their number."""
    found = []
    for run in runs:
        peers = Peers(run, by_node={node: [] for node in run.current.nodes()} if run.joint is not None else {})
        for member in run.current.alive():
            peers.by_node.setdefault(member.node, []).append(member)
            progress = run.current.progress.get(member.rank)
            if progress is not None and member.node in fresh:
                peers.best = max(peers.best or (-1, -1), (progress.step, member.rank))
                peers.moved_at = max(peers.moved_at, progress.moved_at)
                peers.phases.add(progress.phase)
        found.append(peers)
    return found


def stalled(peers: Peers, now: float, settings: DetectSettings) -> bool:
    """The seen ranks stand still for longer than a node may be silent and than their phase ever took."""
    patience = max((peers.run.clocks.deadline_s(phase) for phase in peers.phases), default=0.0)
    return peers.best is not None and now - peers.moved_at >= max(_dead_after_s(settings), patience)


def together(late: int, watched: int, settings: DetectSettings) -> bool:
    """Whether so many nodes are late that the path they share must be looked at before any of them."""
    return late >= 2 and late >= settings.shared_late_fraction * watched


def shared_delay(late: list[NodeView], watched: int, now: float, settings: DetectSettings) -> Diagnosis | None:
    """Many unrelated nodes late together: their common path is late, not they."""
    if not together(len(late), watched, settings):
        return None
    since = min(node.silent_since for node in late if node.silent_since is not None)
    if now - since < settings.settle_s:
        return None
    silence = max(now - (node.arrival.last or now) for node in late)
    return Diagnosis(
        d.CONTROL_PLANE_DELAY,
        (),
        (),
        tuple(sorted(node.name for node in late))[:NAMED_MAX],
        0.9,
        f"control plane late: {len(late)} of {watched} nodes silent together",
        (
            f"{len(late)} of {watched} nodes missed their deadline together, the longest silent for {silence:.1f} s: "
            "unrelated nodes do not die in the same second, the path they share is late",
            "this monitor's own writes came back meanwhile: its sight of the store is good",
        ),
        (),
        since,
    )


def alibi(node: str, peers: Peers) -> str | None:
    """Proof that a silent node's ranks took part: a peer finished a step that needed them. None: no such proof."""
    round_, ahead = peers.run.current, peers.run.ahead
    steps = [round_.progress[m.rank].step for m in peers.by_node.get(node, ()) if m.rank in round_.progress]
    if not steps or peers.best is None or not ahead.synchronous():
        return None
    step, rank = peers.best
    if step <= min(steps) + ahead.limit():
        return None
    return (
        f"rank {rank} finished step {step}, which needed the ranks of {node} "
        f"(last seen at step {min(steps)}, run-ahead at most {ahead.limit()})"
    )


def one_silent(node: NodeView, runs: list[Peers], now: float, settings: DetectSettings) -> Diagnosis | None:
    """One node silent: its agent, its path, or the node itself."""
    last, since = node.arrival.last, node.silent_since
    if since is None or last is None or now - last < min(settings.sidecar_dead_after_s, _dead_after_s(settings)):
        return None
    silence, said = now - last, f"{node.name} has been silent for {now - last:.1f} s"
    mine = [peers for peers in runs if node.name in peers.by_node]
    dead = [peers for peers in mine if stalled(peers, now, settings)]
    # an alibi speaks for the time of that step: when the job then stands still, it is used up
    proof = next((found for peers in mine if peers not in dead and (found := alibi(node.name, peers))), None)
    if proof or not mine:
        if silence < settings.sidecar_dead_after_s:
            return None
        why = proof or f"no job is known to run on {node.name}"
        summary = f"the agent on {node.name} is silent, no job suffers"
        return Diagnosis(d.SIDECAR_DEAD, (), (), (node.name,), 0.8, summary, (said, why), (), since)
    if silence < _dead_after_s(settings):
        return None
    if not dead and any(peers.best is not None and peers.run.ahead.synchronous() for peers in mine):
        return None  # its peers either need it, and will soon stand still for too long, or give it an alibi
    if not dead:
        summary = f"{node.name} is silent; whether it lives cannot be told from here"
        why = "no other node shares its job and could vouch for it"
        return Diagnosis(d.UNKNOWN, (), (), (node.name,), 0.3, summary, (said, why), (), since)
    return _dead(node.name, dead, said, since)


def _dead(node: str, runs: list[Peers], said: str, since: float) -> Diagnosis:
    culprits = [member for peers in runs for member in peers.by_node[node]]
    cascade = {rank for peers in runs for rank, member in peers.run.current.members.items() if member.node != node}
    return Diagnosis(
        d.NODE_DEAD,
        tuple(culprits[:NAMED_MAX]),
        tuple(sorted(cascade)),
        (node,),
        0.7,
        f"{node} is silent and its job stands still",
        (said, "its peers are on time, and stand still"),
        (),
        since,
    )
