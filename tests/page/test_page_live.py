"""A real monitor on a real etcd, agents' records in it, and the page of it in a real Chromium."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support import eventually_sync

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.core.settings import parse
from rankpulse.store.etcd import open_store

pytestmark = pytest.mark.live


class Monitor:
    def __init__(self, etcd: str, cluster: str) -> None:
        self.environ = {**os.environ, "RANKPULSE_STORE": etcd, "RANKPULSE_CLUSTER": cluster}
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "rankpulse.cli.main", "monitor", "--listen", "127.0.0.1:0", "--preset", "drill"],
            stderr=subprocess.PIPE, text=True, cwd="/", env=self.environ,
        )  # fmt: skip
        assert self.popen.stderr is not None
        self.url = self.popen.stderr.readline().rsplit(" ", 1)[-1].strip().removesuffix("/state")
        said = self.popen.stderr.readline()
        assert said.endswith(f"the page for people: {self.url}/\n"), said

    def command(self, *args: str) -> None:
        argv = [sys.executable, "-m", "rankpulse.cli.main", *args]
        done = subprocess.run(argv, env=self.environ, cwd="/", capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()
        assert self.popen.stderr is not None
        self.popen.stderr.close()


@pytest.fixture
def monitor(etcd: str, cluster: str) -> Iterator[Monitor]:
    made = Monitor(etcd, cluster)
    yield made
    made.end()


async def told(etcd: str, cluster: str, nodes: list[str]) -> None:
    """What agents would write: their machine, and one beat."""
    keys, store = Keys(cluster), await open_store(parse({"store": {"endpoints": [etcd]}}).store)
    for node in nodes:
        state = r.NodeState(
            node=node, inc=1, at=time.time(), host=node, agent_version="1", interval_s=0.5, rack="r1",
            capabilities={"gpu": "NVML: no driver"},
        )  # fmt: skip
        await store.put(keys.state(node), codec.encode(state))
        await store.put(keys.beat(node), codec.encode(r.Beat(node=node, inc=1, seq=1, at=time.time())))
    await store.close()


def test_it_shows_what_agents_tell_and_people_decide(monitor: Monitor, etcd: str, cluster: str, chromium: Any) -> None:
    def text() -> str:
        return str(chromium.find_element("tag name", "body").text)

    asyncio.run(told(etcd, cluster, ["gpu01", "gpu02"]))
    chromium.get(monitor.url)
    eventually_sync(lambda: "leads, epoch" in text() and "2 nodes" in text(), 30, "the monitor leads, and sees")
    assert "gpu missing on 2 nodes (gpu01: NVML: no driver)" in text()
    eventually_sync(lambda: "2 of 2 nodes late or silent" in text(), 30, "their silence")
    monitor.command("cordon", "gpu02", "--reason", "ticket 4711")
    eventually_sync(lambda: "ticket 4711" in text(), 10, "the cordon")
    monitor.popen.kill()
    eventually_sync(lambda: "NOT LIVE since" in text(), 20, "that the monitor is gone")
