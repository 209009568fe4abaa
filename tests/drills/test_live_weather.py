"""While a real job trains: agent, monitor and store go and come back, clocks jump. The job must not notice.

One job for the whole file: that it lives through everything in a row is part of what is shown.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from rankpulse.core import records as r
from rankpulse.drills.children import Child
from rankpulse.drills.job import Job
from rankpulse.drills.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(420)]
FAKETIME = next((p for p in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
STORE_GONE_S = 60.0

BY_THE_DEMO = pytest.mark.drill  # whose weather is that of the whole demo, which `make test` plays
PLAIN_IS_ENOUGH = pytest.mark.parametrize(
    "scene", [pytest.param("rankpulse", marks=BY_THE_DEMO), "c10d"], indirect=True, scope="module"
)
# what does not depend on how torchruns meet is shown on torch's own rendezvous by `make drills`
ONE_IS_ENOUGH = pytest.mark.parametrize(
    "scene", ["rankpulse", pytest.param("c10d", marks=pytest.mark.drill)], indirect=True, scope="module"
)


def clock_env(file: Path) -> dict[str, str]:
    """The environment in which a process reads its wall clock's offset from `file`; its monotonic one stays true."""
    if FAKETIME is None:
        return {}
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # a stepped wall clock leaves the monotonic one alone
        "DONT_FAKE_MONOTONIC": "1",
    }


# libfaketime makes Python's time.sleep fail (EINVAL), on which torchrun lives: there Python's own clock is shifted
SITECUSTOMIZE = """
import time

real = time.time

def shifted():
    try:
        with open({file!r}) as file:
            return real() + float(file.read() or 0)
    except (OSError, ValueError):
        return real()

time.time = shifted
"""


def python_clock_env(file: Path) -> dict[str, str]:
    """The same for torchrun and its workers, as far as Python asks for the time."""
    place = file.parent / "shifted"
    place.mkdir()
    (place / "sitecustomize.py").write_text(SITECUSTOMIZE.format(file=str(file)))
    return {"PYTHONPATH": str(place)}


class Scene:
    """A stage with a job in the middle of training, and what was true before the fault."""

    def __init__(self, stage: Stage, job: Job) -> None:
        self.stage, self.job, self.witness = stage, job, stage.witness

    @property
    def state(self) -> r.RunState:
        state = self.witness.run(self.job.name)
        assert state is not None
        return state

    def lowest_step(self) -> int:
        return min(self.witness.steps(self.job.name).values(), default=-1)

    async def until(self, found: Callable[[], Any], timeout_s: float, what: str) -> Any:
        return await self.witness.until(found, timeout_s, f"{what}\n{self.job.tail()}")

    async def trains_on(self, steps: int = 20, timeout_s: float = 60.0) -> None:
        goal = self.lowest_step() + steps
        await self.until(lambda: self.lowest_step() >= goal, timeout_s, f"step {goal}")

    def pids(self) -> set[int]:
        return {event["pid"] for event in self.job.events("resumed")}


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["rankpulse", "c10d"])
async def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """How its torchruns meet is the parameter: through our own rendezvous, or torch's."""
    directory = tmp_path_factory.mktemp("weather")
    (directory / "clock").write_text("+0")
    async with Stage(directory) as stage:
        # a fault may cost each torchrun one of its restarts: none of them must run out before the last test
        job = Job(
            directory / "job", stage.run_dirs, name="weather", max_restarts=100, backend=request.param,
            train_args=("--step-s", "0.2"), node_env={"node-0": python_clock_env(directory / "clock")},
        )  # fmt: skip
        job.start()
        try:
            scene = Scene(stage, job)
            await scene.until(lambda: scene.lowest_step() >= 25, 120, "a job that trains")
            yield scene
        finally:
            await asyncio.to_thread(job.end)


@pytest_asyncio.fixture(loop_scope="module")
async def calm(scene: Scene) -> AsyncIterator[Scene]:
    """The scene, and afterwards: same processes, same round, no incident about the job."""
    pids, state, since = scene.pids(), scene.state, time.time() - 1.0
    yield scene
    await scene.trains_on()
    await asyncio.sleep(4.0)  # whatever would be wrongly concluded, would be by now
    assert scene.pids() == pids
    assert (scene.state.run_uid, scene.state.round, scene.state.outcome) == (state.run_uid, state.round, "running")
    assert [i.summary for i in scene.witness.incidents(since - 7200)] == []


def beat_of(scene: Scene, node: str) -> r.Beat | None:
    return next((beat for beat in scene.witness.all(r.Beat) if beat.node == node), None)


