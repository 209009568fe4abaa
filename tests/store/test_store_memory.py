"""What only the store in memory can do: obey a clock and faults exactly."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from support import eventually

from rankpulse.store.api import Change, Changes, Listing, Lost, NoSpace, Progress, Put, StoreError
from rankpulse.store.memory import MemoryStore


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_lease_ends_at_its_time_and_not_before() -> None:
    clock = Clock()
    store = MemoryStore(clock)
    lease = await store.grant(10)
    await store.put("k", b"", lease=lease.id)
    clock.now = 9.9
    assert await store.get("k")
    await store.keep_alive(lease)
    clock.now = 19.8
    assert await store.get("k")
    clock.now = 19.9
    assert await store.get("k") is None


async def test_leases_end_during_an_outage_too(following: Any) -> None:
    clock = Clock()
    store = MemoryStore(clock)
    lease = await store.grant(10)
    await store.put("k/leader", b"", lease=lease.id)
    sights = following(store, "k/")
    await eventually(lambda: sights.seen, what="a listing")
    store.outage(True)
    await eventually(lambda: isinstance(sights.seen[-1], Lost), what="the loss is said")
    clock.now = 11
    store.tick()
    store.outage(False)
    await eventually(lambda: len(sights.seen) == 3, what="back")
    assert sights.seen[-1] == Changes(3, (Change("k/leader", None, 3),))


async def test_a_short_story_is_told_exactly(following: Any) -> None:
    store = MemoryStore(Clock())
    sights = following(store, "k/")
    await eventually(lambda: sights.seen, what="a listing")
    await store.txn([], [Put("k/a", b"1"), Put("k/b", b"2")])
    await eventually(lambda: len(sights.seen) == 2, what="the changes")
    store.tick()
    await eventually(lambda: len(sights.seen) == 3, what="progress")
    assert sights.seen == [
        Listing(1, ()),
        Changes(2, (Change("k/a", b"1", 2), Change("k/b", b"2", 2))),
        Progress(2),
    ]


async def test_a_full_store_refuses_puts_only() -> None:
    store = MemoryStore(Clock())
    await store.put("a", b"")
    store.full(True)
    with pytest.raises(NoSpace):
        await store.put("b", b"")
    assert (await store.status()).alarms == ("NOSPACE",)
    assert await store.delete("a")
    store.full(False)
    assert await store.put("b", b"")


async def test_an_abandoned_follower_is_forgotten() -> None:
    store = MemoryStore(Clock())
    async with aclosing(store.follow("k/")) as follower:  # type: ignore[type-var]
        assert await anext(follower) == Listing(1, ())
    waiting = store.follow("k/")
    assert await anext(waiting) == Listing(1, ())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(anext(waiting), 0.01)
    await eventually(lambda: not store._followers, what="nobody follows")


async def test_nothing_empty_can_be_followed() -> None:
    with pytest.raises(StoreError):
        await anext(MemoryStore(Clock()).follow(""))
