"""The store in memory on an injected clock: for simulation and tests, with etcd's meaning of every call.

One `MemoryStore` is the shared state; hand the same object to everybody who would talk to the same etcd.
"""

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from math import ceil

from rankpulse.store.api import (
    Change,
    Changes,
    Delete,
    Guard,
    Item,
    Lease,
    LeaseLost,
    Listing,
    Lost,
    NoSpace,
    Outcome,
    Progress,
    Put,
    Sight,
    StoreError,
    StoreStatus,
    TooLarge,
    Uncertain,
    Unreachable,
    Write,
)

MAX_TXN_OPS = 128  # etcd's default: a simulation must not pass with what etcd refuses
MAX_REQUEST_BYTES = 1536 * 1024  # likewise


class MemoryStore:
    """`Store` in memory. `now` gives seconds; leases end by it, at the next call or `tick`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._items: dict[str, Item] = {}
        self._revision = 1
        self._compacted = 0
        self._log: list[Change] = []
        self._leases: dict[int, tuple[float, float]] = {}  # id -> (ttl, ends at)
        self._last_lease = 0
        self._away = False
        self._full = False
        self._uncertain: bool | None = None  # the next write ends uncertain: applied or not
        self._followers: set[asyncio.Event] = set()
        self._beats = 0  # counts `tick`s: followers answer each with a Progress

    # faults and time, for tests and simulations

    def outage(self, on: bool) -> None:
        """While on, every call raises `Unreachable` and followers see `Lost`; leases go on ending."""
        self._away = on
        self._wake()

    def uncertain_next_write(self, applied: bool) -> None:
        """The next write raises `Uncertain`, having happened or not."""
        self._uncertain = applied

    def full(self, on: bool) -> None:
        """While on, puts raise `NoSpace`; reads and deletes go on, as in etcd."""
        self._full = on

    def tick(self) -> None:
        """Let the clock be looked at: leases end, and followers say `Progress` when there is nothing else to say."""
        self.expire()
        self._beats += 1
        self._wake()

    def expire(self) -> None:
        """End the leases whose time has come, each with the keys under it."""
        now = self._now()
        for id_ in [id_ for id_, (_, ends) in self._leases.items() if ends <= now]:
            self._end_lease(id_)

    # the protocol

    async def get(self, key: str) -> Item | None:
        self._reach()
        return self._items.get(key)

    async def list(self, prefix: str) -> Listing:
        self._reach()
        _check_prefix(prefix)
        items = [item for key, item in self._items.items() if key.startswith(prefix)]
        return Listing(self._revision, tuple(sorted(items, key=lambda item: (item.modified, item.key))))

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        with self._writing():
            self._apply([Put(key, value, lease)])
        return self._revision

    async def delete(self, key: str) -> bool:
        with self._writing():
            return self._apply([Delete(key)]) > 0
        raise AssertionError("unreachable")

    async def delete_prefix(self, prefix: str) -> int:
        _check_prefix(prefix)
        with self._writing():
            return self._apply([Delete(key) for key in self._items if key.startswith(prefix)])
        raise AssertionError("unreachable")

    async def txn(self, guards: Sequence[Guard], writes: Sequence[Write]) -> Outcome:
        if len(guards) > MAX_TXN_OPS or len(writes) > MAX_TXN_OPS:
            raise StoreError(f"transaction refused: more than {MAX_TXN_OPS} operations; split it")
        puts = [write.key for write in writes if isinstance(write, Put)]
        if len(set(puts)) < len(puts):
            raise StoreError("transaction refused: it puts the same key twice")
        with self._writing():
            done = all(self._modified(guard.key) == guard.modified for guard in guards)
            if done:
                self._apply(writes)
            return Outcome(done, self._revision)
        raise AssertionError("unreachable")

    async def grant(self, ttl_s: float) -> Lease:
        self._reach()
        ttl = float(max(1, ceil(ttl_s)))
        self._last_lease += 1
        self._leases[self._last_lease] = (ttl, self._now() + ttl)
        return Lease(self._last_lease, ttl)

    async def keep_alive(self, lease: Lease) -> float:
        self._reach()
        if lease.id not in self._leases:
            raise LeaseLost(f"lease {lease.id} has ended")
        ttl, _ = self._leases[lease.id]
        self._leases[lease.id] = (ttl, self._now() + ttl)
        return ttl

    async def revoke(self, lease: Lease) -> None:
        self._reach()
        self._end_lease(lease.id)

    async def follow(self, prefix: str) -> AsyncIterator[Sight]:
        _check_prefix(prefix)
        wake = asyncio.Event()
        self._followers.add(wake)
        try:
            async with contextlib.aclosing(self._sights(prefix, wake)) as sights:
                async for sight in sights:
                    yield sight
        finally:
            self._followers.discard(wake)

    async def compact(self, revision: int) -> None:
        self._reach()
        if revision > self._revision:
            raise StoreError(f"cannot compact at {revision}: the store is at {self._revision}")
        self._compacted = max(self._compacted, revision)
        del self._log[: self._index(self._compacted - 1)]

    async def status(self) -> StoreStatus:
        self._reach()
        size = sum(len(item.key) + len(item.value) for item in self._items.values())
        return StoreStatus("memory", size, self._revision, True, ("NOSPACE",) if self._full else ())

    async def close(self) -> None:
        """Nothing is held; the state stays for the others."""

    # inside

    async def _sights(self, prefix: str, wake: asyncio.Event) -> AsyncGenerator[Sight, None]:
        revision, lost, beats = 0, False, self._beats
        while True:
            wake.clear()
            if self._away:
                if not lost:
                    lost = True
                    yield Lost("the store is away")
            else:
                sight = await self._sight(prefix, revision)
                quiet = isinstance(sight, Progress)
                if not quiet or lost or beats != self._beats:
                    revision, lost, beats = sight.revision, False, self._beats
                    yield sight
            if not wake.is_set():
                await wake.wait()

    async def _sight(self, prefix: str, revision: int) -> Listing | Changes | Progress:
        """What a follower who has seen `revision` sees next; 0: nothing seen yet."""
        self.expire()
        if revision == 0 or revision + 1 < self._compacted:
            return await self.list(prefix)
        news = tuple(change for change in self._log[self._index(revision) :] if change.key.startswith(prefix))
        return Changes(news[-1].revision, news) if news else Progress(revision)

    def _index(self, revision: int) -> int:
        """Where in the log the changes after `revision` begin."""
        return bisect_right(self._log, revision, key=lambda change: change.revision)

    def _reach(self) -> None:
        self.expire()
        if self._away:
            raise Unreachable("the store is away")

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        """Around every write: outages first, then the injected doubt about whether it happened."""
        self._reach()
        doubt, self._uncertain = self._uncertain, None
        if doubt is False:
            raise Uncertain("the connection broke under way")
        yield
        if doubt:
            raise Uncertain("the connection broke under way")

    def _modified(self, key: str) -> int:
        item = self._items.get(key)
        return item.modified if item else 0

    def _apply(self, writes: Sequence[Write]) -> int:
        """Do the writes at one new revision; returns how many keys they touched."""
        puts = [write for write in writes if isinstance(write, Put)]
        if sum(len(put.key) + len(put.value) for put in puts) > MAX_REQUEST_BYTES:
            raise TooLarge(f"more than {MAX_REQUEST_BYTES} bytes at once: write less")
        if puts and self._full:
            raise NoSpace("the store refuses writes: database space exceeded")
        for put in puts:
            if put.lease and put.lease not in self._leases:
                raise LeaseLost(f"lease {put.lease} has ended")
        deletes = [write.key for write in writes if isinstance(write, Delete) and write.key in self._items]
        if not puts and not deletes:
            return 0
        self._revision += 1
        for key in deletes:
            self._items.pop(key, None)
            self._log.append(Change(key, None, self._revision))
        for put in puts:
            old = self._items.get(put.key)
            created = old.created if old else self._revision
            self._items[put.key] = Item(put.key, put.value, created, self._revision, put.lease)
            self._log.append(Change(put.key, put.value, self._revision))
        self._wake()
        return len(puts) + len(deletes)

    def _end_lease(self, id_: int) -> None:
        if self._leases.pop(id_, None) is None:
            return
        self._apply([Delete(key) for key, item in self._items.items() if item.lease == id_])

    def _wake(self) -> None:
        for event in self._followers:
            event.set()


def _check_prefix(prefix: str) -> None:
    if not prefix:
        raise StoreError("an empty prefix would mean the whole store: name one")