async def replace_agent(scene: Scene, node: str, env: dict[str, str] | None = None) -> None:
    """SIGKILL the agent of `node`, start another, and wait for its first beat with all workers."""
    old = beat_of(scene, node)
    assert old is not None
    scene.stage.agents[node].signal(signal.SIGKILL)
    await asyncio.to_thread(scene.stage.agents[node].wait, 5.0)
    scene.stage.agents[node] = scene.stage.new_agent(node, env).start()

    def speaks() -> bool:
        beat = beat_of(scene, node)
        return beat is not None and beat.inc == old.inc + 1 and len(beat.ranks) == 2

    await scene.until(speaks, 30, f"the next incarnation on {node}\n{scene.stage.agents[node].tail()}")


async def replace_monitor(scene: Scene, env: dict[str, str] | None = None) -> None:
    epoch = scene.witness.all(r.Leader)[0].epoch
    scene.stage.monitor.signal(signal.SIGKILL)
    await asyncio.to_thread(scene.stage.monitor.wait, 5.0)
    scene.stage.monitor = scene.stage.new_monitor(env).start()

    def leads() -> bool:
        return any(leader.epoch > epoch for leader in scene.witness.all(r.Leader))

    await scene.until(leads, 40, f"the next epoch\n{scene.stage.monitor.tail()}")


@BY_THE_DEMO
async def test_agent_killed_and_restarted(calm: Scene) -> None:
    await replace_agent(calm, "node-1")


@ONE_IS_ENOUGH
async def test_monitor_killed_and_restarted(calm: Scene) -> None:
    await replace_monitor(calm)


@pytest.mark.skipif(
    FAKETIME is None and "CI" not in os.environ, reason="libfaketime is not here: apt-get install faketime"
)
@BY_THE_DEMO
async def test_clock_of_a_node_and_of_the_monitor_jumps_by_an_hour(calm: Scene) -> None:
    """The node's agent, torchrun and workers all live an hour later, then earlier, than the rest."""
    assert FAKETIME is not None, "CI must install faketime"
    file = calm.stage.directory / "clock"
    env = clock_env(file)
    await replace_agent(calm, "node-0", env)
    await replace_monitor(calm, env)
    for offset in ("+3600", "-3600", "+0"):
        file.write_text(offset)
        await calm.trains_on()

        def jumped(offset: str = offset) -> bool:
            beat = beat_of(calm, "node-0")
            return beat is not None and abs(beat.at - time.time() - float(offset)) < 60

        await calm.until(jumped, 20, f"a beat whose clock is off by {offset}")
        await asyncio.sleep(5.0)
    await replace_agent(calm, "node-0")
    await replace_monitor(calm)


@pytest.mark.drill  # half a minute of it, under armed orders, is part of every `make test`: test_live_sight.py
async def test_store_gone_for_a_minute(calm: Scene) -> None:
    acknowledged = {record.id for record in calm.witness.all(r.Incident)}
    await asyncio.to_thread(calm.stage.etcd.kill)
    await asyncio.sleep(STORE_GONE_S)
    await asyncio.to_thread(calm.stage.etcd.restart)
    await calm.until(lambda: calm.lowest_step() > 0, 30, "the witness to see again")
    await calm.trains_on(timeout_s=90)
    assert {record.id for record in calm.witness.all(r.Incident)} == acknowledged


@ONE_IS_ENOUGH
async def test_death_while_the_store_is_gone_is_found_once(scene: Scene) -> None:
    roster = scene.witness.roster(scene.state.run_uid)
    assert roster is not None
    victim = roster.members[2]
    since = time.time()
    await asyncio.to_thread(scene.stage.etcd.kill)
    os.kill(victim.pid, signal.SIGKILL)
    await asyncio.sleep(10.0)
    await asyncio.to_thread(scene.stage.etcd.restart)

    def closed() -> bool:
        incidents = scene.witness.incidents(since)
        return bool(incidents) and incidents[0].state == "closed"

    await scene.until(closed, 90, "the incident of a death that happened while the store was gone")
    await scene.trains_on()
    [incident] = scene.witness.incidents(since)
    assert incident.klass == "worker_dead"
    assert [m.pid for m in incident.culprits] == [victim.pid]
    assert (incident.restarts, incident.outcome) == (1, "recovered")
    if scene.job.backend == "rankpulse":
        told = {event["round"] for event in scene.job.events("resumed")[-scene.job.world_size :]}
        assert told == {scene.state.round}, "the adopted round has one number, for every worker and in the store"


