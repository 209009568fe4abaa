"""XID 79, injected and marked as that, on a real job with monitor, agents and etcd: one incident, "GPU lost"."""

import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.drills.gpu_lost import BELIEVED, BUS, KernelLog
from rankpulse.drills.job import Job
from rankpulse.drills.stage import NO_STRIKES, Stage

pytestmark = [pytest.mark.live, pytest.mark.timeout(420)]
NODES, SICK, SPARE = ("node-0", "node-1", "node-2"), "node-1", "node-2"
RANKS = 2


class WithLogs(Stage):
    """The stage of the drills, with a kernel's log of its own for each agent."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, nodes=NODES, monitor=NO_STRIKES + BELIEVED)
        self.logs = {node: KernelLog(directory / f"{node}.kmsg") for node in NODES}

    def of_agent(self, node: str) -> str:
        return self.logs[node].settings


class Play:
    """A job of two nodes on that stage, and a third that waits."""

    def __init__(self, stage: WithLogs, job: Job) -> None:
        self.stage, self.job, self.since = stage, job, time.time()

    @property
    def incidents(self) -> list[r.Incident]:
        return self.stage.witness.incidents(self.since)

    async def until(self, found: Any, what: str, timeout_s: float = 120.0) -> Any:
        try:
            return await self.stage.witness.until(found, timeout_s, what)
        except Exception as error:
            story = [
                f"{i.id} {i.klass} {i.state} {i.summary} {[line.text for line in i.trail]}" for i in self.incidents
            ]
            told = f"{story}\n{self.stage.monitor.tail()}\n{self.stage.agents[SICK].tail()}"
            raise AssertionError(f"{error}\n{told}\n{self.job.tail()}") from error

    def one(self, *, of_a_run: bool = False) -> r.Incident | None:
        found = [i for i in self.incidents if i.klass == "gpu_fault" and (i.run_uid or not of_a_run)]
        return found[0] if found else None

    def steps(self) -> int:
        steps = self.stage.witness.steps(self.job.name)
        return min(steps.values()) if len(steps) == RANKS else -1

    def spare_waits(self) -> bool:
        return any(joiner.node == SPARE and not joiner.left for joiner in self.stage.witness.all(r.Joiner))

    def orders(self) -> list[r.Order]:
        return [order for order in self.stage.witness.all(r.Order) if not order.kind.startswith("collect")]

    async def arm(self) -> None:
        record = r.Arm(armed=True, author="drill", reason="a lost GPU", at=time.time())
        await self.stage.store.put(self.stage.keys.arm(), codec.encode(record))


@pytest_asyncio.fixture
async def play(tmp_path: Path) -> AsyncIterator[Play]:
    async with WithLogs(tmp_path) as stage:
        members = {node: stage.run_dirs[node] for node in NODES[:RANKS]}
        job = Job(tmp_path / "job", members, name="job", workers=1, backend="rankpulse", nnodes="2").start()
        try:
            play = Play(stage, job)
            await play.until(lambda: play.steps() >= 15, "fifteen steps of training", 180.0)
            job.launchers.append(job.new_launcher(SPARE, stage.run_dirs[SPARE], RANKS).start())
            await play.until(play.spare_waits, "the spare")
            yield play
        finally:
            job.end()
            for log in stage.logs.values():
                log.close()


async def test_the_job_goes_on_and_then_hangs_one_incident_and_one_restart_without_the_node(play: Play) -> None:
    sick = next(
        member for roster in play.stage.witness.all(r.Roster) for member in roster.members if member.node == SICK
    )
    play.stage.logs[SICK].loses_gpu()
    incident = await play.until(play.one, "the incident")
    assert incident.summary == f"GPU lost (Xid 79): {SICK}, GPU at {BUS} (injected)"
    assert [(fault.node, fault.bus, fault.source) for fault in incident.faults] == [(SICK, BUS, "injected")]
    assert (incident.nodes, incident.action) == ((SICK,), "observe")
    assert f"rankpulse cordon {SICK} --drain --reason 'GPU lost" in incident.action_reason

    at_step = play.steps()
    await play.until(lambda: play.steps() >= at_step + 10, "a job that goes on")
    assert (len(play.incidents), play.orders()) == (1, [])
    assert play.stage.witness.all(r.Cordon) == []
    assert {entry["pid"] for entry in play.job.events("resumed")} >= {sick.pid}
    assert len(play.job.events("resumed")) == 2, "nobody was started again"

    os.kill(sick.pid, signal.SIGSTOP)
    incident = await play.until(lambda: play.one(of_a_run=True), "the hang as its cascade")
    assert [i.id for i in play.incidents] == [incident.id]
    assert incident.summary.startswith("GPU lost")
    assert ([m.node for m in incident.culprits], len(incident.cascade)) == ([SICK], 1)
    assert any(reason.startswith("then: ") for reason in incident.reasons)
    assert play.orders() == []

    await play.arm()

    def recovered() -> bool:
        return all(i.state == "closed" for i in play.incidents)

    await play.until(recovered, "the round without the node")
    [incident] = play.incidents
    assert (incident.outcome, incident.action, incident.restarts) == ("recovered", "restart_without", 1)
    assert [(order.kind, order.without) for order in play.orders()] == [("restart", (SICK,))]
    assert [(c.node, c.owner, c.incident) for c in play.stage.witness.all(r.Cordon)] == [
        (SICK, "rankpulse", incident.id)
    ]


@pytest.mark.drill  # tests/core/test_gpu_incidents.py has the same with a simulated job
async def test_armed_the_job_that_goes_on_leaves_the_node_after_its_next_checkpoint(play: Play) -> None:
    await play.arm()
    play.stage.logs[SICK].loses_gpu()
    incident = await play.until(play.one, "the incident")

    def recovered() -> bool:
        return all(i.state == "closed" for i in play.incidents)

    await play.until(recovered, "the round without the node")
    [incident] = play.incidents
    assert (incident.klass, incident.outcome, incident.restarts) == ("gpu_fault", "recovered", 1)
    assert any("its job goes on: it leaves the node after its next checkpoint" in line.text for line in incident.trail)
    assert incident.lost_steps is not None
    assert incident.lost_steps < play.job.save_every
    assert [(order.kind, order.without) for order in play.orders()] == [("restart", (SICK,))]
