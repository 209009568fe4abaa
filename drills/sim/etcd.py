"""The store as its clients meet it: `MemoryStore` behind a network, with elections, outages and watches that lag.

Every call goes there and back with a delay of its own. A call that cannot get through ends at its client's deadline,
and what it carried may still arrive when the path heals: so beats come late, twice and out of order, as with TCP.
"""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, NamedTuple

from rankpulse.drills.sim.clockwork import Heap, finish
from rankpulse.store.api import (
    Change,
    Changes,
    Listing,
    Lost,
    Progress,
    Sight,
    StoreError,
    Uncertain,
    Unreachable,
)
from rankpulse.store.memory import MemoryStore

KEPT_S: Final = 45.0  # of the log; a watch that is further behind gets a listing
SILENT_S: Final = (4.0, 7.0)  # until a client knows that its watch is dead
EXPIRE_S: Final = 0.2
LATE_MAX_S: Final = 15.0  # what waits for so long in a broken connection is lost
Work = Callable[[MemoryStore], Coroutine[Any, Any, Any]]
Done = Callable[[Any, StoreError | None, float], None]


class Delays:
    """Of one hop: most take a millisecond, few are sent again by TCP after 0.2 s and more."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def __call__(self) -> float:
        rng = self._rng
        delay = 0.0005 + rng.expovariate(1200.0)
        if rng.random() < 0.002:
            delay += 0.2
            while rng.random() < 0.15 and delay < 2.0:
                delay *= 2
        return delay


class Memory(MemoryStore):
    """Its leases are looked at a few times a second, not at every call."""

    _looked_at = -1.0

    def expire(self) -> None:
        if self._now() - self._looked_at >= EXPIRE_S:
            self._looked_at = self._now()
            super().expire()


class _Waiting(NamedTuple):
    end: str
    since: float
    work: Work


@dataclass
class Watch:
    """One watch of everything, or (`few`) of what agents follow. `tell` gets what is new, `Lost` when sight is lost."""

    end: str
    few: bool
    tell: Callable[[Sight], None]
    lag_s: tuple[float, float]  # what is new within it is told at once
    revision: int
    news: list[Change] = field(default_factory=list)
    due: bool = False
    lost: bool = False
    stuck_since: float | None = None
    behind: bool = False
    over: bool = False


class Etcd:
    """The store and every path to it. `reaches(end)`: whether packets of this client get through right now; `few`: of
    a key whether agents follow it."""

    def __init__(self, heap: Heap, rng: Random, reaches: Callable[[str], bool], few: Callable[[str], bool]) -> None:
        self.heap, self._rng, self._reaches, self._few = heap, rng, reaches, few
        self.memory = Memory(lambda: heap.now)
        self.delay = Delays(rng)
        self.killed = False
        self.electing_until = 0.0
        self.told: Callable[[Change], None] = lambda _change: None  # of every change, as it happens
        self._watches: list[Watch] = []
        self._whole: list[Watch] = []
        self._late: list[_Waiting] = []
        self._seen = 1
        heap.after(KEPT_S, self._compact)
        heap.after(1.0, self._tick)

    # --- calls

    def call(self, end: str, work: Work, done: Done, *, timeout_s: float = 3.0, write: bool = True) -> None:
        """`done(value, error, at)` is called when the outcome is settled; the client knows it at `at`."""
        now = self.heap.now
        if self._reaches(end):
            self.heap.at(now + self.delay(), self._serve, end, work, done, now + timeout_s)
            if write and self._rng.random() < 0.0005:  # sent twice by something in between
                self.heap.after(self._rng.uniform(0.005, 1.5), self._serve, end, work, _nobody, now + timeout_s)
            return
        if write and self._rng.random() < 0.5:
            self._late.append(_Waiting(end, now, work))
        self.heap.at(now + timeout_s, done, None, Uncertain("no answer in time"), now + timeout_s)

    def healed(self, end: str) -> None:
        """What waited in this client's connection arrives, if it is not too old."""
        mine = [one for one in self._late if one.end == end]
        self._late = [one for one in self._late if one.end != end]
        for one in mine:
            if self.heap.now - one.since < LATE_MAX_S:
                self.heap.after(self._rng.uniform(0.01, 1.0), self._serve, end, one.work, _nobody, self.heap.now + 3)
        for watch in self._watches:
            if watch.end == end:
                self._soon(watch, self._rng.uniform(0.1, 1.0))

    def _serve(self, end: str, work: Work, done: Done, deadline: float) -> None:
        now = self.heap.now
        if self.killed:
            done(None, Unreachable("connection refused"), now + self.delay())
        elif self.electing_until > now:
            back = self.electing_until + self._rng.uniform(0.0, 0.3)
            if back < deadline:
                self.heap.at(back, self._serve, end, work, done, deadline)
            else:
                self.heap.at(deadline, done, None, Uncertain("the store has no leader"), deadline)
        else:
            self._do(end, work, done, deadline)

    def _do(self, end: str, work: Work, done: Done, deadline: float) -> None:
        value, error = None, None
        try:
            value = finish(work(self.memory))
        except StoreError as refused:
            error = refused
        self.announce()
        if self._reaches(end):
            done(value, error, self.heap.now + self.delay())
        else:
            self.heap.at(deadline, done, None, Uncertain("no answer in time"), deadline)

    def promoted(self) -> None:
        """A new leader of the store gives every lease its full time again, as etcd does."""
        leases = self.memory._leases
        for id_, (ttl_s, _) in list(leases.items()):
            leases[id_] = (ttl_s, self.heap.now + ttl_s)

    # --- watches

    def watch(self, watch: Watch) -> None:
        self._watches.append(watch)
        self._whole = [one for one in self._watches if not one.few]
        if watch.revision < self.memory._compacted:
            watch.behind = True
        watch.news = [
            change
            for change in self.memory._log[self.memory._index(watch.revision) :]
            if not watch.few or self._few(change.key)
        ]
        self._soon(watch, 0.001)

    def unwatch(self, watch: Watch) -> None:
        watch.over = True
        self._watches = [one for one in self._watches if one is not watch]
        self._whole = [one for one in self._watches if not one.few]

    def announce(self) -> None:
        """Hand on what has changed since."""
        if self.memory._revision == self._seen:
            return
        for change in self.memory._log[self.memory._index(self._seen) :]:
            self.told(change)
            few = self._few(change.key)
            for watch in self._watches if few else self._whole:
                watch.news.append(change)
                if not watch.due:
                    self._soon(watch, self._rng.uniform(*watch.lag_s))
        self._seen = self.memory._revision

    def _soon(self, watch: Watch, delay_s: float) -> None:
        watch.due = True
        self.heap.after(delay_s, self._flush, watch)

    def _flush(self, watch: Watch) -> None:
        watch.due = False
        if watch.over:
            return
        if self.killed or not self._reaches(watch.end):
            self._hold(watch)
            return
        watch.stuck_since = None
        if watch.behind:
            watch.behind, watch.lost, watch.news = False, False, []
            items = finish(self.memory.list("/"))
            listing = Listing(items.revision, tuple(i for i in items.items if not watch.few or self._few(i.key)))
            watch.revision = listing.revision
            watch.tell(listing)
        elif watch.news or watch.lost or not watch.few:
            news, watch.news, watch.lost = tuple(watch.news), [], False
            watch.revision = news[-1].revision if news else watch.revision
            watch.tell(Changes(watch.revision, news) if news else Progress(watch.revision))

    def _hold(self, watch: Watch) -> None:
        """Nothing gets through: after a while the client knows."""
        now = self.heap.now
        if watch.stuck_since is None:
            watch.stuck_since = now
        patience = 0.2 if self.killed else SILENT_S[0] + (hash_of(watch.end) % 100) / 100 * (SILENT_S[1] - SILENT_S[0])
        if not watch.lost and now - watch.stuck_since >= patience:
            watch.lost = True
            watch.tell(Lost("the store is away"))
        if watch.news and now - watch.stuck_since > KEPT_S:
            watch.behind, watch.news = True, []
        self._soon(watch, 0.25)

    def _tick(self) -> None:
        """Leases end by the store's clock; a watch without news still says that it lives."""
        if not self.killed and self.electing_until <= self.heap.now:
            self.memory.expire()
            self.announce()
        for watch in self._whole:
            if not watch.due:
                self._soon(watch, 0.01)
        self.heap.after(1.0, self._tick)

    def _compact(self) -> None:
        finish(self.memory.compact(self.memory._revision))
        self.heap.after(KEPT_S, self._compact)


def hash_of(text: str) -> int:
    """The same in every process, unlike `hash`."""
    value = 7
    for letter in text:
        value = (value * 31 + ord(letter)) % 1_000_003
    return value


def _nobody(_value: Any, _error: StoreError | None, _at: float) -> None:
    """The client of this call has given up."""
