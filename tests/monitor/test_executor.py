"""One order, not two and not none: whoever is paused, doubted or deposed."""

import pytest
from monitor_bench import KEYS, ORDER_KEY, Bench, Time, arm, create

from rankpulse.core import codec, events, records
from rankpulse.monitor.executor import DEPOSED, DONE, ERASE_AT_ONCE, FAILED, grouped
from rankpulse.store.memory import MemoryStore


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def store(time: Time) -> MemoryStore:
    return MemoryStore(time)


@pytest.fixture
async def leader(store: MemoryStore, time: Time) -> Bench:
    bench = Bench(store, time)
    await bench.election.campaign()
    return bench


async def who_ordered(store: MemoryStore) -> str | None:
    item = await store.get(ORDER_KEY)
    return codec.decode(records.Order, item.value).author if item else None


async def test_the_leader_writes_creates_and_erases_in_order(store: MemoryStore, leader: Bench) -> None:
    obs = KEYS.obs("n", 1, 1)
    await store.put(obs, b"{}")
    verdict = await leader.executor.run((create(), arm(), events.Erase(obs, "folded"), events.Say("info", "done")))
    assert verdict.result == DONE
    assert await who_ordered(store) == "m1"
    assert await store.get(KEYS.arm()) is not None
    assert await store.get(obs) is None
    assert verdict.revision == (await store.status()).revision
    assert leader.vitals.actions == {("create", DONE): 1, ("write", DONE): 1, ("erase", DONE): 1}


async def test_who_never_led_writes_nothing(store: MemoryStore, time: Time) -> None:
    assert (await Bench(store, time).executor.run((create(),))).result == DEPOSED
    assert await who_ordered(store) is None


async def test_a_paused_leader_does_not_write(store: MemoryStore, time: Time, leader: Bench) -> None:
    time.seconds += 60
    assert (await leader.executor.run((create(),))).result == DEPOSED
    assert await who_ordered(store) is None


async def test_the_fence_holds_even_when_the_clock_of_the_paused_lies(store: MemoryStore, time: Time) -> None:
    own = Time()  # the old leader's clock stood still while it was paused
    old, new = Bench(store, own, "old"), Bench(store, time, "new")
    await old.election.campaign()
    time.seconds += 60
    assert await new.election.campaign()
    assert old.election.term() is not None  # it still believes
    verdict = await old.executor.run((create("old"), arm()))
    assert verdict.result == DEPOSED
    assert "took over" in verdict.reason
    assert old.election.term() is None
    assert await who_ordered(store) is None
    assert (await new.executor.run((create("new"),))).result == DONE
    assert await who_ordered(store) == "new"
    assert await store.get(KEYS.arm()) is None


async def test_two_leaders_in_turn_make_one_order(store: MemoryStore, time: Time, leader: Bench) -> None:
    assert (await leader.executor.run((create("m1"),))).result == DONE
    time.seconds += 60
    second = Bench(store, time, "m2")
    await second.election.campaign()
    verdict = await second.executor.run((create("m2"), arm()))
    assert verdict.result == FAILED
    assert await who_ordered(store) == "m1"
    assert await store.get(KEYS.arm()) is None  # decided in ignorance of the first order: dropped
    assert second.election.term() is not None


async def test_an_uncertain_create_that_happened_is_done(store: MemoryStore, leader: Bench) -> None:
    store.uncertain_next_write(True)
    verdict = await leader.executor.run((create(), arm()))
    assert verdict.result == DONE
    assert await store.get(KEYS.arm()) is not None


async def test_an_uncertain_create_that_did_not_happen_is_decided_anew(store: MemoryStore, leader: Bench) -> None:
    store.uncertain_next_write(False)
    assert (await leader.executor.run((create(), arm()))).result == FAILED
    assert await store.get(KEYS.arm()) is None
    assert (await leader.executor.run((create(), arm()))).result == DONE
    assert await who_ordered(store) == "m1"


async def test_an_uncertain_write_ends_the_batch(store: MemoryStore, leader: Bench) -> None:
    store.uncertain_next_write(True)
    assert (await leader.executor.run((arm(), create()))).result == FAILED
    assert await who_ordered(store) is None


async def test_an_outage_ends_the_batch_and_not_the_monitor(store: MemoryStore, leader: Bench) -> None:
    store.outage(True)
    verdict = await leader.executor.run((create(), arm()))
    assert (verdict.result, verdict.revision) == (FAILED, 0)
    assert leader.vitals.actions == {("create", FAILED): 1}


async def test_a_full_store_ends_the_batch_with_the_reason(store: MemoryStore, leader: Bench) -> None:
    store.full(True)
    verdict = await leader.executor.run((create(),))
    assert verdict.result == FAILED
    assert "refuses writes" in verdict.reason


async def test_thousands_of_erasures_take_few_transactions(store: MemoryStore, leader: Bench) -> None:
    keys = [KEYS.obs("n", 1, seq) for seq in range(200)]
    for key in keys:
        await store.put(key, b"{}")
    before = (await store.status()).revision
    await leader.executor.run(tuple(events.Erase(key, "folded") for key in keys))
    assert (await store.list(KEYS.node("n"))).items == ()
    assert (await store.status()).revision - before == -(-200 // ERASE_AT_ONCE)


def test_grouping_keeps_the_order() -> None:
    erase = events.Erase("k", "folded")
    actions = (erase, erase, arm(), erase, create(), events.Say("info", "x"))
    assert [len(group) for group in grouped(actions)] == [2, 1, 1, 1, 1]
    assert tuple(action for group in grouped(actions) for action in group) == actions


async def test_a_record_the_store_will_never_take_holds_up_nothing(store: MemoryStore, leader: Bench) -> None:
    huge = records.Incident(id="i1", klass="unknown", state="open", opened_at=0.0, summary="x" * 2_000_000)
    verdict = await leader.executor.run((events.Write(KEYS.incident("i1"), huge, "huge"), create()))
    assert verdict.result == DONE
    assert await store.get(KEYS.incident("i1")) is None
    assert await who_ordered(store) == "m1"


async def test_log_lines_cannot_be_forged(leader: Bench, caplog: pytest.LogCaptureFixture) -> None:
    await leader.executor.run((events.Say("warning", "slot \x1b[2J\nERROR incident i9: all is lost"),))
    [line] = [record.getMessage() for record in caplog.records if "slot" in record.getMessage()]
    assert line.isprintable()
