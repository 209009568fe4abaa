"""A whole node is lost, with agent, torchrun and workers, while a spare waits: how soon the job makes a step again.

Killed, as with its container; and frozen, as by a loss of power: nothing answers, and no connection ever ends.
"""

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

import pytest

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.drills.job import Job
from rankpulse.drills.stage import Stage
from rankpulse.drills.witness import Timeout

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

NODES = ("node-0", "node-1", "node-2")
DEAD_S = 7.0  # as in the preset "fast"
MONITOR = f"[detect]\nnode_dead_after_s = {DEAD_S}\nunwitnessed_after_s = {DEAD_S}\n"
GOAL_S = 12.0


def below(pid: int) -> list[int]:
    """The process and all that descend from it, the eldest first."""
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found


class Loss:
    """A job on two nodes, and a torchrun of it that waits on a third."""

    def __init__(self, stage: Stage, directory: Path) -> None:
        self.stage, self.witness = stage, stage.witness
        nodes = {node: stage.run_dirs[node] for node in NODES[:2]}
        self.job = Job(directory / "job", nodes, name="lost", backend="rankpulse", hold=True, max_restarts=0)
        self.spare = self.job.new_launcher(NODES[2], stage.run_dirs[NODES[2]], 2)
        self.launchers = dict(zip(NODES, [*self.job.launchers, self.spare], strict=True))

    def told(self) -> str:
        logs = [self.stage.monitor.tail(25), *(agent.tail(8) for agent in self.stage.agents.values())]
        stories = [(i.id, i.klass, i.action, [line.text for line in i.trail]) for i in self.witness.incidents()]
        incidents = [str(story) for story in stories]
        return "\n".join([*logs, self.job.tail(), self.spare.tail(), *incidents])

    async def until(self, found, timeout_s: float, what: str):  # type: ignore[no-untyped-def]
        try:
            return await self.witness.until(found, timeout_s, what)
        except Timeout as error:
            raise Timeout(f"{error}\n{self.told()}") from error

    def stepped(self, nodes: set[str], since: float) -> bool:
        """Every rank of a round of these nodes has made its first step since then."""
        first = [event for event in self.job.events("first_step") if event["at"] >= since]
        state = self.witness.run("lost")
        roster = self.witness.roster(state.run_uid) if state is not None else None
        there = roster is not None and {member.node for member in roster.members} == nodes
        return there and len(first) >= self.job.world_size

    async def train(self) -> float:
        """Until the job trains and the spare waits; returns how long the bare start of the job took."""
        self.job.start()
        await self.until(lambda: self.stepped(set(NODES[:2]), 0.0), 120.0, "a job that trains")
        took_s = max(event["at"] for event in self.job.events("first_step")) - self.job.started_at
        self.spare.start()
        await self.until(lambda: "waiting" in self.spare.tail(40), 90.0, "the spare to wait")
        goal = min(self.witness.steps("lost").values()) + 40  # whoever learns from steps has learned
        await self.until(lambda: min(self.witness.steps("lost").values()) >= goal, 90.0, "more steps")
        return took_s

    def strike(self, node: str, number: int) -> list[int]:
        """A signal to everything on the node; the agent first, so that it tells nobody."""
        pids = [self.stage.agents[node].pid, *below(self.launchers[node].pid)]
        for pid in pids:
            os.kill(pid, number)
        return pids

    async def goes_on(self, lost: str, since: float) -> float:
        """Seconds until every rank of a round without the lost node has made a step."""
        left = set(NODES) - {lost}
        await self.until(lambda: self.stepped(left, since), 90.0, f"a round of {sorted(left)}")
        first = [event["at"] for event in self.job.events("first_step") if event["at"] >= since]
        return sorted(first)[self.job.world_size - 1] - since


async def arm(stage: Stage) -> None:
    record = r.Arm(armed=True, author="test", reason="drill", at=time.time())
    await stage.store.put(stage.keys.arm(), codec.encode(record))


async def closed(loss: Loss, since: float) -> r.Incident:
    def over() -> r.Incident | None:
        found = [incident for incident in loss.witness.incidents(since) if incident.run_uid]
        return found[0] if found and all(incident.state == "closed" for incident in found) else None

    incident = await loss.until(over, 60.0, "the end of the incident")
    of_runs = [one.id for one in loss.witness.incidents(since) if one.run_uid]
    assert of_runs == [incident.id], loss.told()
    orders = [order for order in loss.witness.all(r.Order) if order.kind in ("restart", "kill")]
    assert [order.kind for order in orders] in ([], ["restart"]), "one restart, and no further rung"
    return incident


@pytest.mark.parametrize(("how", "lost"), [("killed", "node-1"), ("frozen", "node-0")])
async def test_a_spare_takes_the_place_of_a_whole_node(tmp_path: Path, how: str, lost: str) -> None:
    # on one machine whatever is frozen still has a kernel that answers looks: as by a loss of power, none comes back
    agents = '[probe]\nlisten = ""\n' if how == "frozen" else ""
    async with Stage(tmp_path, nodes=NODES, agents=agents, monitor=MONITOR) as stage:
        await arm(stage)
        loss = Loss(stage, tmp_path)
        struck: list[int] = []
        try:
            start_s = await loss.train()
            since = time.time()
            struck = loss.strike(lost, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            took_s = await loss.goes_on(lost, since)
            incident = await closed(loss, since)
            known_s = max(incident.opened_at - since, DEAD_S)
            limit_s = max(GOAL_S, known_s + 2.0 + 1.5 * start_s)
            print(f"{how}: first step after {took_s:.1f} s, at most {limit_s:.1f}; the bare start took {start_s:.1f} s")
            assert (incident.outcome, incident.restarts) == ("recovered", 1), loss.told()
            assert incident.action == ("restart" if how == "killed" else "restart_without")
            assert took_s <= limit_s, loss.told()
        finally:
            for pid in struck:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.to_thread(loss.spare.end)
            await asyncio.to_thread(loss.job.end)


async def test_a_leader_killed_in_the_middle_of_it_leaves_one_restart(tmp_path: Path) -> None:
    """It dies as soon as it has told of the loss, at whatever line it is then; another takes over."""
    async with Stage(tmp_path, nodes=NODES, agents='[probe]\nlisten = ""\n', monitor=MONITOR) as stage:
        await arm(stage)
        loss = Loss(stage, tmp_path)
        struck: list[int] = []
        second = stage.new_monitor()
        second.log = tmp_path / "second.log"
        second.start()
        try:
            await loss.train()
            since = time.time()
            struck = loss.strike("node-1", signal.SIGSTOP)
            await loss.until(lambda: bool(loss.witness.incidents(since)), 60.0, "the incident")
            leads = loss.witness.all(r.Leader)[0].monitor
            for monitor in (stage.monitor, second):
                if leads.endswith(f"-{monitor.pid}"):
                    monitor.signal(signal.SIGKILL)
            await loss.goes_on("node-1", since)
            incident = await closed(loss, since)
            assert (incident.action, incident.outcome, incident.restarts) == ("restart_without", "recovered", 1)
            assert loss.witness.all(r.Leader)[0].monitor != leads
        finally:
            for pid in struck:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.to_thread(second.end)
            await asyncio.to_thread(loss.spare.end)
            await asyncio.to_thread(loss.job.end)
