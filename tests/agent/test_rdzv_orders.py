"""Orders to a node whose torchrun meets through us: told first, killed only where it must be; holders released."""

import json
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agent_bench import Desk
from support import eventually
from torchrun_bench import Torchrun, Torchruns, alive, torchruns

from rankpulse.core import records
from rankpulse.core.records import Member, Observation
from rankpulse.store.memory import MemoryStore

pytestmark = pytest.mark.live


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(time.monotonic)


@pytest.fixture
async def start() -> AsyncIterator[Torchruns]:
    async with torchruns() as started:
        yield started


async def alone(start: Torchruns, run_dir: str) -> Torchrun:
    """One torchrun in round 1 of a run of its own."""
    one = await start(run_dir)
    one.join(nodes=(1, 1))
    await one.meet()
    return one


async def members(desk: Desk, count: int) -> list[Member]:
    await eventually(lambda: _ranks(desk, count), 10, f"{count} ranks in the beat")
    return [await desk.member(rank) for rank in range(count)]


async def _ranks(desk: Desk, count: int) -> bool:
    return len(await desk.ranks()) == count


async def order(desk: Desk, one: Torchrun, seats: list[Member], **changes: Any) -> None:
    changes = {"run_uid": one.met["run_uid"], "round": one.met["round"], "nodes": ("n1",), "grace_s": 1.0, **changes}
    await desk.order(*seats, **changes)


async def first(desk: Desk, kind: str) -> Observation:
    found = await eventually(lambda: desk.observations(kind), 15, f"an observation {kind}")
    return found[0]


