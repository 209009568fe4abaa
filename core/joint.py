"""What our rendezvous says of one run: who launched it, who asks for a round, who met, and how it was closed.

These are the agents' words, and a run is known by them before any of its workers says anything.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from rankpulse.core.records import Joiner, Launch, Launcher, Meeting

MEETINGS_KEPT = 8


@dataclass
class Joint:
    """The rendezvous of a run as its records tell it. Times are the observer's."""

    launch: Launch | None = None
    joiners: dict[Launcher, Joiner] = field(default_factory=dict)
    meetings: dict[int, Meeting] = field(default_factory=dict)
    served: dict[Launcher, int] = field(default_factory=dict)  # the last join of each that a round used up
    closed_at: float | None = None  # when it was first seen closed
    gone_at: float | None = None  # when its launch was seen to be missing from the store without having been closed
    empty_at: float | None = None  # since when everybody who joined has left
    deleted: bool = False  # its launch is not in the store any more

    @property
    def closed(self) -> bool:
        return self.closed_at is not None

    @property
    def last(self) -> int:
        """The newest round that met, 0: none yet."""
        return max(self.meetings, default=0)

    def launched(self, launch: Launch, now: float) -> None:
        self.gone_at, self.deleted = None, False
        if self.closed and not launch.closed:
            return  # closed once and for good
        self.launch = launch
        if launch.closed and self.closed_at is None:
            self.closed_at = now

    def joined(self, joiner: Joiner, now: float) -> Launcher:
        """Fold a torchrun's word; returns who it is."""
        who = Launcher(joiner.node, joiner.launcher)
        self.joiners[who] = joiner
        self._count(now)
        return who

    def parted(self, who: Launcher, now: float) -> None:
        """Its record was deleted."""
        self.joiners.pop(who, None)
        self.served.pop(who, None)
        self._count(now)

    def met(self, meeting: Meeting) -> None:
        self.meetings[meeting.round] = meeting
        for place in meeting.places:
            who = Launcher(place.node, place.launcher)
            self.served[who] = max(place.join, self.served.get(who, 0))
        for old in sorted(self.meetings)[:-MEETINGS_KEPT]:
            del self.meetings[old]

    def relisted(self, now: float) -> None:
        """What the listing repeats is there; that it was closed is not forgotten."""
        self.joiners.clear()
        self.meetings.clear()
        self.served.clear()
        self.empty_at, self.deleted = None, True
        if not self.closed:
            self.launch, self.gone_at = None, now

    def lost(self, now: float) -> None:
        """Its launch was deleted."""
        self.deleted = True
        if not self.meetings:
            self.launch = None
        if not self.closed and self.gone_at is None:
            self.gone_at = now

    def waiting(self) -> list[Joiner]:
        """The torchruns that ask for a round and were not given one yet, in order of name."""
        found = [
            joiner for who, joiner in self.joiners.items() if not joiner.left and joiner.join > self.served.get(who, 0)
        ]
        return sorted(found, key=lambda joiner: (joiner.node, joiner.launcher))

    def may_meet(self, ordered: Iterable[int]) -> bool:
        """Whether the next round could begin: somebody waits, and the last round does not stand any more.

        It stands until one of its members asks again, all of them have left, or a restart was ordered (`ordered`:
        rounds with such an order). A spare that waits changes nothing.
        """
        waiting = self.waiting()
        if not waiting or not self.last:
            return bool(waiting)
        members = {Launcher(place.node, place.launcher) for place in self.meetings[self.last].places}
        if self.last in ordered or any(Launcher(joiner.node, joiner.launcher) in members for joiner in waiting):
            return True
        return all(who not in self.joiners or self.joiners[who].left for who in members)

    def _count(self, now: float) -> None:
        if any(not joiner.left for joiner in self.joiners.values()):
            self.empty_at = None
        elif self.joiners and self.empty_at is None:
            self.empty_at = now


def nodes_of(meeting: Meeting) -> tuple[str, ...]:
    return tuple(sorted({place.node for place in meeting.places}))


def launchers_of(meeting: Meeting) -> frozenset[Launcher]:
    return frozenset(Launcher(place.node, place.launcher) for place in meeting.places)
