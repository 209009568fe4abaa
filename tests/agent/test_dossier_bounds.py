"""Evidence is bounded: how often it is collected, how long it counts, what a disk or a file that hangs costs."""

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_bench import Crew
from support import eventually
from torch_bench import watched

from rankpulse.agent.aside import Aside, TooSlow
from rankpulse.agent.beside import Around, Surroundings
from rankpulse.agent.dossier import AT_ONCE, KEPT, KEPT_S, PER_MINUTE, Collected, Dossiers
from rankpulse.agent.dumps import NODE, Dumps, name_of
from rankpulse.agent.evidence import Evidence
from rankpulse.agent.folder import Folder, private
from rankpulse.agent.gathering import Gathered, Gathering
from rankpulse.agent.gpus import Gpus
from rankpulse.agent.py_spy import PySpy
from rankpulse.agent.watch import Worker
from rankpulse.core.codec import Refused
from rankpulse.core.look_evidence import Collect


class Counting(Gathering):
    """Nothing is there to be gathered; how often is counted, and it lasts until it is told to end."""

    count, broken = 0, False

    async def of(self, workers: Sequence[Worker]) -> Gathered:
        self.count += 1
        if self.broken:
            raise ZeroDivisionError("a bug")
        await self.go.wait()
        return Gathered([], Around({}))

    go: asyncio.Event


class Desk:
    """A node on a clock of its own."""

    def __init__(self, run_dir: str) -> None:
        self.now = 100.0
        self.gathering = Counting(Evidence(run_dir), Gpus("n1"), time.monotonic)
        self.gathering.go = asyncio.Event()
        self.watching = contextlib.ExitStack()
        workers = self.watching.enter_context(watched(run_dir))
        dumps = Dumps(None, 0, 1)
        self.dossiers = Dossiers("n1", workers, self.gathering, dumps, lambda: self.now, lambda: self.now)

    def ask(self, order: str) -> "asyncio.Task[Collected]":
        return asyncio.create_task(self.dossiers.of(Collect(order_id=order, run_uid="r1", round=2)))


@pytest.fixture
async def desk(run_dir: str) -> Any:
    made = Desk(run_dir)
    yield made
    await made.dossiers.close()
    made.watching.close()


async def test_one_collection_for_each_order_and_few_at_once(desk: Desk) -> None:
    asked = [desk.ask(f"c{number}") for number in range(AT_ONCE) for _ in range(5)]
    refused = desk.ask("one too many")
    with pytest.raises(Refused, match="under way already"):
        await refused
    desk.gathering.go.set()
    await asyncio.gather(*asked)
    assert desk.gathering.count == AT_ONCE
    await desk.ask("one too many")
    assert desk.gathering.count == AT_ONCE + 1


async def test_who_is_not_waited_for_any_more_is_collected_all_the_same(desk: Desk) -> None:
    """The monitor that asked has gone; the order in the store comes for the same."""
    first = desk.ask("c1")
    await eventually(lambda: desk.gathering.count, 5, "it began")
    first.cancel()
    second = desk.ask("c1")
    desk.gathering.go.set()
    assert (await second).part.order_id == "c1"
    assert desk.gathering.count == 1


async def test_what_is_old_is_collected_anew(desk: Desk) -> None:
    desk.gathering.go.set()
    await desk.ask("c1")
    desk.now += KEPT_S
    await desk.ask("c1")
    assert desk.gathering.count == 1
    desk.now += 0.1
    await desk.ask("c1")
    assert desk.gathering.count == 2


async def test_few_are_remembered(desk: Desk) -> None:
    desk.gathering.go.set()
    for number in range(3 * KEPT):
        await desk.ask(f"c{number}")
    assert len(desk.dossiers._kept) <= KEPT
    await desk.ask(f"c{3 * KEPT - 1}")
    assert desk.gathering.count == 3 * KEPT


async def test_ranks_are_left_in_peace(desk: Desk) -> None:
    """A question that was overheard can be asked again and again."""
    desk.gathering.go.set()
    for number in range(PER_MINUTE):
        await desk.ask(f"c{number}")
        desk.now += 0.1
    with pytest.raises(Refused, match="within a minute"):
        await desk.ask("one too many")
    desk.now += 60.0
    await desk.ask("one too many")
    assert desk.gathering.count == PER_MINUTE + 1


