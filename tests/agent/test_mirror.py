"""What the agent has seen of the rendezvous, what it writes, and that it is there: over a store in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from agent_bench import Lines
from support import eventually

from rankpulse.agent.clock import Clock
from rankpulse.agent.log import Log
from rankpulse.agent.mirror import Mirror
from rankpulse.agent.presence import Present, presence_ttl_s
from rankpulse.agent.writing import write
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import Cordon, Launch, Order, Presence, Record
from rankpulse.core.rendezvous import Txn
from rankpulse.store.api import Change, Changes, Item, Listing, Lost, Progress
from rankpulse.store.memory import MemoryStore

KEYS = Keys("test")
LAUNCH = KEYS.launch("u1")


def launch(at: float = 0.0) -> Launch:
    return Launch(run_uid="u1", label="train", owner=0, min_nodes=1, max_nodes=1, at=at)


class Bench:
    def __init__(self) -> None:
        self.now = 100.0
        self.store = MemoryStore(lambda: self.now)
        self.clock = Clock(lambda: self.now, lambda: 0.0)
        self.lines = Lines()
        self.log = Log()
        self.changes = 0
        self.orders: list[str] = []
        self.mirror = Mirror(
            KEYS, self.clock, self.log, self._changed, lambda order: self.orders.append(order.order_id)
        )

    def _changed(self) -> None:
        self.changes += 1

    def listing(self, revision: int, **values: tuple[str, Record, int]) -> None:
        items = tuple(Item(key, codec.encode(record), at, at) for key, record, at in values.values())
        self.mirror.see(KEYS.rdzv(), Listing(revision, items))

    def change(self, revision: int, key: str, record: Record | bytes | None) -> None:
        value = codec.encode(record) if isinstance(record, Record) else record
        self.mirror.see(KEYS.rdzv(), Changes(revision, (Change(key, value, revision),)))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_we_wrote_is_not_taken_back_by_a_stream_that_is_behind(bench: Bench) -> None:
    bench.mirror.know(LAUNCH, launch(2.0), 20)
    bench.change(10, LAUNCH, launch(1.0))
    bench.change(11, LAUNCH, None)
    bench.listing(12, a=(LAUNCH, launch(1.0), 10))
    bench.listing(13)
    assert bench.mirror.get(LAUNCH) == launch(2.0)
    assert bench.mirror.view.modified(LAUNCH) == 20
    bench.change(21, LAUNCH, None)
    assert bench.mirror.get(LAUNCH) is None
    bench.change(15, LAUNCH, launch(1.5))
    assert bench.mirror.get(LAUNCH) is None


def test_a_listing_is_all_there_is(bench: Bench) -> None:
    bench.listing(5, a=(LAUNCH, launch(), 3), b=(KEYS.presence("n1"), Presence(node="n1", inc=1, at=0.0), 4))
    bench.mirror.see(KEYS.cordons(), Listing(5, ()))
    bench.mirror.know(KEYS.cordon("n1"), Cordon(node="n1", author="a", reason="r", at=0.0), 6)
    bench.listing(9, b=(KEYS.presence("n1"), Presence(node="n1", inc=1, at=0.0), 4))
    assert bench.mirror.get(LAUNCH) is None
    assert "u1" not in bench.mirror.view.runs
    assert "n1" in bench.mirror.view.cordons  # of another stream


def test_a_store_that_was_emptied_counts_anew(bench: Bench) -> None:
    bench.listing(500, a=(LAUNCH, launch(), 400))
    bench.mirror.see(KEYS.rdzv(), Lost("away"))
    bench.listing(3)
    assert bench.mirror.get(LAUNCH) is None
    bench.change(4, LAUNCH, launch(2.0))
    assert bench.mirror.get(LAUNCH) == launch(2.0)


def test_what_cannot_be_read_is_said_and_guards_nothing_away(bench: Bench) -> None:
    bench.change(5, LAUNCH, b"\xff")
    assert bench.mirror.get(LAUNCH) is None
    assert LAUNCH in bench.mirror.view.unreadable
    bench.change(6, LAUNCH, launch())
    assert bench.mirror.get(LAUNCH) == launch()
    bench.change(7, KEYS.rdzv() + "x", b"1")
    bench.change(8, KEYS.rdzv() + "u1/rounds/zero", b"1")


def test_sight_is_that_of_all_streams(bench: Bench) -> None:
    prefixes = (KEYS.rdzv(), KEYS.gates(), KEYS.cordons(), KEYS.orders())
    for prefix in prefixes:
        assert not bench.mirror.ready
        bench.mirror.see(prefix, Listing(1, ()))
    assert bench.mirror.sighted
    bench.mirror.see(KEYS.gates(), Lost("away"))
    assert bench.mirror.ready
    assert not bench.mirror.sighted
    before = bench.changes
    bench.mirror.see(KEYS.gates(), Progress(2))
    assert bench.mirror.sighted
    assert bench.changes == before + 1
    bench.mirror.see(KEYS.gates(), Progress(3))
    assert bench.changes == before + 1


def test_orders_are_told_each_time_they_are_listed_and_only_restarts_are_decided_with(bench: Bench) -> None:
    def order(kind: str) -> Order:
        return Order(
            order_id=kind, run_uid="u1", run_id="train", round=1, kind=kind, epoch=1, incident="i", reason="r",
            author="m", at=0.0,
        )  # fmt: skip

    for revision, kind in enumerate(("restart", "collect-1", "release"), 1):
        bench.mirror.see(
            KEYS.orders(), Changes(revision, (Change(KEYS.order("u1", 1, kind), codec.encode(order(kind)), revision),))
        )
    assert bench.orders == ["restart", "collect-1", "release"]
    assert list(bench.mirror.view.runs["u1"].orders) == [1]


# -- writing --------------------------------------------------------------------------------------------------------
async def put(bench: Bench, *, guard: int = 0, at: float = 1.0) -> bool:
    txn = Txn(((LAUNCH, guard),), ((LAUNCH, launch(at)),))
    return await write(bench.store, bench.mirror, bench.log, txn)


async def test_what_was_written_is_known_at_once(bench: Bench) -> None:
    assert await put(bench)
    assert bench.mirror.get(LAUNCH) == launch(1.0)
    assert await put(bench, guard=bench.mirror.view.modified(LAUNCH), at=2.0)
    assert bench.mirror.get(LAUNCH) == launch(2.0)
    assert await write(bench.store, bench.mirror, bench.log, Txn((), (), (LAUNCH,)))
    assert bench.mirror.get(LAUNCH) is None


async def test_a_refused_write_tells_what_stands_there(bench: Bench) -> None:
    await bench.store.put(LAUNCH, codec.encode(launch(9.0)))
    assert not await put(bench)
    assert bench.mirror.get(LAUNCH) == launch(9.0)
    assert await put(bench, guard=bench.mirror.view.modified(LAUNCH))


async def test_a_refused_write_tells_that_nothing_stands_there(bench: Bench) -> None:
    await bench.store.put(LAUNCH, codec.encode(launch(9.0)))
    assert not await put(bench)
    await bench.store.delete(LAUNCH)
    assert not await put(bench, guard=bench.mirror.view.modified(LAUNCH))
    assert bench.mirror.get(LAUNCH) is None


@pytest.mark.parametrize("applied", [True, False])
async def test_doubt_is_ended_by_reading(bench: Bench, applied: bool) -> None:
    bench.store.uncertain_next_write(applied)
    assert not await put(bench)
    assert bench.mirror.get(LAUNCH) == (launch(1.0) if applied else None)


async def test_an_outage_is_said_once_and_changes_nothing(bench: Bench) -> None:
    bench.mirror.know(LAUNCH, launch(9.0), 1)
    bench.store.outage(True)
    assert not await put(bench)
    assert bench.mirror.get(LAUNCH) == launch(9.0)


# -- presence -------------------------------------------------------------------------------------------------------
@contextlib.asynccontextmanager
async def present(bench: Bench, inc: int = 3) -> AsyncIterator[Present]:
    follow = asyncio.create_task(bench.mirror.follow(bench.store))
    one = Present("n1", KEYS, bench.store, bench.mirror, bench.clock, bench.log, 0.2, lambda: inc)
    run = asyncio.create_task(one.run())
    try:
        yield one
    finally:
        for task in (follow, run):
            task.cancel()
        await asyncio.gather(follow, run, return_exceptions=True)


async def seen(bench: Bench) -> Presence | None:
    item = await bench.store.get(KEYS.presence("n1"))
    return codec.decode(Presence, item.value) if item else None


async def test_a_node_is_there_under_a_lease(bench: Bench) -> None:
    async with present(bench):
        found = await eventually(lambda: seen(bench), 5, "the presence")
        item = await bench.store.get(KEYS.presence("n1"))
    assert found.inc == 3
    assert item
    assert item.lease


@pytest.mark.parametrize("how", ["lease", "erased"])
async def test_it_is_put_again(bench: Bench, how: str) -> None:
    async with present(bench):
        await eventually(lambda: seen(bench), 5, "the presence")
        await eventually(lambda: bench.mirror.get(KEYS.presence("n1")), 5, "the presence seen")
        if how == "lease":
            bench.now += 100
            bench.store.tick()
        else:
            await bench.store.delete(KEYS.presence("n1"))
        assert await seen(bench) is None
        await eventually(lambda: seen(bench), 5, "the presence again")


async def test_without_the_nodes_name_nobody_is_there(bench: Bench) -> None:
    asked: list[int] = []

    async with present(bench) as one:
        one.inc = lambda: asked.append(1) or 0
        await eventually(lambda: len(asked) > 2, 5, "the question asked")
        await bench.store.delete(KEYS.presence("n1"))
        before = len(asked)
        await eventually(lambda: len(asked) > before + 2, 5, "the question asked again")
        assert await seen(bench) is None


def test_how_long_a_node_counts_as_there() -> None:
    assert [presence_ttl_s(interval_s) for interval_s in (0.2, 0.5, 1.0, 2.0, 60.0)] == [5.0, 5.0, 10.0, 20.0, 20.0]
