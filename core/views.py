"""What is believed of one node, one round and one run."""

import math
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from rankpulse.core.arrival import Arrival
from rankpulse.core.exits import Exit
from rankpulse.core.joint import Joint
from rankpulse.core.phases import PhaseClocks
from rankpulse.core.progress import Mark, Moment, NodeClock, RankProgress
from rankpulse.core.records import Beat, Launcher, Member, NodeState, RankRow
from rankpulse.core.run_ahead import RunAhead
from rankpulse.core.suspects import Suspect

RUNNING = "running"


class Process(NamedTuple):
    """A process, named so that it cannot be mistaken for another that got its number later."""

    node: str
    pid: int
    start: int


def process_of(member: Member) -> Process:
    return Process(member.node, member.pid, member.start)


class Silence(NamedTuple):
    """What is remembered of a silence that has ended."""

    lasted_s: float
    ended_at: float  # observer's monotonic seconds
    steps: dict[tuple[int, int], int]  # (pid, start) -> step in the last beat before it


class Abreast(Mark):
    """The mark that all ranks of a node share as long as they go abreast: in one phase of one round."""

    __slots__ = ("phase", "place")

    def __init__(self, step: int, moment: Moment, phase: str, place: "Place") -> None:
        super().__init__(step, moment)
        self.phase, self.place = phase, place


@dataclass(slots=True)
class Told:
    """What the beats of a node tell of since they were last placed, and where their rows belong, in their order."""

    names: tuple[str, ...]  # of the phases, cut to their length
    imprint: bytes = b""  # what they say but for steps, see `core.imprint`
    who: bytes = b""  # the same without states
    states: list[str] = field(default_factory=list)
    states_at: list[int] = field(default_factory=list)  # where in the imprint
    ranks: list[RankProgress] = field(default_factory=list)
    places: list["Place"] = field(default_factory=list)
    abreast: "Abreast | None" = None


@dataclass(slots=True)
class Heard:
    """What every beat of a node touches, in one piece of memory: see `core.fold_ranks`."""

    name: str
    arrival: Arrival
    inc: int = -1
    seq: int = -1
    leaving: bool = False  # its agent said goodbye: silence is expected
    silent_since: float | None = None  # the deadline it missed
    relisted: bool = False  # the next beat is taken as it is, whatever its incarnation
    looked: tuple[int, int] | None = None  # (inc, seq) of a direct look that told more than the store's beats so far
    silence: Silence | None = None  # the one it came back from, until it is known whether its job went on meanwhile
    interval_s: float | None = None  # between its beats, where its agent says another than is usual
    clock: NodeClock = field(default_factory=NodeClock)
    told: Told | None = None  # None: the next beat is placed row by row


@dataclass(slots=True)
class NodeView(Heard):
    """One node, as its beats show it."""

    beat: Beat | None = None  # the last that was placed row by row: later ones told of the same processes
    state: NodeState | None = None
    goodbye_key: str = ""  # the observation in which its agent said goodbye
    afterwards: int = 0  # beats since it said so: the last ones may overtake it, an agent that goes on has not left
    rows: tuple[RankRow, ...] = ()  # those that were last placed one by one
    ranks: list[RankProgress | None] = field(default_factory=list)  # what each of them shows, None: it counts nowhere
    steps: dict[tuple[int, int], int] | None = None  # (pid, start) -> step as the store has it, while a look told more
    suspect: Suspect = field(default_factory=Suspect)
    lapsed_at: float = -math.inf  # when its lease was seen to run out while a job needed it

    def heard_at(self) -> float:
        """Its last beat; minus infinity before the first."""
        last = self.arrival.last
        return last if last is not None else -math.inf

    def silence_began(self) -> float:
        """With its last beat; where none ever came, with the deadline that it missed."""
        last = self.arrival.last if self.arrival.last is not None else self.silent_since
        return last if last is not None else -math.inf

    def life_at(self, anew_at: float) -> float:
        """The last sign of life on any path; it counts from `anew_at` at the earliest, when deadlines started anew."""
        return max(self.heard_at(), self.suspect.life_at, anew_at)


