"""A whole node is lost, with agent, torchrun and workers, while a spare waits: how soon the job makes a step again.

Killed, as with its container; frozen, as by a loss of power, where nothing answers and no connection ever ends, in the
middle of which the leading monitor dies. (Frozen, under a leader that lives: the demo's `node`.)
"""

import asyncio
import random
import signal
import time
from pathlib import Path

import pytest

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.drills.leaving import UNREACHABLE
from rankpulse.drills.resumes import between_saves
from rankpulse.drills.spared import NODES, Spared
from rankpulse.drills.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.timeout(300)]

DEAD_S = 7.0  # as in the preset "fast"
MONITOR = f"[detect]\nnode_dead_after_s = {DEAD_S}\nunwitnessed_after_s = {DEAD_S}\n"
GOAL_S = 12.0


async def arm(stage: Stage) -> None:
    record = r.Arm(armed=True, author="test", reason="drill", at=time.time())
    await stage.store.put(stage.keys.arm(), codec.encode(record))


async def closed(lost: Spared, since: float) -> r.Incident:
    def over() -> r.Incident | None:
        found = [incident for incident in lost.witness.incidents(since) if incident.run_uid]
        return found[0] if found and all(incident.state == "closed" for incident in found) else None

    incident = await lost.until(over, 60.0, "the end of the incident")
    of_runs = [one.id for one in lost.witness.incidents(since) if one.run_uid]
    assert of_runs == [incident.id], lost.told()
    orders = [order for order in lost.witness.all(r.Order) if order.kind in ("restart", "kill")]
    assert [order.kind for order in orders] in ([], ["restart"]), "one restart, and no further rung"
    assert [order.kind for order in lost.given] == ["restart"]
    return incident


async def test_a_spare_takes_the_place_of_a_whole_node(tmp_path: Path) -> None:
    async with Stage(tmp_path, nodes=NODES, monitor=MONITOR) as stage:
        await arm(stage)
        spared = Spared(stage, tmp_path / "job", name="lost")
        try:
            await spared.start()
            since = time.time()
            spared.strike("node-1", signal.SIGKILL)
            took_s = await spared.goes_on("node-1", since)
            incident = await closed(spared, since)
            known_s = max(incident.opened_at - since, DEAD_S)
            limit_s = max(GOAL_S, known_s + 2.0 + 1.5 * spared.start_s)
            print(f"first step after {took_s:.1f} s, at most {limit_s:.1f}; the bare start took {spared.start_s:.1f} s")
            assert (incident.outcome, incident.restarts) == ("recovered", 1), spared.told()
            assert incident.action == "restart"
            assert ({member.node for member in incident.culprits}, incident.nodes) == ({"node-1"}, ("node-1",))
            assert took_s <= limit_s, spared.told()
        finally:
            await asyncio.to_thread(spared.end)


@pytest.mark.parametrize(
    ("number", "action"),
    [(signal.SIGSTOP, "restart_without"), pytest.param(signal.SIGKILL, "restart", marks=pytest.mark.drill)],
)
async def test_a_leader_killed_in_the_middle_of_it_leaves_one_restart(tmp_path: Path, number: int, action: str) -> None:
    """It dies as soon as it has told of the loss, at whatever line it is then; another takes over."""
    async with Stage(tmp_path, nodes=NODES, agents=UNREACHABLE, monitor=MONITOR) as stage:
        await arm(stage)
        spared = Spared(stage, tmp_path / "job", name="lost")
        second = stage.new_monitor()
        second.log = tmp_path / "second.log"
        second.start()
        try:
            await spared.start()
            # peers that wait in a save cannot tell whom they wait for; with nobody to look at a person would be paged
            await between_saves(spared.job, random.Random())
            since = time.time()
            spared.strike("node-1", number)
            await spared.until(lambda: bool(spared.witness.incidents(since)), 60.0, "the incident")
            leads = spared.witness.all(r.Leader)[0].monitor
            for monitor in (stage.monitor, second):
                if leads.endswith(f"-{monitor.pid}"):
                    monitor.signal(signal.SIGKILL)
            took_s = await spared.goes_on("node-1", since)
            print(f"first step after {took_s:.1f} s; the bare start took {spared.start_s:.1f} s")
            incident = await closed(spared, since)
            assert (incident.action, incident.outcome, incident.restarts) == (action, "recovered", 1)
            assert spared.witness.all(r.Leader)[0].monitor != leads
        finally:
            await asyncio.to_thread(second.end)
            await asyncio.to_thread(spared.end)
