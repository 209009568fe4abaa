"""A real job over our own rendezvous, with the worker holder and no restart to burn: what is promised, once each.

One job for most of the file: that it lives through everything in a row is part of what is shown.
"""

import asyncio
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.core.fleet import ROUNDS_KEPT
from rankpulse.drills.job import Job
from rankpulse.drills.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]


class Joint:
    """A stage whose monitor is armed, and a job in the middle of training."""

    def __init__(self, stage: Stage, job: Job) -> None:
        self.stage, self.job, self.witness = stage, job, stage.witness

    @property
    def state(self) -> r.RunState:
        state = self.witness.run(self.job.name)
        assert state is not None
        return state

    @property
    def roster(self) -> r.Roster:
        roster = self.witness.roster(self.state.run_uid)
        assert roster is not None
        return roster

    def lowest_step(self) -> int:
        steps = self.witness.steps(self.job.name)
        return min(steps.values()) if len(steps) == self.job.world_size else -1

    async def until(self, found: Callable[[], Any], timeout_s: float, what: str) -> Any:
        return await self.witness.until(found, timeout_s, f"{what}\n{self.stage.monitor.tail()}\n{self.job.tail()}")

    async def trains_on(self, steps: int = 25) -> None:
        await self.until(lambda: self.lowest_step() >= 0, 60.0, "all ranks")
        goal = self.lowest_step() + steps
        await self.until(lambda: self.lowest_step() >= goal, 90.0, f"step {goal}")

    async def closed(self, since: float, what: str, timeout_s: float = 90.0) -> r.Incident:
        def over() -> bool:
            found = self.witness.incidents(since)
            return bool(found) and all(incident.state == "closed" for incident in found)

        await self.until(over, timeout_s, what)
        [incident] = self.witness.incidents(since)
        return incident

    def newest(self) -> list[dict[str, Any]]:
        return self.job.events("resumed")[-self.job.world_size :]

    async def ask(self, kind: str, id_: str, **about: str) -> None:
        about = {"run_uid": "", **about}
        request = r.Request(id=id_, kind=kind, author="test", reason="drill", at=time.time(), **about)
        await self.stage.store.put(self.stage.keys.request(id_), codec.encode(request))


async def armed(stage: Stage) -> None:
    record = r.Arm(armed=True, author="test", reason="drill", at=time.time())
    await stage.store.put(stage.keys.arm(), codec.encode(record))


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def joint(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Joint]:
    directory = tmp_path_factory.mktemp("joint")
    async with Stage(directory) as stage:
        await armed(stage)
        job = Job(directory / "job", stage.run_dirs, name="joint", backend="rankpulse", hold=True, max_restarts=0)
        try:
            joint = Joint(stage, job)
            job.start()
            await joint.until(lambda: joint.lowest_step() >= 25, 120, "a job that trains")
            yield joint
        finally:
            await asyncio.to_thread(job.end)


def same_round_everywhere(joint: Joint, expected: int) -> None:
    newest = joint.newest()
    assert {event["round"] for event in newest} == {expected}
    assert {event["burned"] for event in newest} == {0}, "no restart of torchelastic may be burned"
    assert len({event["step"] for event in newest}) == 1, "all ranks go on from the same checkpoint"


async def test_a_crash_burns_nothing_and_one_order_restarts_everybody(joint: Joint) -> None:
    before, roster, since = joint.state.round, joint.roster, time.time()
    victim = random.choice(roster.members)
    os.kill(victim.pid, signal.SIGKILL)
    incident = await joint.closed(since, "the restart after a crash")
    assert (incident.klass, incident.action, incident.outcome) == ("worker_dead", "restart", "recovered")
    assert [(m.rank, m.pid) for m in incident.culprits] == [(victim.rank, victim.pid)]
    assert incident.restarts == 1
    await joint.until(lambda: joint.state.round == before + 1, 10, "the round in the run's state")
    same_round_everywhere(joint, before + 1)
    await joint.trains_on()


@pytest.mark.drill  # `make test` has it in the demo, as `hang`, and in test_hang_cases.py with who hung and why
async def test_a_hang_is_ended_once_and_names_who_hung(joint: Joint) -> None:
    before, roster, since = joint.state.round, joint.roster, time.time()
    victim = random.choice(roster.members)
    os.kill(victim.pid, signal.SIGSTOP)
    incident = await joint.closed(since, "the restart that ends a hang")
    assert (incident.klass, incident.action, incident.outcome) == ("collective_hang", "restart", "recovered")
    assert [(m.rank, m.pid) for m in incident.culprits] == [(victim.rank, victim.pid)]
    assert incident.cascade == tuple(sorted({m.rank for m in roster.members} - {victim.rank}))
    assert incident.restarts == 1
    await joint.until(lambda: joint.state.round == before + 1, 10, "the round in the run's state")
    same_round_everywhere(joint, before + 1)
    await joint.trains_on()