async def test_what_failed_is_tried_again(desk: Desk) -> None:
    desk.gathering.go.set()
    desk.gathering.broken = True
    with pytest.raises(ZeroDivisionError):
        await desk.ask("c1")
    desk.gathering.broken = False
    assert (await desk.ask("c1")).part.order_id == "c1"


# -- what hangs ----------------------------------------------------------------------------------------------------
class Stuck(Aside):
    """As if the kernel did not come back to whoever looks at one process."""

    pid = 0

    async def call(self, within_s: float, function: Callable[..., Any], *args: Any, at: object = None) -> Any:
        if args and args[0] == self.pid:
            await asyncio.sleep(within_s)
            raise TooSlow("it did not come back in time")
        return await super().call(within_s, function, *args, at=at)


@contextlib.contextmanager
def node(run_dir: str, folder: Folder | None, aside: Aside) -> Iterator[Dossiers]:
    with watched(run_dir) as workers:
        gathering = Gathering(Evidence(run_dir), Gpus("n1"), time.monotonic, Surroundings(aside), PySpy(lambda: None))
        yield Dossiers("n1", workers, gathering, Dumps(folder, 10, 1 << 20), lambda: 1e9, time.monotonic)


async def collected(dossiers: Dossiers, order: str) -> Any:
    began = time.monotonic()
    found = await dossiers.of(Collect(order_id=order, run_uid="r1", round=2))
    assert time.monotonic() - began < 2.0
    return found.part


@pytest.mark.live
async def test_a_process_whose_files_hang_costs_what_is_told_of_it_alone(run_dir: str, crew: Crew) -> None:
    jobs = [crew.job(rank, 3) for rank in range(3)]
    aside = Stuck("test")
    aside.pid = jobs[1].pid
    with node(run_dir, None, aside) as dossiers:
        part = await collected(dossiers, "c1")
        await dossiers.close()
    assert [rank.io_moving for rank in part.ranks] == [False, None, False]
    assert [rank.state for rank in part.ranks] == ["S", "S", "S"]
    assert f"bytes of process {jobs[1].pid}: it did not come back in time" in part.left_out


@pytest.mark.live
async def test_a_disk_that_hangs_is_told_and_delays_nobody(run_dir: str, crew: Crew, tmp_path: Path) -> None:
    """A draft that nobody reads takes nothing that is written to it."""
    crew.job()
    folder = private(str(tmp_path / "dumps"))
    stamp = "20010909T014640-000"  # of the clock above
    fifo = tmp_path / "dumps" / f"{name_of(stamp, 'c1', 0)}.tmp"
    os.mkfifo(fifo, 0o600)
    with node(run_dir, folder, Aside("test")) as dossiers:
        first = await collected(dossiers, "c1")
        assert {(dump.rank, dump.bytes) for dump in first.dumps} == {(0, 0), (NODE, 0)}
        assert first.report.disk_stuck is None
        second = await collected(dossiers, "c2")
        assert (second.dumps, second.report.disk_stuck) == ((), True)
        assert "sizes of dumps: earlier looks still hang" in second.left_out
        assert second.ranks[0].state == "S"
        with open(fifo, "rb") as reader:
            assert reader.read()
        await eventually(lambda: dossiers._disk.hanging == 0, 5, "it serves again")
        third = await collected(dossiers, "c3")
        assert third.report.disk_stuck is False
        assert all(dump.bytes for dump in third.dumps)
        await dossiers.close()


@pytest.mark.live
async def test_a_process_that_ends_meanwhile_is_told_so(run_dir: str, crew: Crew) -> None:
    """Its files in /proc vanish between two looks."""
    jobs = [crew.job(rank, 2) for rank in range(2)]
    with node(run_dir, None, Aside("test")) as dossiers:
        task = asyncio.create_task(collected(dossiers, "c1"))
        await eventually(lambda: dossiers._kept, 5, "it began")
        jobs[0].kill()
        jobs[0].reap()
        part = await task
        await dossiers.close()
    assert [(rank.rank, rank.state, rank.alive) for rank in part.ranks] == [(0, "X", False), (1, "S", True)]


async def test_a_node_without_ranks_tells_of_itself(run_dir: str) -> None:
    with node(run_dir, None, Aside("test")) as dossiers:
        part = await collected(dossiers, "c1")
        await dossiers.close()
    assert (part.ranks, part.node, part.report.node) == ((), "n1", "n1")
