"""What silence means: the peers' word on nodes that nothing is heard of. Pure functions of the fleet and `now`."""

import math
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rankpulse.core import diagnosis as d
from rankpulse.core.cost_rule import Times
from rankpulse.core.records import Member
from rankpulse.core.slot import PHASE_TRAIN
from rankpulse.core.suspects import EXPIRED, LATE, SHARED
from rankpulse.core.views import NodeView, RunView

PATIENCE = 1.5  # times the usual step: a run of which nothing is seen for longer stands still
JITTER = 0.1  # of a beat

# what the peers on time tell of a run
MOVING = "moving"  # they move: it needs nobody who is silent, or will soon stand still
STALLED = "stalled"  # they move no more, for longer than their step ever took
UNTOLD = "untold"  # nobody can tell: no peer is on time, they do not train, or nothing is known of their pace


@dataclass
class Peers:
    """What the nodes that are on time say of one run, gathered once per tick however many nodes are late."""

    run: RunView
    best: tuple[int, int] | None = None  # (step, rank): how far the seen ranks have come
    moved_at: float = -math.inf  # when a seen rank last moved
    still_s: float = math.inf  # for how long, by received beats alone, none of them has moved
    phases: set[str] = field(default_factory=set)  # of the seen ranks
    by_node: dict[str, list[Member]] = field(default_factory=dict)  # living members

    def tell(self, beat_s: float) -> str:
        """MOVING, STALLED or UNTOLD."""
        pace_s = self.run.clocks.high_s(PHASE_TRAIN)
        if pace_s is None or self.phases != {PHASE_TRAIN} or not self.run.ahead.synchronous():
            return UNTOLD
        # `still_s` ends with the last beat and began at most one before the first that showed it: it is a lower bound
        return STALLED if self.still_s >= max(PATIENCE * pace_s, beat_s) + JITTER * beat_s else MOVING

    def overdue(self) -> bool:
        """They stand still for longer than any phase they are in may last."""
        limit_s = max((self.run.clocks.deadline_s(phase) for phase in self.phases), default=math.inf)
        return self.best is not None and self.still_s >= limit_s


def gather(runs: Iterable[RunView], on_time: Container[str]) -> list[Peers]:
    """One look over all ranks: linear in their number."""
    return [_of_run(run, on_time) for run in runs]


def _of_run(run: RunView, on_time: Container[str]) -> Peers:
    peers = Peers(run, by_node={node: [] for node in run.current.nodes()} if run.joint is not None else {})
    for member in run.current.alive():
        peers.by_node.setdefault(member.node, []).append(member)
    for node, members in peers.by_node.items():
        if node in on_time:
            _seen(peers, members)
    return peers


def _seen(peers: Peers, members: list[Member]) -> None:
    for member in members:
        progress = peers.run.current.progress.get(member.rank)
        if progress is not None:
            peers.best = max(peers.best or (-1, -1), (progress.step, member.rank))
            peers.moved_at = max(peers.moved_at, progress.moved_at)
            peers.still_s = min(peers.still_s, progress.stale_s())
            peers.phases.add(progress.phase)


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


class Weighed(NamedTuple):
    """What a silence has come to."""

    fact: str  # of `core.suspects`: LATE | SHARED | EXPIRED
    reason: str
    klass: str = ""  # what it should be called by now; "" as long as it is too early to say
    confidence: float = 0.0
    runs: tuple[Peers, ...] = ()  # that suffer
    stalled: bool = False  # a run stands still


SURE_S: Final = 1.0  # a suspicion is at least one beat old before anybody is convicted


def weigh(
    group: list[NodeView], mine: list[Peers], now: float, times: Times, beat_s: float, *, anew_at: float, mass: bool
) -> Weighed:
    """Nodes that are silent on every path and that no job vouches for: several are judged as one.

    `mine`: the runs that need one of them. `mass`: so many are silent that this observer may be the one cut off: then
    only peers that stand still, and are seen, are believed.
    """
    silence = now - max(node.life_at(anew_at) for node in group)
    told = {peers.run.uid: peers.tell(beat_s) for peers in mine}
    stalled = tuple(peers for peers in mine if told[peers.run.uid] == STALLED)
    moving = [peers for peers in mine if told[peers.run.uid] == MOVING]
    said = f"nothing has been heard of {'it' if len(group) == 1 else 'them'} on any path for {silence:.1f} s"
    after_s = times.rack_s if len(group) > 1 else (times.node_s if stalled else times.unwitnessed_s)
    after_s = max(after_s, *(node.arrival.wait_s() + SURE_S * beat_s for node in group))
    if stalled and not moving:
        reason = f"{said}; its peers are on time, and stand still"
        if silence < after_s:
            return Weighed(LATE, f"{reason}: given up after {after_s:g} s", stalled=True)
        return Weighed(EXPIRED, reason, d.NODE_DEAD, 0.9 if _unheard(group, anew_at) else 0.8, stalled, stalled=True)
    if moving:
        return Weighed(LATE, f"{said}; its peers move: they either vouch for it or will soon stand still")
    if mass:
        return Weighed(SHARED, f"{said}; too many are silent at once, and no peer tells that it waits for them")
    return _unwitnessed(group, mine, silence, after_s, said, anew_at)


def _unwitnessed(
    group: list[NodeView], mine: list[Peers], silence: float, after_s: float, said: str, anew_at: float
) -> Weighed:
    """No peer can tell whether the job waits: then only looks that got nothing back are believed."""
    said += "; no peer can tell whether its job waits for it"
    if silence < after_s:
        return Weighed(LATE, f"{said}: given up after {after_s:g} s")
    if any(peers.phases == {PHASE_TRAIN} and peers.still_s < after_s for peers in mine):
        return Weighed(LATE, f"{said}: others of it move on", d.UNKNOWN, 0.3)
    if not _unheard(group, anew_at):
        return Weighed(LATE, f"{said}, and no direct look could be taken", d.UNKNOWN, 0.3)
    return Weighed(EXPIRED, f"{said}, and direct looks get nothing back", d.NODE_DEAD, 0.7, tuple(mine))


def _unheard(group: list[NodeView], anew_at: float) -> bool:
    return all(node.suspect.silent_to_looks(node.life_at(anew_at)) for node in group)
