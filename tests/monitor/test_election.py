"""Leadership: at most one, and nobody believes it longer than the store does."""

import asyncio

import pytest
from monitor_bench import KEYS, Bench, Time
from support import eventually

from rankpulse.core import codec
from rankpulse.core.records import Leader
from rankpulse.store.api import StoreError, Unreachable
from rankpulse.store.memory import MemoryStore


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def store(time: Time) -> MemoryStore:
    return MemoryStore(time)


async def test_the_first_takes_office_and_says_so_in_the_store(store: MemoryStore, time: Time) -> None:
    bench = Bench(store, time)
    assert await bench.election.campaign()
    item = await store.get(KEYS.leader())
    assert item is not None
    leader = codec.decode(Leader, item.value)
    term = bench.election.term()
    assert term is not None
    assert (leader.monitor, leader.epoch) == ("m1", 1) == ("m1", term.epoch)
    assert term.revision == item.modified


async def test_only_one_of_two_leads(store: MemoryStore, time: Time) -> None:
    one, two = Bench(store, time, "m1"), Bench(store, time, "m2")
    won = await asyncio.gather(one.election.campaign(), two.election.campaign())
    assert sorted(won) == [False, True]


async def test_the_belief_ends_before_the_lease(store: MemoryStore, time: Time) -> None:
    bench = Bench(store, time)
    await bench.election.campaign()
    term = bench.election.term()
    assert term is not None
    time.seconds = term.sure_until
    assert bench.election.term() is None
    assert await store.get(KEYS.leader()) is not None  # the store still thinks so: the safe order of things


async def test_a_paused_leader_wakes_up_knowing_that_it_does_not_lead(store: MemoryStore, time: Time) -> None:
    one, two = Bench(store, time, "m1"), Bench(store, time, "m2")
    await one.election.campaign()
    time.seconds += 60  # m1 was stopped all the while
    assert await two.election.campaign()
    assert one.election.term() is None
    await one.election.renew()
    assert one.election.term() is None
    assert two.election.term().epoch == 2  # type: ignore[union-attr]


async def test_renewal_keeps_the_office(store: MemoryStore, time: Time) -> None:
    bench = Bench(store, time)
    await bench.election.campaign()
    for _ in range(10):
        time.seconds += 2
        await bench.election.renew()
    assert bench.election.term() is not None


async def test_a_renewal_counts_from_when_it_was_sent(store: MemoryStore, time: Time) -> None:
    bench = Bench(store, time)
    await bench.election.campaign()
    keep_alive = store.keep_alive

    async def slow(lease: object) -> float:
        left = await keep_alive(lease)  # type: ignore[arg-type]
        time.seconds += 2
        return left

    store.keep_alive = slow  # type: ignore[method-assign]
    sent = time.seconds
    await bench.election.renew()
    term = bench.election.term()
    assert term is not None
    assert term.sure_until < sent + 5


async def test_an_unreachable_store_lets_the_term_run_out(store: MemoryStore, time: Time) -> None:
    bench = Bench(store, time)
    await bench.election.campaign()
    store.outage(True)
    with pytest.raises(Unreachable):
        await bench.election.renew()
    assert bench.election.term() is not None
    time.seconds += 5
    assert bench.election.term() is None


async def test_resigning_makes_room_at_once(store: MemoryStore, time: Time) -> None:
    one, two = Bench(store, time, "m1"), Bench(store, time, "m2")
    await one.election.campaign()
    await one.election.resign()
    assert await two.election.campaign()


async def test_resigning_without_a_store_does_not_fail(store: MemoryStore, time: Time) -> None:
    bench = Bench(store, time)
    await bench.election.campaign()
    store.outage(True)
    await bench.election.resign()
    assert bench.election.term() is None


@pytest.mark.parametrize("applied", [True, False])
async def test_an_uncertain_campaign_is_read_before_it_is_believed(
    store: MemoryStore, time: Time, applied: bool
) -> None:
    bench = Bench(store, time)
    store.uncertain_next_write(applied)
    assert await bench.election.campaign() is applied
    assert (bench.election.term() is not None) is applied
    assert ((await store.get(KEYS.leader())) is not None) is applied


async def test_the_epoch_only_grows(store: MemoryStore, time: Time) -> None:
    epochs = []
    for number in range(4):
        bench = Bench(store, time, f"m{number}")
        await bench.election.campaign()
        epochs.append(bench.election.term().epoch)  # type: ignore[union-attr]
        await bench.election.resign()
    assert epochs == [1, 2, 3, 4]


async def test_a_leader_key_taken_away_ends_the_term(store: MemoryStore, time: Time) -> None:
    bench = Bench(store, time)
    await bench.election.campaign()
    term = bench.election.term()
    assert term is not None
    bench.election.saw_leader(True, term.revision)
    assert bench.election.term() is not None
    bench.election.saw_leader(False, term.revision + 3)
    assert bench.election.term() is None
    assert "deleted" in bench.election.reason


async def test_a_standby_stands_as_soon_as_the_office_is_vacant(store: MemoryStore, time: Time) -> None:
    one, two = Bench(store, time, "m1"), Bench(store, time, "m2")
    await one.election.campaign()
    two.election.saw_leader(True, 2)
    standby = asyncio.create_task(two.election.run())
    try:
        await one.election.resign()
        assert two.election.term() is None
        two.election.saw_leader(False, 9)
        await eventually(two.election.term, 5, "the standby to lead")
    finally:
        standby.cancel()


async def test_a_garbled_epoch_counter_does_not_stop_the_election(store: MemoryStore, time: Time) -> None:
    await store.put(KEYS.epoch(), b"\xff garbage")
    bench = Bench(store, time)
    assert await bench.election.campaign()


async def test_an_unreachable_store_is_an_error_of_the_campaign(store: MemoryStore, time: Time) -> None:
    store.outage(True)
    with pytest.raises(StoreError):
        await Bench(store, time).election.campaign()


async def test_its_own_old_key_keeps_nobody_out_after_an_outage(store: MemoryStore, time: Time) -> None:
    """The store lets leases live on after it was away: the term that was lost meanwhile is given back first."""
    bench = Bench(store, time)
    await bench.election.campaign()
    store.outage(True)
    bench.election.lose("the lease could not be renewed in time")
    standing = asyncio.create_task(bench.election.run())
    try:
        await eventually(lambda: bench.election._stale is not None, 5, "something to give back")
        await asyncio.sleep(0)  # it has tried by now
        store.outage(False)

        async def given_back() -> bool:
            return await store.get(KEYS.leader()) is None

        await eventually(given_back, 5, "the old key to go, though its lease lives")
    finally:
        standing.cancel()
        await asyncio.gather(standing, return_exceptions=True)
