"""What a job tells of its checkpoints: by the kernel's word, whatever it says and however often."""

import time
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from agent_bench import Crew, Desk, ask
from support import eventually
from torchrun_bench import Torchruns, torchruns

from rankpulse.agent import checkpoints, messages
from rankpulse.agent.checkpoints import Bucket, Checkpoints
from rankpulse.agent.facts import Fact
from rankpulse.agent.sock import Garbage, Peer
from rankpulse.core import records
from rankpulse.core.records import RunRow
from rankpulse.store.memory import MemoryStore

RUN = RunRow("train", "m", "1.1", 2, True, "u-1", 3)


class Bench:
    """`Checkpoints` over workers that the test names, on a clock of its own."""

    def __init__(self) -> None:
        self.now, self.facts, self.said = 100.0, [], []
        self.table: dict[tuple[int, int], Any] = {}
        log = SimpleNamespace(change=lambda topic, level, text: self.said.append(text))
        workers: Any = SimpleNamespace(table=self.table)
        self.news = Checkpoints(workers, self.facts.append, log, lambda: self.now)  # type: ignore[arg-type]

    def worker(self, pid: int, rank: int = 0) -> None:
        self.table[pid, 7] = SimpleNamespace(who=SimpleNamespace(run=RUN, rank=rank, local_rank=rank))

    def says(self, pid: int = 10, uid: int = 1000, **said: Any) -> None:
        self.news._hear(Peer(pid, 7, uid), messages.news({"op": "checkpoint", "v": 1, **said}))

    def passes(self, seconds: float) -> None:
        """What is due is done, as the loop would."""
        self.now += seconds
        for teller in list(self.news._tellers.values()):
            self.news._tell(teller)

    def told(self) -> list[tuple[object, object, object]]:
        return [(fact.detail["event"], fact.detail["step"], fact.detail["times"]) for fact in self.facts]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    made.news.close()


async def test_a_word_becomes_an_observation_of_the_run_that_the_agent_knows(bench: Bench) -> None:
    bench.worker(10, rank=1)
    bench.says(event="saved", step=5, bytes=9, shards=2, kind="sharded", save_s=1, verified=True, run_uid="forged")
    [fact] = bench.facts
    assert fact == Fact(records.CHECKPOINT, RUN, 1, 1, 10, 7, fact.detail)
    assert fact.detail == {
        "event": "saved", "step": 5, "bytes": 9, "shards": 2, "kind": "sharded", "save_s": 1.0, "verified": True,
        "verify_s": 0.0, "oldest": -1, "local": False, "times": 1,
    }  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"event": "sung", "step": 1},
        {"event": "saved"},
        {"event": "saved", "step": -1},
        {"event": "saved", "step": 2**60},
        {"event": "saved", "step": "5"},
        {"event": "saved", "step": 5, "bytes": -1},
        {"event": "saved", "step": 5, "save_s": -0.5},
        {"event": "saved", "step": 5, "save_s": [1]},
        {"event": "saved", "step": 5, "kind": "\x1b[2J"},
        {"event": "saved", "step": 5, "kind": "x" * 1000},
        {"event": ["saved"], "step": 5},
        {"event": "refused", "step": 5, "reason": {"a": 1}},
    ],
)
async def test_garbage_is_told_what_is_wrong_and_becomes_nothing(bench: Bench, said: dict[str, Any]) -> None:
    bench.worker(10)
    with pytest.raises(Garbage, match="checkpoint: "):
        bench.says(**said)
    assert bench.facts == []


async def test_reasons_steer_no_terminal(bench: Bench) -> None:
    bench.worker(10)
    bench.says(event="refused", step=-1, reason="bad\x1b[2J\n" + "x" * 4000)
    reason = bench.facts[0].detail["reason"]
    assert reason.startswith("bad\\x1b[2J\\x0a")
    assert len(reason) == 300


async def test_a_flood_costs_a_few_and_nothing_is_missing_from_the_count(bench: Bench) -> None:
    bench.worker(10)
    for step in range(1000):
        bench.says(event="saved", step=step)
    assert len(bench.facts) == checkpoints.BURST
    bench.says(event="save_failed", step=1000, reason="disk full")
    bench.passes(checkpoints.EVERY_S)
    assert bench.told()[-1] == ("saved", 999, 1000 - checkpoints.BURST)
    bench.passes(checkpoints.EVERY_S)
    assert bench.told()[-1] == ("save_failed", 1000, 1)
    for _ in range(60):
        bench.says(event="saved", step=2000)
        bench.passes(1.0)
    assert len(bench.facts) <= checkpoints.BURST + 2 + 60 / checkpoints.EVERY_S


