"""Virtual time: events in order, programs that can be paused and killed, a store that can be cut off."""

import asyncio
from random import Random

import pytest

from rankpulse.drills.sim.clockwork import Heap, Program, finish
from rankpulse.drills.sim.etcd import Etcd
from rankpulse.drills.sim.line import Line
from rankpulse.store.api import Changes, Lost, StoreError, Uncertain, Unreachable


def live(heap: Heap, until: float) -> None:
    while heap.step(until):
        pass


def program(heap: Heap) -> Program:
    return Program(heap)  # type: ignore[abstract]


def test_events_of_one_instant_happen_in_the_order_in_which_they_were_asked_for() -> None:
    heap, seen = Heap(), list[str]()
    heap.at(2.0, seen.append, "c")
    heap.at(1.0, seen.append, "a")
    heap.at(1.0, seen.append, "b")
    live(heap, 10.0)
    assert seen == ["a", "b", "c"]
    assert heap.now == 10.0


def test_a_program_sleeps_in_virtual_time_and_times_out() -> None:
    heap, told = Heap(), list[tuple[str, float]]()

    async def part() -> None:
        await asyncio.sleep(5.0)
        told.append(("woke", heap.now))
        try:
            async with asyncio.timeout(2.0):
                await asyncio.Event().wait()
        except TimeoutError:
            told.append(("late", heap.now))

    program(heap).start([part()])
    live(heap, 100.0)
    assert told == [("woke", 5.0), ("late", 7.0)]


def test_what_reaches_a_paused_program_waits_and_a_killed_one_never_hears_of_it() -> None:
    heap, told = Heap(), list[float]()

    async def ticks() -> None:
        while True:
            await asyncio.sleep(1.0)
            told.append(heap.now)

    one = program(heap)
    one.start([ticks()])
    heap.at(2.5, one.pause)
    heap.at(10.2, one.resume)
    heap.at(12.5, one.kill)
    live(heap, 30.0)
    one.close()
    assert told == [1.0, 2.0, 10.2, 11.2, 12.2]


def test_a_part_that_fails_is_remembered() -> None:
    async def part() -> None:
        await asyncio.sleep(1.0)
        raise KeyError("oops")

    heap = Heap()
    one = program(heap)
    one.start([part()])
    live(heap, 2.0)
    assert isinstance(one.failure, KeyError)


def test_a_coroutine_that_waits_cannot_be_finished_at_once() -> None:
    with pytest.raises(RuntimeError):
        finish(asyncio.sleep(0))


class Wire:
    """A store and one client, on a heap of their own."""

    def __init__(self) -> None:
        self.heap, self.cut = Heap(), False
        self.etcd = Etcd(self.heap, Random(1), lambda _end: not self.cut, lambda _key: False)
        self.program = program(self.heap)
        self.line = Line(self.program, self.etcd, "m1")
        self.outcomes: list[object] = []

    async def put(self, at: float) -> None:
        await asyncio.sleep(at)
        try:
            self.outcomes.append(await self.line.put("/k", b"v"))
        except StoreError as error:
            self.outcomes.append(type(error))


def test_calls_take_time_and_end_at_their_deadline_when_nothing_gets_through() -> None:
    wire = Wire()
    wire.program.start([wire.put(1.0), wire.put(5.0)])
    wire.heap.at(4.0, setattr, wire, "cut", True)
    live(wire.heap, 20.0)
    assert wire.outcomes[0] == 2
    assert wire.outcomes[1] is Uncertain


def test_a_store_that_is_gone_refuses_and_one_without_leader_makes_wait() -> None:
    wire = Wire()
    wire.program.start([wire.put(1.0), wire.put(11.0)])
    wire.etcd.killed = True
    wire.heap.at(5.0, setattr, wire.etcd, "killed", False)
    wire.heap.at(10.0, setattr, wire.etcd, "electing_until", 12.5)
    live(wire.heap, 12.4)
    assert wire.outcomes == [Unreachable]
    live(wire.heap, 20.0)
    assert wire.outcomes == [Unreachable, 2]


def test_a_watch_tells_what_is_new_in_order_also_what_it_missed_while_it_was_cut_off() -> None:
    wire, seen = Wire(), list[object]()

    async def follow() -> None:
        async for sight in wire.line.follow("/"):
            seen.append(sight)

    wire.program.start([follow(), wire.put(1.0), wire.put(2.0)])
    wire.heap.at(3.0, setattr, wire, "cut", True)
    wire.heap.at(4.0, finish, wire.etcd.memory.put("/k", b"other"))
    wire.heap.at(4.0, wire.etcd.announce)
    wire.heap.at(20.0, setattr, wire, "cut", False)
    live(wire.heap, 30.0)
    told = [change.value for sight in seen if isinstance(sight, Changes) for change in sight.changes]
    assert told == [b"v", b"v", b"other"]
    assert sum(isinstance(sight, Lost) for sight in seen) == 1
