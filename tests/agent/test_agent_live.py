"""The agent as people start it: a process of its own, a real etcd, signals."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from agent_bench import Crew, Desk
from support import eventually

from rankpulse.core import records
from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import Store
from rankpulse.store.etcd import open_store

pytestmark = pytest.mark.live
MAIN = """
import asyncio, sys
from rankpulse.agent.main import main
from rankpulse.core import settings
node, run_dir, endpoint, cluster = sys.argv[1:]
tree = {"cluster": cluster, "preset": "drill", "store": {"endpoints": [endpoint], "timeout_s": 1.0},
        "agent": {"node": node, "run_dir": run_dir, "listen": ""}}
sys.exit(asyncio.run(main(settings.parse(tree))))
"""


class Sidecars:
    """Agents as processes; all end with the test."""

    def __init__(self, endpoint: str, cluster: str) -> None:
        self.endpoint, self.cluster = endpoint, cluster
        self.started: list[subprocess.Popen[bytes]] = []
        self._said: dict[int, Path] = {}

    def start(self, run_dir: str, node: str = "n1", endpoint: str = "") -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", MAIN, node, run_dir, endpoint or self.endpoint, self.cluster]
        path = Path(run_dir) / f"stderr-{len(self.started)}"
        with path.open("wb") as stderr:
            process = subprocess.Popen(command, stderr=stderr)
        self.started.append(process)
        self._said[process.pid] = path
        return process

    def said(self, process: "subprocess.Popen[bytes]") -> str:
        """What it has written to stderr so far."""
        return self._said[process.pid].read_text()


@pytest.fixture
def sidecars(etcd: str, cluster: str) -> Iterator[Sidecars]:
    crowd = Sidecars(etcd, cluster)
    yield crowd
    for process in crowd.started:
        process.kill()
        process.wait()


@pytest.fixture
async def store(etcd: str) -> AsyncIterator[Store]:
    store = await open_store(StoreSettings(endpoints=(etcd,)))
    yield store
    await store.close()


@pytest.fixture
def desk(run_dir: str, store: Store, cluster: str) -> Desk:
    """Only its view of the store is used."""
    desk = Desk(run_dir, store)
    desk.keys = type(desk.keys)(cluster)
    return desk


async def test_killed_and_started_again(run_dir: str, crew: Crew, sidecars: Sidecars, desk: Desk) -> None:
    job = crew.job()
    agent = sidecars.start(run_dir)
    await eventually(desk.ranks, 20, "ranks in the beat")
    member = await desk.member(0)
    agent.kill()
    agent.wait()
    job.kill()
    sidecars.start(run_dir)
    (gone,) = await eventually(lambda: desk.observations(records.WORKER_EXITED), 20, "the exit told")
    beat = await desk.beat()
    assert beat
    assert (gone.pid, gone.start, beat.inc) == (member.pid, member.start, 2)


async def test_an_order_through_etcd(run_dir: str, crew: Crew, sidecars: Sidecars, desk: Desk) -> None:
    job = crew.job()
    sidecars.start(run_dir)
    await eventually(desk.ranks, 20, "ranks in the beat")
    await desk.order(await desk.member(0))
    assert await eventually(lambda: not job.alive, 20, "the end of the worker")
    await eventually(lambda: desk.observations(records.ORDER_DONE), 20, "the order reported")


async def test_a_name_that_is_taken(run_dir: str, sidecars: Sidecars, desk: Desk) -> None:
    sidecars.start(run_dir)
    await eventually(desk.beat, 20, "a beat")
    with tempfile.TemporaryDirectory(prefix="rp-") as other:
        second = sidecars.start(other)
        await eventually(lambda: second.poll() is not None, 30, "the end of the second agent")
        assert second.returncode == 3
        said = sidecars.said(second)
    assert f"another agent named n1 runs on host {os.uname().nodename}" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_signals_end_it_cleanly(run_dir: str, sidecars: Sidecars, desk: Desk, number: int) -> None:
    agent = sidecars.start(run_dir)
    await eventually(desk.beat, 20, "a beat")
    agent.send_signal(number)
    await eventually(lambda: agent.poll() is not None, 10, "the end of the agent")
    assert agent.returncode == 0
    assert await desk.observations(records.AGENT_STOPPING)


async def test_without_a_store_it_says_so_once_and_stops_in_time(run_dir: str, crew: Crew, sidecars: Sidecars) -> None:
    crew.job()
    agent = sidecars.start(run_dir, endpoint="127.0.0.1:1")
    spool = os.path.join(run_dir, "spool")
    await eventually(lambda: os.path.isdir(spool) and len(_spooled(spool)) == 2, 20, "two observations in the spool")
    await eventually(lambda: "beats: " in sidecars.said(agent), 20, "the trouble said")
    agent.send_signal(signal.SIGTERM)
    await eventually(lambda: agent.poll() is not None, 10, "the end of the agent")
    said = sidecars.said(agent)
    assert agent.returncode == 0
    assert said.count("beats: ") == 1
    assert "127.0.0.1:1" in said
    assert "Traceback" not in said


def _spooled(spool: str) -> list[str]:
    return [name for name in os.listdir(spool) if name.startswith("p-") and name.endswith(".json")]
