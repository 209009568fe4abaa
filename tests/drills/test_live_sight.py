"""While the monitor of a real job cannot see: it says so, restarts nobody, and sees again within seconds.

Orders are armed: what it would wrongly conclude, it would do. One job for the whole file.
"""

import asyncio
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from rankpulse.core import codec
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.drills.children import Child
from rankpulse.drills.job import Job
from rankpulse.drills.stage import Stage
from rankpulse.store.api import Lease

pytestmark = [pytest.mark.live, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(420)]
FAKETIME = next((p for p in Path("/usr/lib").glob("*/faketime/libfaketime.so.1")), None)
NO_FAKETIME = "libfaketime is not here: apt-get install faketime"
ASLEEP_S, STORE_GONE_S = 20.0, 30.0
SEES_AGAIN_S = 20.0
drill = pytest.mark.drill


def clock_env(file: Path) -> dict[str, str]:
    """The environment in which a process reads its wall clock's offset from `file`.

    Its monotonic clock, and the one that counts suspension, stay true.
    """
    if FAKETIME is None:
        return {}
    return {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(file),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "DONT_FAKE_MONOTONIC": "1",
    }


class Watched:
    """A job in the middle of training under an armed monitor whose wall clock obeys the file `clock`."""

    def __init__(self, stage: Stage, job: Job) -> None:
        self.stage, self.job, self.witness = stage, job, stage.witness
        self.clock = stage.directory / "clock"
        self.url = ""

    async def until(self, found: Callable[[], Any], timeout_s: float, what: str) -> Any:
        return await self.witness.until(
            found, timeout_s, f"{what}\n--- monitor\n{self.stage.monitor.tail()}\n{self.job.tail()}"
        )

    def lowest_step(self) -> int:
        return min(self.witness.steps(self.job.name).values(), default=-1)

    async def trains_on(self, steps: int = 5, timeout_s: float = 60.0) -> None:
        goal = self.lowest_step() + steps
        await self.until(lambda: self.lowest_step() >= goal, timeout_s, f"step {goal}")

    def roster(self) -> r.Roster:
        state = self.witness.run(self.job.name)
        assert state is not None
        roster = self.witness.roster(state.run_uid)
        assert roster is not None
        return roster

    async def state(self) -> dict[str, Any]:
        """What the monitor says of itself at `/state`."""
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{self.url}/state") as answer:
            return dict(await answer.json())

    async def metric(self, name: str) -> float:
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(f"{self.url}/metrics") as answer:
            text = await answer.text()
        found = re.search(rf"^{name} (\S+)$", text, flags=re.MULTILINE)
        assert found, f"{name} is not among the metrics"
        return float(found[1])

    def said(self) -> str:
        return self.stage.monitor.log.read_text(errors="replace")

    async def leads(self, after: int) -> None:
        def leading() -> r.Leader | None:
            return next((leader for leader in self.witness.all(r.Leader) if leader.epoch > after), None)

        self.url = (await self.until(leading, 40, "a leading monitor")).url

    async def arm(self) -> None:
        arm = r.Arm(armed=True, author="test", reason="drill", at=time.time())
        await self.stage.store.put(self.stage.keys.arm(), codec.encode(arm))