async def test_a_user_with_many_processes_is_bounded_as_well(bench: Bench) -> None:
    for pid in range(100, 300):
        bench.worker(pid)
        for step in range(5):
            bench.says(pid, event="saved", step=step)
    assert len(bench.facts) == checkpoints.USER_BURST
    bench.worker(10)
    bench.says(10, uid=1001, event="saved", step=7)
    assert bench.told()[-1] == ("saved", 7, 1), "another user is not held up"


async def test_what_a_process_said_last_is_told_when_it_ends(bench: Bench) -> None:
    """Its successor loads what it saved: that must not be told the other way round."""
    bench.worker(10)
    for step in range(20):
        bench.says(event="saved", step=step)
    del bench.table[10, 7]
    bench.news.look()
    assert bench.told()[-1][1] == 19
    assert bench.news._tellers == {}


async def test_who_speaks_before_it_is_known_is_waited_for(bench: Bench) -> None:
    bench.says(event="refused", step=9, reason="r")
    bench.says(event="loaded", step=8)
    assert bench.facts == []
    bench.worker(10)
    bench.news.look()
    assert [event for event, *_ in bench.told()] == ["refused", "loaded"]


async def test_a_stranger_is_forgotten_and_named_once(bench: Bench) -> None:
    bench.says(event="saved", step=9)
    bench.passes(checkpoints.PATIENCE_S + 1)
    assert (bench.facts, bench.news._tellers) == ([], {})
    assert bench.said == ["process 10 tells of its checkpoints and is not watched: it must call attach() first"]


async def test_strangers_are_bounded(bench: Bench) -> None:
    for pid in range(100, 100 + checkpoints.STRANGERS_MAX):
        bench.says(pid, event="saved", step=9)
    with pytest.raises(Garbage, match="too many processes"):
        bench.says(99, event="saved", step=9)
    bench.says(98, uid=1001, event="saved", step=9)


async def test_what_is_held_back_is_told_when_the_agent_ends(bench: Bench) -> None:
    bench.worker(10)
    for step in range(20):
        bench.says(event="saved", step=step)
    bench.news.close()
    assert bench.told()[-1] == ("saved", 19, 20 - checkpoints.BURST)


def test_a_bucket() -> None:
    bucket, now = Bucket(2, 10.0), 50.0
    assert bucket.full(now)
    for _ in range(2):
        assert bucket.wait_s(now) == 0
        bucket.take()
    assert bucket.wait_s(now) == 10.0
    assert bucket.wait_s(now + 4) == pytest.approx(6.0)
    assert not bucket.full(now + 15)
    assert bucket.full(now + 20)


# -- the whole agent ------------------------------------------------------------------------------------------------
@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


@pytest.fixture
async def start() -> AsyncIterator[Torchruns]:
    async with torchruns() as started:
        yield started


async def first(desk: Desk) -> records.Observation:
    found = await eventually(lambda: desk.observations(records.CHECKPOINT), 10, "an observation about a checkpoint")
    return found[0]


@pytest.mark.live
async def test_a_worker_tells_and_closes_at_once(
    run_dir: str, store: MemoryStore, start: Torchruns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also before the agent has found its slot; run and round are those of its torchrun."""
    async with Desk(run_dir, store).at_work() as desk:
        one = await start(run_dir)
        one.join(nodes=(1, 1))
        met = await one.meet()
        pid = await one.work(0, world=1, TEST_TELLS="saved 41")
        told = await first(desk)
    assert (told.pid, told.rank, told.detail["event"], told.detail["step"]) == (pid, 0, "saved", 41)
    assert told.run
    assert (told.run.run_uid, told.run.round) == (met["run_uid"], 1)


@pytest.mark.live
async def test_who_is_no_worker_gets_an_answer_and_makes_no_observation(
    run_dir: str, crew: Crew, store: MemoryStore
) -> None:
    """This very process speaks."""
    crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        assert "error" in await ask(run_dir, b'{"op":"checkpoint","v":1}\n')
        assert "error" in await ask(run_dir, b'{"op":"checkpoint","v":2,"event":"saved","step":1}\n')
        assert "error" in await ask(run_dir, b'{"op":"checkpoint","v":1,"event":"saved","step":1e999}\n')
        assert await ask(run_dir, b'{"op":"checkpoint","v":1,"event":"saved","step":1}\n') == {"ok": {}}
        assert "node" in await ask(run_dir, b'{"op":"ping"}\n')
        assert await desk.observations(records.CHECKPOINT) == []