@pytest.mark.parametrize(
    ("number", "klass"),
    [(signal.SIGSTOP, "collective_hang"), pytest.param(signal.SIGKILL, "worker_dead", marks=pytest.mark.drill)],
)
async def test_the_leader_is_killed_as_soon_as_it_has_told_of_it_and_there_is_one_restart(
    joint: Joint, number: int, klass: str
) -> None:
    before, roster, first = joint.state.round, joint.roster, joint.stage.monitor
    second = joint.stage.new_monitor()
    second.log = joint.stage.directory / f"monitor-{klass}.log"
    joint.stage.monitor = second.start()
    await joint.until(lambda: "/state" in second.tail(40), 30, "another monitor that stands by")
    since = time.time()
    os.kill(random.choice(roster.members).pid, number)
    await joint.until(lambda: bool(joint.witness.incidents(since)), 30, "the incident")
    first.signal(signal.SIGKILL)
    incident = await joint.closed(since, "the restart")
    assert (incident.klass, incident.action, incident.outcome) == (klass, "restart", "recovered")
    assert incident.restarts == 1
    assert joint.witness.all(r.Leader)[0].monitor.endswith(f"-{second.pid}")
    kinds = [order.kind for order in joint.witness.all(r.Order) if order.at >= since and order.kind != "collect"]
    assert kinds in ([], ["restart"]), "one order, and no further rung"
    await joint.until(lambda: joint.state.round == before + 1, 10, "the round in the run's state")
    same_round_everywhere(joint, before + 1)
    await joint.trains_on()


async def test_a_surplus_node_waits_and_its_end_disturbs_nobody(joint: Joint) -> None:
    before, pids, since = joint.state.round, {event["pid"] for event in joint.newest()}, time.time()
    surplus = joint.job.new_launcher("node-1", joint.stage.run_dirs["node-1"], 2)
    surplus.log = joint.job.directory / "surplus.log"
    surplus.start()
    await joint.until(lambda: "waiting" in surplus.tail(40), 60, "the surplus torchrun to say that it waits")
    await joint.trains_on(20)
    surplus.signal(signal.SIGTERM)
    assert await asyncio.to_thread(surplus.wait, 20.0), surplus.tail()
    await joint.trains_on(20)
    assert {event["pid"] for event in joint.newest()} == pids
    assert joint.state.round == before
    assert joint.witness.incidents(since) == []


async def test_a_cordoned_node_is_refused_with_the_reason(joint: Joint) -> None:
    before, pids = joint.state.round, {event["pid"] for event in joint.newest()}
    await joint.ask("cordon", "cordon-1", node="node-1")
    await joint.until(lambda: bool(joint.witness.all(r.Cordon)), 10, "the cordon")
    late = joint.job.new_launcher("node-1", joint.stage.run_dirs["node-1"], 2)
    late.log = joint.job.directory / "late.log"
    late.start()
    assert await asyncio.to_thread(late.wait, 60.0), late.tail()
    assert late.code() != 0
    assert "cordoned" in late.tail(60)
    assert "drill" in late.tail(60), "the reason that was given"
    await joint.ask("uncordon", "uncordon-1", node="node-1")
    await joint.until(lambda: not joint.witness.all(r.Cordon), 10, "the end of the cordon")
    await joint.trains_on(20)
    assert ({event["pid"] for event in joint.newest()}, joint.state.round) == (pids, before)


async def test_garbage_beside_an_established_round_is_refused_not_executed(joint: Joint) -> None:
    keys, uid, pids = joint.stage.keys, joint.state.run_uid, {event["pid"] for event in joint.newest()}
    before = joint.state.round
    forged = {
        keys.joiner(uid, "node-9", "77.77"): b"\x80\x04\x95garbage",
        keys.joiner(uid, "node-8", "78.78"): b'{"v":99,"run_uid":"' + uid.encode() + b'"}',
        keys.meeting(uid, before + 1): b"[]",
        keys.gate(uid, before + 1): b"{",
    }
    for key, value in forged.items():
        await joint.stage.store.put(key, value)
    await joint.trains_on(20)
    assert ({event["pid"] for event in joint.newest()}, joint.state.round) == (pids, before)
    for key in forged:
        await joint.stage.store.delete(key)


