"""Where a monitor can be hit: every transaction of it and every call of a webhook, and each way in which it can be."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from rankpulse.drills.sim.clockwork import Heap, Program, finish
from rankpulse.store.api import Guard, Item, Lease, Listing, Outcome, Put, Sight, StoreError, Uncertain, Write
from rankpulse.store.memory import MemoryStore

T = TypeVar("T")

KILLED_BEFORE: Final = "killed before"
KILLED_AFTER: Final = "killed after"  # done, but it never hears of it
PAUSED_BEFORE: Final = "paused before"
PAUSED_AFTER: Final = "paused after"
LOST_DONE: Final = "no answer, done"
LOST: Final = "no answer, not done"
LATE: Final = "no answer, done later"  # still under way when its client has given up
WAYS: Final = (KILLED_BEFORE, KILLED_AFTER, PAUSED_BEFORE, PAUSED_AFTER, LOST_DONE, LOST, LATE)
PAUSE_S: Final = 30.0  # longer than any lease
TIMEOUT_S: Final = 3.0
LATE_S: Final = 1.5  # after the deadline of its client


class Points:
    """Counts the calls of all monitors from the fault on. `ways`: says of each how it is hit, "" if it is not."""

    def __init__(self, ways: Callable[[int], str] = lambda _call: "") -> None:
        self.calls: list[str] = []
        self.counting = False
        self.way = self.was_hit = ""
        self._ways = ways

    def meet(self, what: str) -> str:
        """The way in which this call is hit; one of a play is."""
        if not self.counting:
            return ""
        self.calls.append(what)
        if self.way:
            return ""
        if way := self._ways(len(self.calls) - 1):
            self.way, self.was_hit = way, what
        return way


class Host:
    """The process that calls. `died`: told when it was killed."""

    def __init__(self, heap: Heap, points: Points, died: Callable[[], None]) -> None:
        self.heap, self.points, self._died = heap, points, died
        self.program = Program(heap)  # type: ignore[abstract]

    async def call(self, what: str, work: Callable[[], Awaitable[T]], lost: Callable[[], T]) -> T:
        """`work`, or what becomes of it if it is hit. `lost`: what its caller is told when no answer comes."""
        way = self.points.meet(what)
        asyncio._set_running_loop(self.program)  # a fork has none: asyncio knows it by the process id
        if way == KILLED_BEFORE:
            await self._die()
        if way == PAUSED_BEFORE:
            await self._pause()
        if way not in (LOST_DONE, LOST, LATE):
            answer = await work()
        if way == KILLED_AFTER:
            await self._die()
        if way == PAUSED_AFTER:
            await self._pause()
        if way not in (LOST_DONE, LOST, LATE):
            return answer
        if way == LOST_DONE:
            with suppress(StoreError):
                await work()
        elif way == LATE:
            self.heap.after(TIMEOUT_S + LATE_S, _do, work)
        await asyncio.sleep(TIMEOUT_S)
        return lost()

    async def _die(self) -> None:
        self.program.kill()
        self._died()
        await asyncio.Future()

    async def _pause(self) -> None:
        goes_on: asyncio.Future[None] = asyncio.Future()
        self.heap.after(PAUSE_S, self.program.resume)
        self.program.pause()
        self.program.deliver(goes_on.set_result, None)
        await goes_on


def _do(work: Callable[[], Awaitable[Any]]) -> None:
    async def done() -> None:
        with suppress(StoreError):
            await work()

    finish(done())


class Line:
    """`Store` of one monitor: its transactions are points, everything else goes straight through."""

    def __init__(self, memory: MemoryStore, host: Host) -> None:
        self._memory, self._host = memory, host

    async def txn(self, guards: Sequence[Guard], writes: Sequence[Write]) -> Outcome:
        what = ", ".join(f"{'put' if isinstance(write, Put) else 'delete'} {write.key}" for write in writes)
        return await self._host.call(what, lambda: self._memory.txn(guards, writes), _no_answer)

    async def get(self, key: str) -> Item | None:
        return await self._memory.get(key)

    async def list(self, prefix: str) -> Listing:
        return await self._memory.list(prefix)

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        return await self._memory.put(key, value, lease=lease)

    async def grant(self, ttl_s: float) -> Lease:
        return await self._memory.grant(ttl_s)

    async def keep_alive(self, lease: Lease) -> float:
        return await self._memory.keep_alive(lease)

    async def revoke(self, lease: Lease) -> None:
        await self._memory.revoke(lease)

    def follow(self, prefix: str) -> AsyncIterator[Sight]:
        return self._memory.follow(prefix)


def _no_answer() -> Outcome:
    raise Uncertain("no answer in time")
