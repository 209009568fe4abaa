"""One agent per name: who may take it over, and when."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from agent_bench import dead_pid

from rankpulse.agent.claim import Held, Me, NameTaken, check, take
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import AgentClaim, Beat, Observation
from rankpulse.store.api import Uncertain
from rankpulse.store.memory import MemoryStore

KEYS = Keys("c")
ME = Me("n1", "mine", "host", "boot", 100)
Sleep = Callable[[float], Awaitable[None]]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: 0.0)


async def no_sleep(_s: float) -> None:
    await asyncio.sleep(0)


def claim(store: MemoryStore, *, floor: int = 0, me: Me = ME, sleep: Sleep = no_sleep) -> Awaitable[Held]:
    return take(store, KEYS, me, floor=floor, interval_s=1.0, utc=0.0, sleep=sleep)


async def other(store: MemoryStore, *, pid: int = 100, boot_id: str = "another", inc: int = 5) -> None:
    record = AgentClaim(node="n1", inc=inc, token="theirs", host="host", pid=pid, boot_id=boot_id, at=0.0)
    await store.put(KEYS.claim("n1"), codec.encode(record))


async def beat(store: MemoryStore, seq: int) -> None:
    await store.put(KEYS.beat("n1"), codec.encode(Beat(node="n1", inc=5, seq=seq, at=0.0)))


async def test_a_free_name_is_taken(store: MemoryStore) -> None:
    held = await claim(store)
    assert held.inc == 1
    assert await check(store, KEYS, ME) == held


async def test_no_incarnation_is_used_again(store: MemoryStore) -> None:
    assert (await claim(store, floor=8)).inc == 9
    await store.delete(KEYS.claim("n1"))
    obs = Observation(node="n1", inc=12, seq=1, at=0.0, kind="x")
    await store.put(KEYS.obs("n1", 12, 1), codec.encode(obs))
    assert (await claim(store)).inc == 13


async def test_a_holder_whose_beat_stands_still_is_replaced(store: MemoryStore) -> None:
    await other(store)
    await beat(store, 1)
    assert (await claim(store)).inc == 6


async def test_a_living_holder_keeps_the_name(store: MemoryStore) -> None:
    await other(store)

    async def meanwhile(_s: float) -> None:
        await beat(store, 2)

    with pytest.raises(NameTaken, match=r"another agent named n1 runs on host host, pid 100.*--node"):
        await claim(store, sleep=meanwhile)


async def test_a_holder_that_surely_is_dead_is_replaced_at_once(store: MemoryStore) -> None:
    await other(store, pid=dead_pid(), boot_id="boot")

    async def never(_s: float) -> None:
        raise AssertionError("waited for a dead process")

    assert (await claim(store, sleep=never)).inc == 6


async def test_a_garbled_claim_is_nobodys(store: MemoryStore) -> None:
    await store.put(KEYS.claim("n1"), b"{")
    assert (await claim(store)).inc == 1


async def test_incarnations_that_cannot_be_are_ignored_and_told(store: MemoryStore) -> None:
    told: list[str] = []
    await other(store, inc=10**300)
    await store.put(KEYS.beat("n1"), codec.encode(Beat(node="n1", inc=2**53 + 1, seq=1, at=0.0)))
    await store.put(KEYS.obs("n1", 10**100, 1), b"{}")
    await store.put(KEYS.obs("n1", 6, 1), b"{}")
    held = await take(store, KEYS, ME, floor=0, interval_s=1.0, utc=0.0, sleep=no_sleep, warn=told.append)
    assert held.inc == 7
    assert [text for text in told if "cannot be" in text] == told
    assert len(told) == 3


@pytest.mark.parametrize("applied", [True, False])
async def test_a_claim_whose_fate_is_not_known(store: MemoryStore, applied: bool) -> None:
    store.uncertain_next_write(applied)
    if applied:
        assert (await claim(store)).inc == 1
    else:
        with pytest.raises(Uncertain):
            await claim(store)
        assert (await claim(store)).inc == 1


async def test_who_is_quicker_wins(store: MemoryStore) -> None:
    await other(store)

    async def meanwhile(_s: float) -> None:
        await other(store, inc=6)

    with pytest.raises(NameTaken):
        await claim(store, sleep=meanwhile)
