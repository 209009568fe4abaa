"""A job asks its agent how often to save: of its own run alone, and the store is asked seldom."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from agent_bench import Crew, Desk, ask
from support import eventually
from torchrun_bench import Torchruns, torchruns

from rankpulse.agent.advice import EVERY_S, SaveAdvice
from rankpulse.agent.sock import Garbage, Peer
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import RunAdvice, RunRow, SaveNow
from rankpulse.store.memory import MemoryStore

KEYS = Keys("t")


def advice(uid: str, interval_s: float) -> RunAdvice:
    numbers = dict.fromkeys(("low_s", "high_s", "mtbf_s", "mtbf_low_s", "mtbf_high_s", "recover_s", "lost_share"), 1.0)
    return RunAdvice(
        run_uid=uid, at=5.0, interval_s=interval_s, save_s=1.0, saves=1, failures=0, why="", **numbers
    )  # fmt: skip


class Bench:
    """`SaveAdvice` over workers that the test names, on a clock of its own."""

    def __init__(self) -> None:
        self.now, self.said, self.reads = 100.0, [], 0
        self.memory = MemoryStore(lambda: self.now)
        self.table: dict[tuple[int, int], Any] = {}
        log = SimpleNamespace(change=lambda topic, level, text: self.said.append(text))
        workers: Any = SimpleNamespace(table=self.table)
        self.advice = SaveAdvice(workers, KEYS, self, log, lambda: self.now)  # type: ignore[arg-type]

    async def get(self, key: str) -> Any:
        self.reads += 1
        return await self.memory.get(key)

    def worker(self, pid: int, uid: str) -> None:
        run = RunRow("train", "m", "1.1", 2, True, uid, 3)
        self.table[pid, 7] = SimpleNamespace(who=SimpleNamespace(run=run, rank=0, local_rank=0))

    async def asks(self, pid: int) -> Any:
        return (await self.told(pid))["advice"]

    async def told(self, pid: int) -> Any:
        told: list[Any] = []
        line: Any = SimpleNamespace(send=told.append)
        await self.advice.session(line, Peer(pid, 7, 1000), os.open("/dev/null", os.O_RDONLY), {"run_uid": "forged"})
        [message] = told
        return message


async def test_a_job_hears_of_its_own_run() -> None:
    bench = Bench()
    bench.worker(10, "u-1")
    bench.worker(11, "u-2")
    bench.worker(12, "")
    await bench.memory.put(KEYS.advice("u-1"), codec.encode(advice("u-1", 60.0)))
    assert await bench.asks(10) == {"interval_s": 60.0, "at": 5.0}
    assert await bench.asks(11) is None, "there is none"
    assert await bench.asks(12) is None, "its run has no name that an agent knows"
    with pytest.raises(Garbage, match="not watched"):
        await bench.asks(13)


async def test_the_store_is_read_seldom_and_a_new_word_is_heard_soon() -> None:
    bench = Bench()
    bench.worker(10, "u-1")
    for number in range(100):
        await bench.memory.put(KEYS.advice("u-1"), codec.encode(advice("u-1", 60.0 + number)))
        await bench.asks(10)
    assert bench.reads == 2, "the advice, and whether to save now"
    bench.now += EVERY_S
    assert (await bench.asks(10))["interval_s"] == 159.0
    await bench.memory.delete(KEYS.advice("u-1"))
    bench.now += EVERY_S
    assert await bench.asks(10) is None


async def test_a_wish_of_a_newer_monitor_costs_no_word_on_the_interval() -> None:
    bench = Bench()
    bench.worker(10, "u-1")
    await bench.memory.put(KEYS.advice("u-1"), codec.encode(advice("u-1", 60.0)))
    await bench.memory.put(KEYS.save_now("u-1"), b'{"v": 99, "run_uid": 3}')
    assert await bench.told(10) == {"advice": {"interval_s": 60.0, "at": 5.0}}
    assert "whether to save now cannot be read" in bench.said[0]


async def test_without_the_store_the_last_word_stands_and_no_word_is_told_from_none() -> None:
    bench = Bench()
    bench.worker(10, "u-1")
    await bench.memory.put(KEYS.advice("u-1"), codec.encode(advice("u-1", 60.0)))
    bench.memory.outage(True)
    with pytest.raises(Garbage, match="does not tell"):
        await bench.asks(10)
    bench.memory.outage(False)
    bench.now += EVERY_S
    assert (await bench.asks(10))["interval_s"] == 60.0
    bench.memory.outage(True)
    bench.now += EVERY_S
    assert (await bench.asks(10))["interval_s"] == 60.0
    assert bench.said, "and that is said"
    bench.memory.outage(False)
    await bench.memory.put(KEYS.advice("u-1"), b'{"v":1}')
    bench.now += EVERY_S
    assert (await bench.asks(10))["interval_s"] == 60.0, "what is no advice is none"


async def test_a_store_that_hangs_is_not_waited_for_for_long() -> None:
    bench = Bench()
    bench.worker(10, "u-1")

    async def hangs(_key: str) -> Any:
        await asyncio.Event().wait()

    bench.get = hangs  # type: ignore[method-assign]
    async with asyncio.timeout(10):
        with pytest.raises(Garbage, match="does not tell"):
            await bench.asks(10)


async def test_runs_that_are_gone_are_forgotten() -> None:
    bench = Bench()
    for pid in range(50):
        bench.worker(pid, f"u-{pid}")
        await bench.asks(pid)
        bench.table.clear()
        bench.now += EVERY_S
    assert len(bench.advice._words) <= 1


async def test_a_checkpoint_that_is_waited_for_is_told_of_to_its_round_alone() -> None:
    bench = Bench()
    bench.worker(10, "u-1")
    asked = SaveNow(run_uid="u-1", round=3, incident="i0001-0004", at=5.0, why="n1 to be left")
    await bench.memory.put(KEYS.save_now("u-1"), codec.encode(asked))
    assert await bench.told(10) == {"advice": None, "save_now": "3-i0001-0004"}
    await bench.memory.put(KEYS.save_now("u-1"), codec.encode(msgspec.structs.replace(asked, round=2)))
    bench.now += EVERY_S
    assert await bench.told(10) == {"advice": None}, "its own round is the third"


# --- with real processes


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


@pytest.fixture
async def start() -> AsyncIterator[Torchruns]:
    async with torchruns() as started:
        yield started


@pytest.mark.live
async def test_a_trainer_follows_what_stands_in_the_store(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await start(run_dir)
        one.join(nodes=(1, 1))
        met = await one.meet()
        key = desk.keys.advice(met["run_uid"])
        await store.put(key, codec.encode(advice(met["run_uid"], 777.0)))
        pid = await one.work(0, world=1, TEST_ASKS="yes")

        async def followed() -> list[int]:
            beat = await desk.beat()
            return [row.step for row in (beat.ranks if beat else ()) if (row.pid, row.step) == (pid, 777)]

        await eventually(followed, 20, "a step that says what the trainer heard")


@pytest.mark.live
async def test_who_is_no_worker_is_told_so(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        assert "error" in await ask(run_dir, b'{"op":"advice","v":1}\n')
        assert "error" in await ask(run_dir, b'{"op":"advice","v":2}\n')
        assert "node" in await ask(run_dir, b'{"op":"ping"}\n')
