"""Orders kill exactly the processes they name, once, and no others."""

import os
import time

import pytest
from agent_bench import Crew, Desk
from support import eventually

from rankpulse.core import records
from rankpulse.core.records import Member
from rankpulse.store.memory import MemoryStore

pytestmark = pytest.mark.live


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


async def done(desk: Desk) -> list[records.Observation]:
    return await desk.observations(records.ORDER_DONE)


async def two(desk: Desk) -> bool:
    return len(await desk.ranks()) == 2


async def test_the_named_process_dies_and_the_exit_says_why(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    victim, bystander = crew.job(rank=0), crew.job(rank=1)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(lambda: two(desk), 10, "two ranks in the beat")
        await desk.order(await desk.member(0))
        (report,) = await eventually(lambda: done(desk), 10, "the order reported")
        (gone,) = await eventually(lambda: desk.observations(records.WORKER_EXITED), 10, "the exit told")
        assert victim.reap() == -9
        assert bystander.alive
    assert report.detail == {"order_id": "o1", "killed": 1}
    assert (gone.detail["order_id"], gone.detail["signal"], gone.rank) == ("o1", 9, 0)


async def test_a_stopped_process_dies_too(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    job = crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        job.kill(19)
        await desk.order(await desk.member(0))
        await eventually(lambda: desk.observations(records.WORKER_EXITED), 10, "the exit told")
        assert job.reap() == -9


@pytest.mark.parametrize("what", ["start", "pid", "rank", "run_id", "node", "kind"])
async def test_whoever_is_not_exactly_meant_lives(run_dir: str, crew: Crew, store: MemoryStore, what: str) -> None:
    job = crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        rank, node, local, pid, start = _astuple(await desk.member(0))
        wrong = {
            "start": Member(rank, node, local, pid, start + 1),
            "pid": Member(rank, node, local, os.getpid(), start),
            "rank": Member(rank + 1, node, local, pid, start),
            "node": Member(rank, "n2", local, pid, start),
        }
        member = wrong.get(what, Member(rank, node, local, pid, start))
        changes = {"run_id": {"run_id": "other"}, "kind": {"kind": "dance"}}.get(what, {})
        await desk.order(member, **changes)
        # an order that names nobody of ours is the proof that the one before it has been seen
        await desk.order(Member(7, "n1", 7, 1, 1), order_id="o2", run_uid="later")
        await eventually(lambda: _reported(desk, "o2"), 10, "the second order reported")
        reported = {obs.detail["order_id"]: obs.detail["killed"] for obs in await done(desk)}
        assert job.alive
    assert reported == ({"o2": 0} if what in ("node", "kind") else {"o1": 0, "o2": 0})


def _astuple(member: Member) -> tuple[int, str, int, int, int]:
    return member.rank, member.node, member.local_rank, member.pid, member.start


async def _reported(desk: Desk, order_id: str) -> bool:
    return any(obs.detail["order_id"] == order_id for obs in await done(desk))


async def test_an_order_given_while_the_agent_was_away_is_carried_out_once(
    run_dir: str, crew: Crew, store: MemoryStore
) -> None:
    job = crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        member = await desk.member(0)
        await desk.die()
    await desk.order(member)
    await store.put(desk.keys.orders() + "x/000000/restart", b"\xff")
    async with Desk(run_dir, store).at_work() as desk:
        (report,) = await eventually(lambda: done(desk), 10, "the order reported")
        assert job.reap() == -9
    assert report.detail["killed"] == 1
    async with Desk(run_dir, store).at_work() as desk:
        await desk.order(Member(7, "n1", 7, 1, 1), order_id="o2", run_uid="later")
        await eventually(lambda: _reported(desk, "o2"), 10, "the second order reported")
        assert len(await done(desk)) == 2


async def test_the_next_agent_knows_that_an_order_killed(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    """Killed at our order by an agent that did not live to tell."""
    job = crew.job()
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        member = await desk.member(0)
        worker = desk.agent.workers.table[member.pid, member.start]
        worker.order_id = "o1"
        await desk.die()
    job.kill()
    async with Desk(run_dir, store).at_work() as desk:
        (gone,) = await eventually(lambda: desk.observations(records.WORKER_EXITED), 10, "the exit told")
    assert gone.detail["order_id"] == "o1"


async def test_an_order_with_an_old_id_is_another_order(run_dir: str, crew: Crew, store: MemoryStore) -> None:
    """A store that was emptied, or another one: ids begin anew."""
    first = crew.job(rank=0)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        await desk.order(await desk.member(0))
        await eventually(lambda: done(desk), 10, "the order reported")
        assert first.reap() == -9
    await store.delete_prefix(desk.keys.prefix)
    second = crew.job(rank=0)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(desk.ranks, 10, "ranks in the beat")
        await desk.order(await desk.member(0))
        (report,) = await eventually(lambda: done(desk), 10, "the order reported")
        assert second.reap() == -9
    assert report.detail == {"order_id": "o1", "killed": 1}