@dataclass
class RoundView:
    """One round: a set of processes that met."""

    number: int
    meeting: str
    world_size: int  # 0: not known yet
    began_at: float
    at: float = 0.0  # UTC, for people: when its roster was first written
    written_at: float = float("-inf")  # when its roster was last asked to be written
    members: dict[int, Member] = field(default_factory=dict)
    progress: dict[int, RankProgress] = field(default_factory=dict)
    exits: dict[Process, Exit] = field(default_factory=dict)
    accounted: bool = False  # its failure is part of the incident of an earlier round
    released: tuple[int, int] | None = None  # (listing, exits) by which it was judged for good and its exits let go
    places: frozenset[Launcher] = frozenset()  # the torchruns that met, where our rendezvous tells
    witness: int = -1  # a rank that was lately seen to move (or to rest, or not to be seen): look at it before all
    _reporting: frozenset[int] | None = None

    @property
    def mover(self) -> RankProgress | None:
        """The rank that moved last, or another that tells at once that the round does not stand still."""
        return self.progress.get(self.witness)

    def complete(self) -> bool:
        return 0 < self.world_size == len(self.members)

    def nodes(self) -> tuple[str, ...]:
        """All nodes of the round, also those on which no worker is known yet."""
        return tuple(sorted({place.node for place in self.places} | {m.node for m in self.members.values()}))

    def membership(self) -> tuple[int, frozenset[object]]:
        """What changes when a node joins or leaves."""
        if self.places:
            return 0, frozenset(self.places)
        return self.world_size, frozenset(member.node for member in self.members.values())

    def alive(self) -> list[Member]:
        return [member for member in self.members.values() if process_of(member) not in self.exits]

    def reporting(self) -> frozenset[int]:
        """The ranks that have reported a step."""
        if self._reporting is None:
            self._reporting = frozenset(rank for rank, progress in self.progress.items() if progress.first_step >= 0)
        return self._reporting

    def reporting_changed(self) -> None:
        """Ranks came or went, or reported their first step."""
        self._reporting = None

    def stepped(self) -> bool:
        """Every rank of the round has finished a step."""
        return self.complete() and len(self.reporting()) == self.world_size

    def resumed_from(self) -> int | None:
        """The step the round went on from: one before the first that its ranks finished.

        None when no rank says so: counted optimizer steps start at nothing in every process.
        """
        firsts = [self.progress[rank].first_step for rank in self.reporting()]
        return min(firsts) - 1 if firsts and min(firsts) > 0 else None


@dataclass
class RunView:
    """One launch of a job, over its rounds."""

    uid: str
    run_id: str
    elastic: bool
    clocks: PhaseClocks
    ahead: RunAhead = field(default_factory=RunAhead)
    rounds: dict[int, RoundView] = field(default_factory=dict)
    launchers: dict[Launcher, bool] = field(default_factory=dict)  # -> still there
    launcher_keys: list[str] = field(default_factory=list)  # observations that told of their end
    outcome: str = RUNNING
    reason: str = ""
    ended_at: float | None = None  # UTC, for people
    joint: Joint | None = None  # of our own rendezvous; None for a plain launch
    ordered: set[int] = field(default_factory=set)  # rounds that a restart order was given for
    swept: int = -1  # the listing of the store as of which its observations were let go

    @property
    def current(self) -> RoundView:
        return self.rounds[max(self.rounds)]

    def open(self) -> bool:
        return self.outcome == RUNNING

    def launchers_gone(self) -> bool:
        """All known launchers have ended (a plain launch without torchelastic has none that counts)."""
        return self.elastic and bool(self.launchers) and not any(self.launchers.values())


Place: TypeAlias = tuple[RunView, RoundView]  # where a process belongs