@ONE_IS_ENOUGH
async def test_death_while_no_monitor_runs_is_found_once(scene: Scene) -> None:
    round_ = scene.state.round
    roster = scene.witness.roster(scene.state.run_uid)
    assert roster is not None
    victim = roster.members[1]
    since = time.time()
    scene.stage.monitor.signal(signal.SIGKILL)
    await asyncio.to_thread(scene.stage.monitor.wait, 5.0)
    told = len(scene.job.events("first_step"))
    os.kill(victim.pid, signal.SIGKILL)
    await scene.until(
        lambda: len(scene.job.events("first_step")) >= told + scene.job.world_size, 60, "the next round of the job"
    )
    scene.stage.monitor = scene.stage.new_monitor().start()

    def closed() -> bool:
        incidents = scene.witness.incidents(since)
        return bool(incidents) and incidents[0].state == "closed"

    await scene.until(closed, 60, f"the incident\n{scene.stage.monitor.tail()}")
    [incident] = scene.witness.incidents(since)
    assert [m.pid for m in incident.culprits] == [victim.pid]
    assert incident.restarts == 1
    await scene.until(lambda: scene.state.round == round_ + 1, 10, "the round in the run's state")
    await scene.trains_on()


def restarts(scene: Scene, since: float) -> list[r.Order]:
    """Restart orders given since then, the first first."""
    found = [order for order in scene.witness.all(r.Order) if order.kind == "restart" and order.at >= since]
    return sorted(found, key=lambda order: order.at)


@PLAIN_IS_ENOUGH
async def test_a_hang_is_observed_until_armed_and_then_ordered_to_restart_once(scene: Scene) -> None:
    from rankpulse.core import codec

    state, since = scene.state, time.time()
    roster = scene.witness.roster(state.run_uid)
    assert roster is not None
    victim = roster.members[3]
    os.kill(victim.pid, signal.SIGSTOP)

    def incident(action: str) -> r.Incident | None:
        found = scene.witness.incidents(since)
        return found[0] if found and found[0].action == action else None

    seen = await scene.until(lambda: incident("observe"), 60, "the hang to be observed")
    assert (seen.klass, [m.pid for m in seen.culprits]) == ("collective_hang", [victim.pid])
    assert restarts(scene, since) == []
    arm = r.Arm(armed=True, author="test", reason="drill", at=time.time())
    await scene.stage.store.put(scene.stage.keys.arm(), codec.encode(arm))

    def closed() -> bool:
        return bool(scene.witness.incidents(since)) and scene.witness.incidents(since)[0].state == "closed"

    await scene.until(closed, 90, "the round that was ordered")
    await scene.stage.store.delete(scene.stage.keys.arm())
    [ended] = scene.witness.incidents(since)
    assert (ended.action, ended.outcome, ended.restarts) == ("restart", "recovered", 1)
    assert ended.cascade == tuple(sorted({m.rank for m in roster.members} - {victim.rank}))
    assert [order.incident for order in restarts(scene, since)] == [ended.id]
    await scene.until(lambda: scene.state.round == state.round + 1, 10, "the round in the run's state")
    await scene.trains_on()


@PLAIN_IS_ENOUGH
async def test_order_of_an_operator_restarts_every_node_once(scene: Scene) -> None:
    from rankpulse.core import codec

    state = scene.state
    before, since = scene.pids(), time.time()
    request = r.Request(id="test", kind="restart", run_uid=state.run_uid, author="test", reason="drill", at=since)
    await scene.stage.store.put(scene.stage.keys.request("test"), codec.encode(request))

    def closed() -> bool:
        incidents = scene.witness.incidents(since)
        return bool(incidents) and incidents[0].state == "closed"

    await scene.until(closed, 90, "the round that was ordered")
    [incident] = scene.witness.incidents(since)
    assert (incident.klass, incident.action, incident.restarts) == ("operator_restart", "restart", 1)
    assert incident.outcome == "recovered"
    await scene.until(lambda: scene.state.round == state.round + 1, 10, "the round in the run's state")
    assert len(scene.pids() - before) == 4
    [order] = [order for order in scene.witness.all(r.Order) if order.incident == incident.id]
    assert len(order.members) == 4


async def test_children_end_with_the_drill(tmp_path: Path) -> None:
    child = Child("sleeper", ["sleep", "600"], log=tmp_path / "log").start()
    assert child.alive()
    await asyncio.to_thread(child.end, grace_s=2.0)
    assert not child.alive()
