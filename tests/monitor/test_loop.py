"""The loop: nothing decided on the past, nothing decided blind, nothing decided twice."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from monitor_bench import KEYS, Bench, Time, arm, create
from support import eventually

from rankpulse.core import codec, events, records
from rankpulse.store.memory import MemoryStore

BEAT = records.Beat(node="n1", inc=1, seq=1, at=0.0)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def store(time: Time) -> MemoryStore:
    return MemoryStore(time)


@pytest.fixture
async def bench(store: MemoryStore, time: Time) -> AsyncIterator[Bench]:
    made = Bench(store, time)
    made.loop.follow_anew()
    yield made
    await made.loop.close()


async def turn(bench: Bench, times: int = 1) -> None:
    """Let the watch deliver, then turn."""
    for _ in range(times):
        await asyncio.sleep(0.01)
        bench.time.seconds += 0.1
        await bench.loop.turn()


async def take_office(bench: Bench) -> None:
    await bench.election.campaign()
    await turn(bench, 3)
    assert bench.loop.office > 0


async def test_no_tick_before_the_first_listing(store: MemoryStore, time: Time) -> None:
    bench = Bench(store, time)
    await bench.loop.turn()
    assert bench.engine.ticks == []
    assert not bench.vitals.listed


async def test_a_listing_comes_as_relisted_and_seen_in_order_of_revision(store: MemoryStore, bench: Bench) -> None:
    await store.put(KEYS.beat("n2"), codec.encode(records.Beat(node="n2", inc=1, seq=1, at=0.0)))
    await store.put(KEYS.beat("n1"), codec.encode(BEAT))
    await turn(bench, 2)
    assert bench.engine.names() == ["SightBack", "Relisted", "Seen", "Seen"]
    seen = [event.record.node for event in bench.engine.events if isinstance(event, events.Seen)]  # type: ignore[union-attr]
    assert seen == ["n2", "n1"]
    assert bench.engine.events[2].received_at <= bench.engine.ticks[0]


async def test_everything_that_came_is_folded_before_the_tick(store: MemoryStore, bench: Bench) -> None:
    await turn(bench, 2)
    ticks = len(bench.engine.ticks)
    for seq in range(50):
        await store.put(KEYS.beat("n1"), codec.encode(records.Beat(node="n1", inc=1, seq=seq, at=0.0)))
    await turn(bench)
    assert bench.engine.names().count("Seen") == 50
    assert len(bench.engine.ticks) == ticks + 1
    assert bench.vitals.events["beat"] == 50


async def test_garbage_and_foreign_names_are_refused_and_the_loop_goes_on(store: MemoryStore, bench: Bench) -> None:
    await turn(bench)
    await store.put(KEYS.beat("n1"), b"\xff not json")
    await store.put(KEYS.beat("n2"), codec.encode(BEAT))  # n1 speaks under n2's key
    await store.put(KEYS.prefix + "what/is/this", b"nobody knows")
    await store.put(KEYS.beat("n1"), codec.encode(BEAT))
    await store.delete(KEYS.beat("n1"))
    await turn(bench)
    assert bench.engine.names() == ["SightBack", "Relisted", "Garbled", "Garbled", "Seen", "Gone"]
    assert bench.vitals.refused == 2


async def test_losing_sight_is_told_and_so_is_its_return(store: MemoryStore, bench: Bench) -> None:
    await turn(bench)
    store.outage(True)
    await turn(bench, 3)
    assert bench.engine.names()[2:] == ["SightLost"]
    assert bench.vitals.sight_lost
    store.outage(False)
    await store.put(KEYS.beat("n1"), codec.encode(BEAT))
    await turn(bench)
    assert bench.engine.names()[3:] == ["SightBack", "Seen"]
    assert bench.vitals.sight_lost == ""


async def test_only_the_own_canary_counts(store: MemoryStore, bench: Bench) -> None:
    await turn(bench, 2)
    before = bench.engine.songs()
    await store.put(KEYS.canary("other"), b"other 1")
    await store.put(KEYS.canary("m1"), b"a predecessor of the same name 1")
    await turn(bench)
    assert bench.engine.songs() == before
    await bench.canary.sing()
    await turn(bench)
    assert bench.engine.songs() == before + 1


async def test_the_first_tick_waits_for_an_echo_from_the_store(store: MemoryStore, bench: Bench) -> None:
    await asyncio.sleep(0.01)
    await bench.loop.turn()
    assert bench.engine.ticks == []
    await turn(bench)
    assert bench.engine.songs() == 1
    assert len(bench.engine.ticks) == 1


async def test_office_begins_when_all_that_was_written_before_it_is_folded(store: MemoryStore, bench: Bench) -> None:
    await store.put(KEYS.beat("n1"), codec.encode(BEAT))
    await bench.election.campaign()
    bench.engine.plans = [(arm(),)]
    await bench.loop.turn()
    assert "TookOffice" not in bench.engine.names()
    await turn(bench)
    names = bench.engine.names()
    assert names.index("TookOffice") > max(i for i, name in enumerate(names) if name == "Seen")


async def test_a_decision_is_written_once_and_the_next_waits_for_its_echo(store: MemoryStore, bench: Bench) -> None:
    await take_office(bench)
    bench.engine.plans = [(create(),)]
    ticks = len(bench.engine.ticks)
    await bench.loop.turn()
    await bench.loop.turn()  # the watch has not delivered the order yet
    assert len(bench.engine.ticks) == ticks + 1
    await turn(bench)
    assert len(bench.engine.ticks) == ticks + 2
    assert isinstance(bench.engine.events[-1], events.Seen)


async def test_a_standby_decides_nothing(store: MemoryStore, bench: Bench) -> None:
    bench.engine.always = (create(),)
    await turn(bench, 5)
    assert bench.engine.ticks
    assert (await store.list(KEYS.orders())).items == ()


async def test_a_blind_leader_does_nothing(store: MemoryStore, bench: Bench) -> None:
    await take_office(bench)
    store.outage(True)
    await turn(bench)
    bench.engine.always = (create(),)
    await turn(bench, 3)
    assert bench.vitals.actions == {}


async def test_a_paused_leader_leaves_office_before_it_decides(store: MemoryStore, bench: Bench, time: Time) -> None:
    await take_office(bench)
    bench.engine.always = (create(),)
    time.seconds += 60
    await bench.loop.turn()
    assert bench.engine.names()[-1] == "LeftOffice"
    assert (await store.list(KEYS.orders())).items == ()


async def test_a_failed_batch_is_followed_by_a_new_listing_before_the_next_decision(
    store: MemoryStore, bench: Bench
) -> None:
    await take_office(bench)
    bench.engine.plans = [(create(), arm())]
    store.uncertain_next_write(False)
    await bench.loop.turn()
    ticks = len(bench.engine.ticks)
    await bench.loop.turn()
    assert len(bench.engine.ticks) == ticks  # nothing is decided before the listing
    bench.engine.plans = [(create(), arm())]
    await eventually(lambda: _turned(bench, lambda: not bench.engine.plans), 5, "the next decision")
    assert bench.engine.names().count("Relisted") == 2
    assert await store.get(KEYS.arm()) is not None


async def _turned(bench: Bench, done: object) -> bool:
    await turn(bench)
    return bool(done())  # type: ignore[operator]


async def test_a_watch_that_shows_nothing_is_a_loss_of_sight(store: MemoryStore, bench: Bench, time: Time) -> None:
    await take_office(bench)
    silent = store._followers.copy()
    store._followers.clear()  # the watch is silent, without an error
    bench.engine.plans = [(create(),)]
    await bench.loop.turn()
    await bench.loop.turn()
    time.seconds += 10  # by now the office is lost, too
    await bench.loop.turn()
    assert "SightLost" in bench.engine.names()
    await turn(bench, 2)
    assert bench.engine.names().count("Relisted") == 2
    assert "SightBack" in bench.engine.names()
    assert silent


async def test_losing_the_leader_key_ends_the_office(store: MemoryStore, bench: Bench) -> None:
    await take_office(bench)
    await store.delete(KEYS.leader())
    await turn(bench)
    assert "LeftOffice" in bench.engine.names()
    assert bench.loop.office == 0


async def test_incidents_and_restarts_are_counted_once_and_the_past_is_not(store: MemoryStore, time: Time) -> None:
    bench = Bench(store, time)

    def incident(id_: str, restarts: int, order_id: str = "") -> bytes:
        return codec.encode(
            records.Incident(
                id=id_, klass="worker_dead", state="open", opened_at=0.0, restarts=restarts, order_id=order_id
            )
        )

    await store.put(KEYS.incident("old"), incident("old", 1))
    bench.loop.follow_anew()
    await turn(bench)
    await store.put(KEYS.incident("i1"), incident("i1", 0))
    await store.put(KEYS.incident("i1"), incident("i1", 1))
    await store.put(KEYS.incident("i2"), incident("i2", 1, "o1"))
    await turn(bench)
    bench.loop.follow_anew()
    await turn(bench, 2)
    assert bench.vitals.incidents == {"worker_dead": 2}
    assert bench.vitals.restarts == {"torchelastic": 1, "order": 1}
    await bench.loop.close()


async def test_the_ends_of_runs_are_counted_once_and_the_past_is_not(store: MemoryStore, time: Time) -> None:
    bench = Bench(store, time)

    async def state(uid: str, outcome: str) -> None:
        record = records.RunState(run_uid=uid, run_id="a", round=1, outcome=outcome, reason="", at=0.0)
        await store.put(KEYS.run_state(uid), codec.encode(record))

    await state("old", "failed")
    await state("u1", "running")
    bench.loop.follow_anew()
    await turn(bench)
    await state("u1", "failed")
    await state("u1", "running")  # its torchrun went on after all
    await state("u1", "failed")
    await state("u2", "finished")
    await turn(bench)
    bench.loop.follow_anew()
    await turn(bench, 2)
    assert bench.vitals.ended == {"failed": 2, "finished": 1}
    await bench.loop.close()


async def test_gates_and_evidence_are_counted_once_and_the_past_is_not(store: MemoryStore, time: Time) -> None:
    bench = Bench(store, time)

    def gate(number: int, go: bool, *without: str) -> bytes:
        return codec.encode(records.Gate(run_uid="u", round=number, go=go, reason="", epoch=1, at=0.0, without=without))

    def evidence(seq: int) -> bytes:
        return codec.encode(records.Observation(node="n", inc=1, seq=seq, at=0.0, kind=records.EVIDENCE))

    await store.put(KEYS.gate("u", 1), gate(1, True))
    await store.put(KEYS.obs("n", 1, 1), evidence(1))
    bench.loop.follow_anew()
    await turn(bench)
    await store.put(KEYS.gate("u", 2), gate(2, True, "n9"))
    await store.put(KEYS.gate("u", 3), gate(3, False))
    await store.put(KEYS.obs("n", 1, 2), evidence(2))
    await turn(bench)
    bench.loop.follow_anew()
    await turn(bench, 2)
    assert bench.vitals.gates == {"without": 1, "stop": 1}
    assert bench.vitals.evidence == 1
    await bench.loop.close()


async def test_an_engine_that_breaks_does_not_act_and_says_so(bench: Bench) -> None:
    await turn(bench, 3)

    def broken(now: float, at: float) -> tuple[events.Action, ...]:
        raise ZeroDivisionError("a bug")

    healthy, bench.engine.tick = bench.engine.tick, broken  # type: ignore[method-assign]
    await turn(bench)
    assert "a bug" in bench.vitals.engine_failure
    bench.engine.tick = healthy  # type: ignore[method-assign]
    await turn(bench)
    assert bench.vitals.engine_failure == ""