class ClockedStage(Stage):
    """Its monitors' wall clock obeys a file."""

    def new_monitor(self, env: dict[str, str] | None = None) -> Child:
        return super().new_monitor(env or clock_env(self.directory / "clock"))


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["rankpulse", pytest.param("c10d", marks=drill)])
async def watched(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    """How its torchruns meet is the parameter."""
    directory = tmp_path_factory.mktemp("sight")
    (directory / "clock").write_text("+0")
    async with ClockedStage(directory) as stage:
        job = Job(
            directory / "job", stage.run_dirs, name="sight", max_restarts=100, backend=request.param,
            train_args=("--step-s", "0.2"),
        ).start()  # fmt: skip
        try:
            watched = Watched(stage, job)
            await watched.leads(0)
            await watched.arm()
            await watched.until(lambda: watched.lowest_step() >= 15, 120, "a job that trains")
            yield watched
        finally:
            await asyncio.to_thread(job.end)


@pytest_asyncio.fixture(loop_scope="module")
async def before(watched: Watched) -> AsyncIterator["Before"]:
    """What is true before bad weather. The monitor's clock is set right afterwards."""
    if not watched.stage.agents["node-1"].alive():
        pytest.skip("an earlier test has lost the node for good")
    await watched.trains_on()
    yield Before(watched)
    watched.clock.write_text("+0")


class Before:
    """What was true before bad weather."""

    def __init__(self, watched: Watched) -> None:
        self.watched, self.roster = watched, watched.roster()
        self.orders, self.incidents = self._orders(), self._incidents()
        self.known = {incident.id for incident in watched.witness.all(r.Incident)}

    def _orders(self) -> set[str]:
        return {order.order_id for order in self.watched.witness.all(r.Order)}

    def _incidents(self) -> dict[str, str]:
        return {i.id: f"{i.klass}: {i.summary}" for i in self.watched.witness.incidents() if i.run_uid}

    async def holds(self) -> None:
        """Same processes, same round, no order, no incident of the job."""
        await self.watched.trains_on()
        assert self.watched.roster() == self.roster
        assert [member.pid for member in self.roster.members if not _lives(member)] == []
        self.holds_but_for()

    def holds_but_for(self, *incidents: str) -> None:
        """Nothing was ordered, and nothing else concluded."""
        assert self._orders() == self.orders
        assert {name: said for name, said in self._incidents().items() if name not in incidents} == self.incidents


def _lives(member: r.Member) -> bool:
    try:
        return Path(f"/proc/{member.pid}/stat").read_text().rpartition(")")[2].split()[19] == str(member.start)
    except OSError:
        return False


def jump(watched: Watched, offset: str) -> None:
    """The monitor's wall clock stands so many seconds beside the true one from now on."""
    if FAKETIME is None:
        assert "CI" not in os.environ, "CI must install faketime"
    watched.clock.write_text(offset)


async def sleep_of_the_monitor(watched: Watched, offset: str = "+0") -> float:
    """It is suspended, and its wall clock may stand elsewhere when it wakes. Returns when it woke."""
    blind = (await watched.state())["blind_seconds_total"]
    lines = watched.said().count("did not run for")
    epoch = watched.witness.all(r.Leader)[0].epoch
    watched.stage.monitor.signal(signal.SIGSTOP)
    await asyncio.sleep(ASLEEP_S)
    jump(watched, offset)
    watched.stage.monitor.signal(signal.SIGCONT)
    woke = time.monotonic()
    await watched.leads(epoch)
    state = await watched.state()
    assert state["blind_seconds_total"] - blind >= ASLEEP_S - 1.0
    assert await watched.metric("rankpulse_monitor_blind_seconds_total") - blind >= ASLEEP_S - 1.0
    assert watched.said().count("did not run for") > lines, "a log line says how long it slept"
    return woke


async def night_of_the_store(watched: Watched, offset: str = "+0") -> float:
    """etcd is killed and comes back. Returns when it was back."""
    blind = (await watched.state())["blind_seconds_total"]
    await asyncio.to_thread(watched.stage.etcd.kill)
    began = time.monotonic()

    async def says_blind() -> dict[str, Any]:
        while not (state := await watched.state())["blind"]:
            assert time.monotonic() - began < SEES_AGAIN_S, "it does not say that it is blind"
            await asyncio.sleep(0.2)
        return state

    assert (await says_blind())["blind_reason"]
    assert await watched.metric("rankpulse_monitor_blind") == 1.0
    jump(watched, offset)
    await asyncio.sleep(began + STORE_GONE_S - time.monotonic())
    assert (await watched.state())["blind"]
    assert "blind: " in watched.said()
    await asyncio.to_thread(watched.stage.etcd.restart)
    back = time.monotonic()
    assert (await watched.state())["blind_seconds_total"] - blind >= STORE_GONE_S - 5.0
    return back


async def names_a_crash(before: Before, sight_since: float) -> None:
    """A worker is killed as soon as there is sight again: it is named in time, and it is all that is named."""
    watched, roster = before.watched, before.watched.roster()
    victim = roster.members[-1]
    os.kill(victim.pid, signal.SIGKILL)

    def named() -> r.Incident | None:
        return next((i for i in watched.witness.all(r.Incident) if victim in i.culprits), None)

    incident = await watched.until(named, sight_since + SEES_AGAIN_S - time.monotonic(), "the crash to be named")
    assert incident.klass == "worker_dead"
    assert watched.roster() == roster, "no round began while nobody could see"

    def closed() -> bool:
        return any(i.id == incident.id and i.state == "closed" for i in watched.witness.all(r.Incident))

    await watched.until(closed, 60, "the incident to be closed")
    assert watched.roster().round == roster.round + 1
    before.holds_but_for(incident.id)


async def sees_a_silent_agent(before: Before, sight_since: float) -> None:
    """An agent is stopped as soon as there is sight again: it is suspected in time, looked at, and nobody is hurt."""
    watched, agent = before.watched, before.watched.stage.agents["node-1"]
    agent.signal(signal.SIGSTOP)
    try:
        while True:
            node = (await watched.state())["nodes"]["node-1"]
            if node["suspect"] and node["look"] and node["look"]["answer"] == ev.ACCEPTED:
                break
            assert time.monotonic() < sight_since + SEES_AGAIN_S, (
                f"not suspected: {node}\n{watched.stage.monitor.tail()}"
            )
            await asyncio.sleep(0.1)
    finally:
        agent.signal(signal.SIGCONT)
    await before.holds()


async def lose_a_node_unwatched(watched: Watched, *, wait: bool) -> None:
    """No monitor runs; a node goes with all that is on it, and its lease ends; then a monitor starts.

    `wait`: for the lease to end by itself, which takes half a minute; else it is ended at once.
    """
    stage, epoch = watched.stage, watched.witness.all(r.Leader)[0].epoch
    stage.monitor.signal(signal.SIGKILL)
    await asyncio.to_thread(stage.monitor.wait, 5.0)
    stage.agents["node-1"].signal(signal.SIGKILL)
    watched.job.launchers[1].signal(signal.SIGKILL)
    for member in watched.roster().members:
        if member.node == "node-1":
            os.kill(member.pid, signal.SIGKILL)
    item = await stage.store.get(stage.keys.beat("node-1"))
    if item is not None and not wait:
        await stage.store.revoke(Lease(item.lease, 0.0))
    await watched.until(
        lambda: all(beat.node != "node-1" for beat in watched.witness.all(r.Beat)), 60, "the end of the lease"
    )
    stage.monitor = stage.new_monitor().start()
    await watched.leads(epoch)


Proof = Callable[[Before, float], Awaitable[None]]


@pytest.mark.parametrize("proof", [sees_a_silent_agent, pytest.param(names_a_crash, marks=drill)])
async def test_asleep_while_the_clock_jumps_ahead(before: Before, proof: Proof) -> None:
    woke = await sleep_of_the_monitor(before.watched, "+3600")
    await proof(before, woke)


@drill
@pytest.mark.parametrize("proof", [names_a_crash, sees_a_silent_agent])
async def test_the_store_away_while_the_clock_falls_back(before: Before, proof: Proof) -> None:
    back = await night_of_the_store(before.watched, "-3600")
    await proof(before, back)


@drill
@pytest.mark.parametrize("offset", ["+3600", "-3600"])
async def test_the_clock_jumps_and_a_stopped_worker_is_found(before: Before, offset: str) -> None:
    """With orders armed a worker that stands still is restarted, once."""
    jump(before.watched, offset)
    await asyncio.sleep(10.0)
    await before.holds()
    victim = before.roster.members[0]
    os.kill(victim.pid, signal.SIGSTOP)
    await before.watched.until(
        lambda: before.watched.roster().round > before.roster.round, 60, "the round that was ordered"
    )
    await before.watched.trains_on()
    restarts = [
        o for o in before.watched.witness.all(r.Order) if o.kind == "restart" and o.order_id not in before.orders
    ]
    assert [order.culprits for order in restarts] == [(victim,)]


@drill
@pytest.mark.parametrize("weather", [sleep_of_the_monitor, night_of_the_store])
async def test_nobody_notices(before: Before, weather: Callable[[Watched], Awaitable[float]]) -> None:
    await weather(before.watched)
    await asyncio.sleep(20.0)  # whatever would be wrongly concluded, would be by now
    await before.holds()


@pytest.mark.parametrize("wait", [False, pytest.param(True, marks=drill)])
async def test_a_node_lost_while_nobody_looks_is_found(before: Before, wait: bool) -> None:
    """The last one: the job has lost a node for good."""
    watched = before.watched
    await lose_a_node_unwatched(watched, wait=wait)

    def named() -> r.Incident | None:
        """Whatever it is called: on one machine a look is refused, so the machine lives and its agent does not."""
        found = (i for i in watched.witness.all(r.Incident) if i.id not in before.known and "node-1" in i.nodes)
        return next(found, None)

    incident = await watched.until(named, 40, "an incident that names the node")
    assert incident.state == "open", f"{incident}\n{watched.stage.monitor.tail()}"
    assert incident.klass in ("node_dead", "sidecar_dead", "unknown")