@pytest.mark.drill
@pytest.mark.timeout(600)
@pytest.mark.parametrize("times", [2, 10])
async def test_restarts_leave_nothing_behind(joint: Joint, times: int) -> None:
    async def restart(number: int) -> None:
        since, before = time.time(), joint.state.round
        await joint.ask("restart", f"restart-{number}", run_uid=joint.state.run_uid)
        await joint.closed(since, f"restart {number}")
        await joint.until(lambda: joint.state.round == before + 1, 10, "the round")
        await joint.until(lambda: joint.lowest_step() >= 0, 60, "all ranks")

    async def keys() -> Counter[str]:
        listing = await joint.stage.store.list(joint.stage.keys.prefix)
        kinds = [key.key.removeprefix(joint.stage.keys.prefix).split("/")[0] for key in listing.items]
        return Counter(kind for kind in kinds if kind not in ("incidents", "nodes"))

    while joint.state.round < ROUNDS_KEPT:  # the records of so many rounds are kept: from here on nothing is added
        await restart(joint.state.round)
    processes, descriptors, threads, kept = census(joint), fds(joint), thread_count(joint), await keys()
    for _ in range(times):
        await restart(joint.state.round)

    for _ in range(40):  # what the monitor and the agents sweep, they sweep now and then
        if await keys() <= kept:
            break
        await asyncio.sleep(0.5)
    assert await keys() <= kept
    assert census(joint) == processes
    assert all(fds(joint)[name] <= count for name, count in descriptors.items()), (descriptors, fds(joint))
    assert all(thread_count(joint)[name] <= count for name, count in threads.items()), (threads, thread_count(joint))


def members_of(joint: Joint) -> dict[str, int]:
    stage = joint.stage
    children = [*joint.job.launchers, *stage.agents.values(), stage.monitor]
    return {child.name: child.pid for child in children}


def fds(joint: Joint) -> dict[str, int]:
    return {name: len(os.listdir(f"/proc/{pid}/fd")) for name, pid in members_of(joint).items()}


def thread_count(joint: Joint) -> dict[str, int]:
    return {name: len(os.listdir(f"/proc/{pid}/task")) for name, pid in members_of(joint).items()}


def census(joint: Joint) -> int:
    """Processes of the job: torchruns, holders, trainers."""
    return len([pid for pid in os.listdir("/proc") if pid.isdigit() and str(joint.job.directory) in command(pid)])


def command(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


async def test_a_spare_takes_the_place_of_a_node_that_died(joint: Joint) -> None:
    """Nearly last: afterwards the job has another torchrun."""
    before = joint.state.round
    spare = joint.job.new_launcher("node-1", joint.stage.run_dirs["node-1"], 2)
    spare.log = joint.job.directory / "spare.log"
    spare.start()
    await joint.until(lambda: "waiting" in spare.tail(40), 60, "the spare to wait")
    lost = joint.job.launchers[0]
    workers = [member.pid for member in joint.roster.members if member.node == "node-0"]
    lost.signal(signal.SIGKILL)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    joint.job.launchers[0] = spare
    await joint.until(lambda: joint.state.round == before + 1, 60, "the next round")
    await joint.trains_on()
    same_round_everywhere(joint, before + 1)
    assert {member.node for member in joint.roster.members} == {"node-1"}
    assert joint.job.launchers[1].alive()


async def test_a_launch_that_died_without_a_word_does_not_reach_the_next_with_its_label(joint: Joint) -> None:
    """Last: the job is killed as by a power cut, and started again under the same label."""
    old = joint.state.run_uid
    workers = [member.pid for member in joint.roster.members]
    for launcher in joint.job.launchers:
        launcher.signal(signal.SIGKILL, group=True)
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
    again = Job(joint.job.directory / "again", joint.stage.run_dirs, name="joint", backend="rankpulse", max_restarts=0)
    again.start()
    try:
        joint.job = again
        await joint.until(lambda: joint.state.run_uid != old, 90, "the new launch in the store")
        await joint.trains_on(5)
        assert {event["round"] for event in joint.newest()} == {1}
    finally:
        await asyncio.to_thread(again.end)


async def test_without_a_monitor_the_holder_gives_up_soon(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        job = Job(
            tmp_path / "job", stage.run_dirs, name="alone", backend="rankpulse", hold=True, max_restarts=0,
            env={"RANKPULSE_HOLD_S": "4"},
        ).start()  # fmt: skip
        try:
            await stage.witness.until(
                lambda: len(job.events("first_step")) >= 4, 120, f"a job that trains\n{job.tail()}"
            )
            stage.monitor.signal(signal.SIGKILL)
            os.kill(job.events("resumed")[0]["pid"], signal.SIGKILL)
            assert await asyncio.to_thread(job.wait, 60.0), job.tail()
            assert any("SIGKILL" in launcher.log.read_text() for launcher in job.launchers)
        finally:
            await asyncio.to_thread(job.end)
