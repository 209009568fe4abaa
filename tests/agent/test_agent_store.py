"""The agent and its store: outages, wiped and uncertain stores, two agents with one name, a clean stop."""

import asyncio
import os
import shutil
import time
from pathlib import Path

import pytest
from agent_bench import Crew, Desk, ask
from support import eventually

from rankpulse.agent import rundir
from rankpulse.agent.facts import Fact
from rankpulse.agent.publish import next_due
from rankpulse.core import codec, records
from rankpulse.core.records import AgentClaim
from rankpulse.store.api import Lease
from rankpulse.store.memory import MemoryStore


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


async def seq(desk: Desk) -> int:
    beat = await desk.beat()
    return beat.seq if beat else 0


async def beats_on(desk: Desk) -> None:
    before = await seq(desk)

    async def moved() -> bool:
        return await seq(desk) != before

    await eventually(moved, 10, "another beat")


async def has(desk: Desk, kind: str) -> bool:
    return bool(await desk.observations(kind))


async def test_state_and_claim_are_published(run_dir: str, store: MemoryStore) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        state = await eventually(desk.state, 10, "the state")
        claim = await desk.claim()
        await eventually(lambda: has(desk, records.AGENT_STARTED), 10, "the start told")
    assert claim
    assert (claim.inc, claim.pid) == (1, os.getpid())
    assert state.interval_s == 0.2
    assert state.capabilities["slots"] == "ok"
    assert state.host_facts["cores"] == os.cpu_count()


async def test_a_clean_stop_is_told(run_dir: str, store: MemoryStore) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.beat, 10, "a beat")
        desk.stop.set()
        assert await asyncio.wait_for(desk.task, 5) == 0
    assert await has(desk, records.AGENT_STOPPING)


async def test_a_clean_stop_while_the_store_is_away(run_dir: str, store: MemoryStore) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.beat, 10, "a beat")
        store.outage(True)
        desk.stop.set()
        assert await asyncio.wait_for(desk.task, 5) == 0
    store.outage(False)
    assert not await has(desk, records.AGENT_STOPPING)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(lambda: has(desk, records.AGENT_STOPPING), 10, "what the first could not send")


@pytest.mark.live
async def test_nothing_is_lost_over_an_outage(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    job = crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        store.outage(True)
        job.kill()
        spool = Path(run_dir) / "spool"
        await eventually(lambda: list(spool.glob("0*.json")), 10, "the exit in the spool")
        await eventually(lambda: not desk.agent.publisher.connected, 10, "the outage noticed")
        store.outage(False)
        await eventually(lambda: has(desk, records.WORKER_EXITED), 10, "the exit told")
        await beats_on(desk)
        await eventually(lambda: not list(spool.glob("0*.json")), 10, "an empty spool")
    assert len([line for line in desk.lines.texts if line.startswith("beats: ")]) == 2  # once lost, once back


@pytest.mark.live
async def test_a_store_that_is_away_at_the_start(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    store.outage(True)
    job = crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(lambda: _made(desk, records.WORKER_JOINED), 10, "the worker seen")
        job.kill()
        await eventually(lambda: _made(desk, records.WORKER_EXITED), 10, "the exit seen")
        store.outage(False)
        await eventually(lambda: has(desk, records.WORKER_EXITED), 10, "the exit told")
        found = await desk.observations()
    assert [(obs.inc, obs.seq) for obs in found][:3] == [(1, 1), (1, 2), (1, 3)]
    kinds = [obs.kind for obs in found]
    assert kinds[:3] == [records.AGENT_STARTED, records.WORKER_JOINED, records.WORKER_EXITED]


def _made(desk: Desk, kind: str) -> bool:
    """Whether the agent has made such an observation, sent or not."""
    outbox = getattr(desk.agent, "outbox", None)
    return outbox is not None and outbox.counts[kind] > 0


async def test_a_wiped_store_is_claimed_anew(run_dir: str, store: MemoryStore) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.state, 10, "the state")
        await store.delete_prefix(desk.keys.prefix)
        claim = await eventually(desk.claim, 10, "a new claim")
        await eventually(desk.state, 10, "the state again")
        await eventually(desk.beat, 10, "a beat again")
        beat = await desk.beat()
    assert beat
    assert (claim.inc, beat.inc) == (2, 2)


async def test_a_lost_lease_is_replaced(run_dir: str, store: MemoryStore) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.beat, 10, "a beat")
        item = await store.get(desk.keys.beat("n1"))
        assert item
        assert item.lease
        await store.revoke(Lease(item.lease, 30.0))
        await eventually(desk.beat, 10, "a beat under another lease")
        await beats_on(desk)


