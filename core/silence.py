"""What silence means: the peers' word on nodes that nothing is heard of. Pure functions of the fleet and `now`."""

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rankpulse.core import diagnosis as d
from rankpulse.core.cost_rule import Times
from rankpulse.core.slot import PHASE_TRAIN
from rankpulse.core.suspects import EXPIRED, LATE, SHARED
from rankpulse.core.views import NodeView, RunView

PATIENCE: Final = 1.5  # times the usual step: a run of which nothing is seen for longer stands still
JITTER: Final = 0.1  # of a beat
LOOK_S: Final = 3.0  # after a deadline, the first look is waited for
LOOKS_S: Final = 3.0  # where no peer can tell, looks get nothing back for so long: a burst of loss swallows a few

# what the peers on time tell of a run
MOVING = "moving"  # they move: it needs nobody who is silent, or will soon stand still
STALLED = "stalled"  # they move no more, for longer than their step ever took
UNTOLD = "untold"  # nobody can tell: no peer is on time, they do not train, or nothing is known of their pace


@dataclass
class Peers:
    """What the nodes that are on time say of one run."""

    run: RunView
    best: int | None = None  # step: how far the seen ranks have come; None where none is seen
    moved_at: float = -math.inf  # when a seen rank last moved
    still_s: float = math.inf  # for how long, by received beats alone, none of them has moved
    phases: set[str] = field(default_factory=set)  # of the seen ranks

    def tell(self, beat_s: float) -> str:
        """MOVING, STALLED or UNTOLD."""
        enough_s = standstill_s(self.run, beat_s)
        if enough_s is None or self.phases != {PHASE_TRAIN}:
            return UNTOLD
        return STALLED if self.still_s >= enough_s else MOVING

    def overdue(self) -> bool:
        """They stand still for longer than any phase they are in may last."""
        limit_s = max((self.run.clocks.deadline_s(phase) for phase in self.phases), default=math.inf)
        return self.best is not None and self.still_s >= limit_s


def standstill_s(run: RunView, beat_s: float) -> float | None:
    """Ranks that train and that received beats show unmoved for so long wait for somebody. None: it cannot be told.

    Received beats show too little: a stall began up to one beat before the first that shows it.
    """
    step_s = run.clocks.high_s(PHASE_TRAIN)
    if step_s is None or not run.ahead.synchronous():
        return None
    return max(PATIENCE * step_s, beat_s) + JITTER * beat_s


def alibi(node: str, at_step: int, peers: Peers) -> str | None:
    """Proof that ranks last seen `at_step` took part since: a peer finished a step that needed them. None: no proof."""
    ahead = peers.run.ahead
    if peers.best is None or peers.best <= at_step:  # as mostly, where many are silent
        return None
    if peers.best <= at_step + ahead.limit() or not ahead.synchronous():
        return None
    return (
        f"a peer finished step {peers.best}, which needed the ranks of {node} "
        f"(last seen at step {at_step}, run-ahead at most {ahead.limit()})"
    )


class Weighed(NamedTuple):
    """What a silence has come to."""

    fact: str  # of `core.suspects`: LATE | SHARED | EXPIRED
    reason: str
    klass: str = ""  # what it should be called by now; "" as long as it is too early to say
    confidence: float = 0.0
    runs: tuple[RunView, ...] = ()  # that suffer
    stalled: bool = False  # a run stands still