async def test_torchrun_is_told_and_culprits_die_at_once(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        pids = [await one.work(rank) for rank in range(2)]
        seats = await members(desk, 2)
        os.kill(pids[0], signal.SIGSTOP)
        await order(desk, one, seats, culprits=(seats[0],), grace_s=60.0)
        again = await one.heard("again")
        assert alive(pids[0])  # not before torchrun says that it is stopping them: it would take it for a failure
        one.say(restarting={"round": 1})
        assert await one.heard("exited") == -9
        assert alive(pids[1])
        os.kill(pids[1], signal.SIGTERM)
        await one.heard("exited")
        report = await first(desk, records.ORDER_DONE)
        exits = await desk.observations(records.WORKER_EXITED)
        one.join(nodes=(1, 1))
        assert (await one.meet())["round"] == 2
    assert (again["round"], again["reason"]) == (1, "r")
    assert report.detail == {"order_id": "o1", "killed": 1}
    assert {obs.rank: obs.detail["order_id"] for obs in exits} == {0: "o1", 1: "o1"}


async def test_after_the_grace_the_others_die_too(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        pid = await one.work(0, world=1)
        seats = await members(desk, 1)
        await order(desk, one, seats, grace_s=0.5)
        await one.heard("again")
        one.say(restarting={"round": 1})
        assert await one.heard("exited") == -9
        report = await first(desk, records.ORDER_DONE)
    assert report.detail["killed"] == 1
    assert not alive(pid)


async def test_a_torchrun_that_does_not_react_is_said(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        await one.work(0, world=1)
        seats = await members(desk, 1)
        one.tell("hang_up")
        await one.heard("closed")
        await order(desk, one, seats, culprits=tuple(seats))
        assert await one.heard("exited") == -9
        report = await first(desk, records.ORDER_DONE)
    assert report.detail == {"order_id": "o1", "killed": 1, "note": "torchrun did not react within 3 s"}


async def test_an_order_for_a_round_that_is_over_is_void(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        one.join(nodes=(1, 1))
        await one.meet()
        pid = await one.work(0, world=1)
        seats = await members(desk, 1)
        await order(desk, one, seats, round=1)
        report = await first(desk, records.ORDER_DONE)
        assert alive(pid)
        assert one.silent("again")
    assert report.detail == {"order_id": "o1", "killed": 0, "note": "its round is over here"}


async def test_the_second_rung_leaves_nothing_of_the_round_alive(
    run_dir: str, store: MemoryStore, start: Torchruns
) -> None:
    """Nobody is asked, and what the monitor did not know of ends, too."""
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        pids = [await one.work(rank) for rank in range(2)]
        seats = await members(desk, 2)
        await order(desk, one, seats[:1], kind="kill", grace_s=60.0)
        assert await one.heard("exited") == -9
        assert await one.heard("exited") == -9
        report = await first(desk, records.ORDER_DONE)
        exits = await desk.observations(records.WORKER_EXITED)
        assert one.silent("again")
    assert report.detail == {"order_id": "o1", "killed": 2}
    assert {obs.pid: obs.detail["order_id"] for obs in exits} == dict.fromkeys(pids, "o1")


async def test_the_second_rung_spares_the_round_after_it(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        one.join(nodes=(1, 1))
        await one.meet()
        pid = await one.work(0, world=1)
        seats = await members(desk, 1)
        await order(desk, one, seats, kind="kill", round=1)
        report = await first(desk, records.ORDER_DONE)
        assert alive(pid)
    assert report.detail == {"order_id": "o1", "killed": 0}


async def test_the_second_rung_ends_holders_of_dead_trainers(
    run_dir: str, store: MemoryStore, start: Torchruns
) -> None:
    """A torchrun that does not listen notices that, and restarts by itself."""
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        pid = await held(desk, one)
        await members(desk, 1)
        os.kill(pid, signal.SIGKILL)
        await first(desk, records.WORKER_EXITED)
        assert one.silent("exited")
        await order(desk, one, [], kind="kill")
        assert await one.heard("exited") == -9
        report = await first(desk, records.ORDER_DONE)
    assert report.detail["killed"] == 1


async def test_an_order_given_while_the_agent_was_away(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        await one.work(0, world=1)
        seats = await members(desk, 1)
        await desk.die()
    await order(desk, one, seats, culprits=tuple(seats))
    async with Desk(run_dir, store).at_work() as desk:
        await one.connect()
        one.watch()
        await one.heard("again")
        one.say(restarting={"round": 1})
        assert await one.heard("exited") == -9
        report = await first(desk, records.ORDER_DONE)
        gone = await first(desk, records.WORKER_EXITED)
        assert len(await desk.observations(records.WORKER_JOINED)) == 1
    assert report.detail == {"order_id": "o1", "killed": 1}
    assert gone.detail["order_id"] == "o1"


# -- holders --------------------------------------------------------------------------------------------------------
async def held(desk: Desk, one: Torchrun) -> int:
    """A trainer under our holder, known to the agent as held; returns its pid."""
    pid = await one.work(0, world=1, word="hold")
    await eventually(lambda: _held(desk, pid), 15, "the holder known")
    return pid


def _held(desk: Desk, pid: int) -> bool:
    return any(holder.child[0] == pid and holder.child[1] for holder in desk.agent.together.holders.table.values())


def _holders(desk: Desk) -> int:
    return len(desk.agent.together.holders.table)


async def test_a_held_end_is_told_as_such_and_released(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        pid = await held(desk, one)
        await members(desk, 1)
        os.kill(pid, signal.SIGKILL)
        gone = await first(desk, records.WORKER_EXITED)
        assert (gone.detail["signal"], gone.detail["held"]) == (9, True)
        assert one.silent("exited")
        await order(desk, one, [], kind="release", reason="no more")
        assert await one.heard("exited") == -9
        report = await first(desk, records.ORDER_DONE)
    assert report.detail["killed"] == 0
    assert gone.run
    assert gone.run.launcher.startswith(f"{one.process.pid}.")


async def test_a_holder_that_comes_back_is_released_by_the_next_agent(
    run_dir: str, store: MemoryStore, start: Torchruns
) -> None:
    """The trainer died while no agent ran, and the order was given before its holder came back."""
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        pid = await held(desk, one)
        await members(desk, 1)
        await desk.die()
    os.kill(pid, signal.SIGKILL)
    await order(desk, one, [], kind="release", reason="no more")
    async with Desk(run_dir, store).at_work() as desk:
        gone = await first(desk, records.WORKER_EXITED)
        assert await one.heard("exited") == -9
    assert (gone.detail["held"], gone.detail["message"]) == (True, "died while no agent watched")


async def test_an_end_before_it_attached_is_told_by_its_holder(
    run_dir: str, store: MemoryStore, start: Torchruns
) -> None:
    """A crash in an import: without that the holder would wait for a verdict on what nobody knows."""
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        pid = await one.work(0, world=1, word="hold", TEST_UNATTACHED="1")
        await eventually(lambda: _held(desk, pid), 15, "the holder known")
        os.kill(pid, signal.SIGKILL)
        gone = await first(desk, records.WORKER_EXITED)
        assert one.silent("exited")
        await order(desk, one, [], kind="release", reason="no more")
        assert await one.heard("exited") == -9
    assert (gone.rank, gone.local_rank, gone.pid) == (0, 0, pid)
    assert (gone.detail["signal"], gone.detail["held"], gone.detail["unattached"]) == (9, True, True)
    assert gone.run
    assert (gone.run.run_uid, gone.run.round, gone.run.world_size) == (one.met["run_uid"], 1, 1)


async def test_an_end_after_it_attached_is_told_once(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        pid = await held(desk, one)
        await members(desk, 1)
        os.kill(pid, signal.SIGKILL)
        await first(desk, records.WORKER_EXITED)
        holder = next(iter(desk.agent.together.holders.table.values()))
        desk.agent.together.holders._report(holder)  # what it does a second later
        exits = await desk.observations(records.WORKER_EXITED)
        assert [exit_.detail.get("unattached") for exit_ in exits] == [None]


async def test_a_stopped_holder_costs_no_more_than_the_grace(
    run_dir: str, store: MemoryStore, start: Torchruns
) -> None:
    """Torchrun, which is ending it, would wait for it for torchelastic's 30 s."""
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        pid = await held(desk, one)
        seats = await members(desk, 1)
        os.kill(_parent(pid), signal.SIGSTOP)
        await order(desk, one, seats, culprits=tuple(seats))
        await one.heard("again")
        one.say(restarting={"round": 1})
        assert await one.heard("exited") == -9
        report = await first(desk, records.ORDER_DONE)
        await eventually(lambda: not _holders(desk), 10, "the holder forgotten")
    assert report.detail["killed"] == 2


async def test_holders_outlive_an_order_that_their_torchrun_did_not_hear(
    run_dir: str, store: MemoryStore, start: Torchruns
) -> None:
    """One that is stopped itself goes on one day: it must not find workers that failed."""
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        pid = await held(desk, one)
        seats = await members(desk, 1)
        await order(desk, one, seats)
        report = await first(desk, records.ORDER_DONE)
        assert (report.detail["killed"], _holders(desk)) == (1, 1)
        await eventually(lambda: not alive(pid), 10, "the end of the trainer")  # it was signalled: dying takes a moment
        assert one.silent("exited")


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_a_good_end_is_not_held(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        pid = await one.work(0, world=1, word="hold", TEST_EXIT="0")
        await members(desk, 1)
        os.kill(pid, signal.SIGUSR1)
        gone = await first(desk, records.WORKER_EXITED)
        assert await one.heard("exited") == 0
        await eventually(lambda: not _holders(desk), 10, "the holder forgotten")
    assert (gone.detail["code"], gone.detail["held"]) == (0, False)


async def test_under_a_plain_torchrun_nobody_is_held(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await start(run_dir, connect=False)
        pid = await held(desk, one)
        await members(desk, 1)
        os.kill(pid, signal.SIGKILL)
        gone = await first(desk, records.WORKER_EXITED)
        assert await one.heard("exited", 20) == -9
    assert gone.detail["held"] is False


async def test_whose_child_it_is_not_cannot_be_held(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await start(run_dir, connect=False)
        await eventually(desk.beat, 10, "a beat")
        one.tell("connect")
        one.say(op="hold", v=1, pid=os.getpid())
        assert "not your child" in await one.heard("error")
        await one.heard("closed")


# -- evidence -------------------------------------------------------------------------------------------------------
async def test_evidence_is_collected_once(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await alone(start, run_dir)
        pids = [await one.work(rank) for rank in range(2)]
        await members(desk, 2)
        os.kill(pids[1], signal.SIGSTOP)
        await eventually(lambda: _state(pids[1]) == "T", 10, "the stop of the worker")
        await order(desk, one, [], kind="collect-7")
        told = await first(desk, records.EVIDENCE)
        await order(desk, one, [], kind="collect-7")
        await order(desk, one, [], kind="collect-8", order_id="o2")
        await eventually(lambda: _count(desk, records.EVIDENCE, 2), 10, "the second evidence")
        assert len(await desk.observations(records.EVIDENCE)) == 2
    rows = json.loads(str(told.detail["rows"]))
    assert told.detail["order_id"] == "o1"
    assert told.run
    assert told.run.run_uid == one.met["run_uid"]
    assert [(row[0], row[1]) for row in rows] == [(0, pids[0]), (1, pids[1])]
    assert (rows[1][3], rows[1][6]) == ("T", "not asked: the process is stopped")
    assert rows[0][6] == "it has no worker server"


async def _count(desk: Desk, kind: str, count: int) -> bool:
    return len(await desk.observations(kind)) >= count


async def test_evidence_of_a_plain_run_is_that_of_its_seats(run_dir: str, store: MemoryStore, start: Torchruns) -> None:
    async with Desk(run_dir, store).at_work() as desk:
        one = await start(run_dir, connect=False)
        pids = [await one.work(rank) for rank in range(2)]
        seats = await members(desk, 2)
        await desk.order(seats[0], kind="collect-3", nodes=("n1", "n2"))
        told = await first(desk, records.EVIDENCE)
    assert [row[1] for row in json.loads(str(told.detail["rows"]))] == [pids[0]]