@pytest.mark.parametrize("applied", [True, False])
async def test_uncertain_writes(run_dir: str, store: MemoryStore, applied: bool) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(lambda: has(desk, records.AGENT_STARTED), 10, "the start told")
        for _ in range(5):
            store.uncertain_next_write(applied)
            await beats_on(desk)
    assert len(await desk.observations()) == 2  # started, stopping: each once


async def test_the_second_agent_with_a_name_is_refused(run_dir: str, store: MemoryStore, tmp_path: Path) -> None:
    async with Desk(run_dir, store).at_work() as first:
        await eventually(first.beat, 10, "a beat")
        async with Desk(str(tmp_path), store).at_work() as second:
            assert await asyncio.wait_for(second.task, 20) == 3
        await beats_on(first)
        claim = await first.claim()
    assert claim
    assert claim.inc == 1
    assert any("another agent named n1 runs on host" in line for line in second.lines.texts)


async def test_an_agent_whose_name_was_taken_stops(run_dir: str, store: MemoryStore) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.beat, 10, "a beat")
        taker = AgentClaim(node="n1", inc=9, token="t", host="elsewhere", pid=1, boot_id="b", at=0.0)
        await store.put(desk.keys.claim("n1"), codec.encode(taker))
        assert await asyncio.wait_for(desk.task, 10) == 3
    assert any("elsewhere" in line for line in desk.lines.texts)


async def test_one_agent_per_run_directory(run_dir: str, store: MemoryStore) -> None:
    async with Desk(run_dir, store).at_work() as first:
        await eventually(first.beat, 10, "a beat")
        async with Desk(run_dir, store, node="n2").at_work() as second:
            assert await asyncio.wait_for(second.task, 5) == 3
    assert any(f"pid {os.getpid()}" in line and "run_dir" in line for line in second.lines.texts)


def _lost(desk: Desk) -> bool:
    return any("removed or replaced" in line for line in desk.lines.texts)


@pytest.mark.parametrize("what", ["all", "lock", "spool too"])
async def test_a_run_directory_that_was_removed_is_made_anew(run_dir: str, store: MemoryStore, what: str) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(lambda: has(desk, records.AGENT_STARTED), 10, "the start told")
        store.outage(True)
        desk.agent.outbox.add(Fact("waits"))
        if what == "lock":
            (Path(run_dir) / "agent.lock").unlink()
        else:
            Path(run_dir).rename(run_dir + "-away") if what == "all" else shutil.rmtree(run_dir)
        await eventually(lambda: _lost(desk), 10, "the loss said")
        await eventually(lambda: list((Path(run_dir) / "spool").glob("0*.json")), 10, "what waits in the spool")
        assert "node" in await ask(run_dir, b'{"op":"ping"}\n')
        async with Desk(run_dir, store, node="n2").at_work() as second:
            assert await asyncio.wait_for(second.task, 5) == 3
        store.outage(False)
        await eventually(lambda: has(desk, "waits"), 10, "what waited told")
    shutil.rmtree(run_dir + "-away", ignore_errors=True)


async def test_who_finds_its_directory_taken_stops_and_leaves_it_alone(run_dir: str, store: MemoryStore) -> None:
    async with Desk(run_dir, store).at_work() as first:
        await eventually(first.beat, 10, "a beat")
        Path(run_dir).rename(run_dir + "-away")
        Path(run_dir).mkdir()
        Path(run_dir).chmod(0o1777)
        lock = rundir.lock(run_dir)
        (Path(run_dir) / "agent.sock").write_text("another's")
        assert await asyncio.wait_for(first.task, 10) == 3
    os.close(lock)
    assert (Path(run_dir) / "agent.sock").exists()
    assert any("serves" in line and "run_dir" in line for line in first.lines.texts)
    shutil.rmtree(run_dir + "-away")


async def test_a_run_directory_that_cannot_be(store: MemoryStore, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with Desk(str(tmp_path / "file" / "x"), store).at_work() as desk:
        assert await asyncio.wait_for(desk.task, 5) == 2
    assert any("run_dir" in line for line in desk.lines.texts)


async def test_a_spool_that_cannot_be_used_costs_the_spool_only(run_dir: str, store: MemoryStore) -> None:
    (Path(run_dir) / "spool").write_text("")
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(lambda: has(desk, records.AGENT_STARTED), 10, "the start told")
        state = await eventually(desk.state, 10, "the state")
    assert "memory only" in state.capabilities["spool"]


@pytest.mark.parametrize(
    ("now", "due"), [(0.1, 1.0), (1.05, 1.0), (1.95, 1.0), (2.5, 2.0), (7.9, 7.0)], ids=lambda value: str(value)
)
def test_the_schedule_is_absolute_and_has_no_backlog(now: float, due: float) -> None:
    assert next_due(0.0, now, 1.0) == due