class Case(NamedTuple):
    """Nodes that fell silent together, of which nothing is heard on any path and for which no job vouches."""

    nodes: list[NodeView]
    peers: list[Peers]  # of the runs that need one of them
    anew_at: float  # when deadlines last started anew
    mass: bool  # so many are silent that this observer may be the one that is cut off

    @property
    def vouched(self) -> bool:
        """In this silence the job has shown that it went on with them: it is their word that cannot be heard."""
        return all(node.suspect.vouched for node in self.nodes)

    @property
    def life_at(self) -> float:
        """The last sign of life; of those for whom the job has vouched in this silence, the last move of the job."""
        life_at = max(node.life_at(self.anew_at) for node in self.nodes)
        return max([life_at, *(peers.moved_at for peers in self.peers)]) if self.vouched else life_at

    def unheard(self) -> bool:
        """Every one of them has been looked at since, and nothing came back."""
        return all(node.suspect.silent_to_looks(node.life_at(self.anew_at)) for node in self.nodes)

    def unheard_s(self) -> float:
        """For how long looks at each of them have got nothing back, without a break."""
        return min(node.suspect.silent_to_looks_s() for node in self.nodes)

    def is_new(self, now: float, beat_s: float) -> bool:
        """It is not known yet who fell silent with them, or what looks at them come to."""
        return any(_is_new(node, now - (node.silent_since or 0.0), self.anew_at, beat_s) for node in self.nodes)


def _is_new(node: NodeView, suspected_s: float, anew_at: float, beat_s: float) -> bool:
    look, can_be_looked_at = node.suspect.look, node.state is not None and bool(node.state.probe)
    told = not can_be_looked_at or (look is not None and look.at > node.life_at(anew_at))
    return suspected_s < beat_s or (suspected_s < LOOK_S and not told)


def weigh(case: Case, now: float, times: Times, beat_s: float) -> Weighed:
    """What has become of them: several are judged as one. In a mass only peers that are seen to wait are believed."""
    silence = now - case.life_at
    told = [peers.tell(beat_s) for peers in case.peers]
    stalled = tuple(peers.run for peers, word in zip(case.peers, told, strict=True) if word == STALLED)
    said = f"nothing has been heard of {'it' if len(case.nodes) == 1 else 'them'} on any path for {silence:.1f} s"
    after_s = times.rack_s if len(case.nodes) > 1 else (times.node_s if stalled else times.unwitnessed_s)
    early = silence < after_s or case.is_new(now, beat_s)
    if MOVING in told:
        return Weighed(LATE, f"{said}; its peers move: they either vouch for it or will soon stand still")
    if stalled:
        reason = f"{said}; its peers are on time, and stand still"
        if early:
            return Weighed(LATE, f"{reason}: given up after {after_s:g} s", stalled=True)
        return Weighed(EXPIRED, reason, d.NODE_DEAD, 0.9 if case.unheard() else 0.8, stalled, stalled=True)
    said += "; no peer can tell whether its job waits for it"
    if early:
        return Weighed(LATE, f"{said}: given up after {after_s:g} s")
    return _unwitnessed(case, after_s, said)


def _moves(peers: Peers, life_at: float, after_s: float) -> bool:
    return peers.phases == {PHASE_TRAIN} and peers.moved_at > life_at and peers.still_s < after_s


def _unwitnessed(case: Case, after_s: float, said: str) -> Weighed:
    """No peer can tell whether the job waits: then only looks that got nothing back are believed, and not of many."""
    if case.mass:
        return Weighed(SHARED, f"{said}, and too many are silent at once")
    moved_at = max((peers.moved_at for peers in case.peers if _moves(peers, case.life_at, after_s)), default=None)
    if moved_at is not None:
        klass = d.UNKNOWN if moved_at - case.life_at > after_s / 2 else ""  # or they only finished what they were at
        return Weighed(LATE, f"{said}: others of it move on", klass, 0.3)
    if case.vouched and not any(peers.overdue() for peers in case.peers):
        return Weighed(LATE, f"{said}, and the job has gone on with it in this silence")
    if not case.unheard():
        return Weighed(LATE, f"{said}, and no direct look could be taken", d.UNKNOWN, 0.3)
    if case.unheard_s() < LOOKS_S:
        return Weighed(LATE, f"{said}, and direct looks get nothing back for less than {LOOKS_S:g} s")
    runs = tuple(peers.run for peers in case.peers)
    return Weighed(EXPIRED, f"{said}, and direct looks get nothing back", d.NODE_DEAD, 0.7, runs)
