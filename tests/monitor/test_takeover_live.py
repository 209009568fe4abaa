"""Two monitors on a real etcd: the leader dies, the other leads under a higher epoch; a paused one steps back."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support import eventually_sync

pytestmark = pytest.mark.live


class Process:
    """A monitor in a process of its own; the place where it listens is read from its log."""

    def __init__(self, etcd: str, cluster: str) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "rankpulse.cli.main", "monitor", "--listen", "127.0.0.1:0", "--preset", "drill"],
            stderr=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**os.environ, "RANKPULSE_STORE": etcd, "RANKPULSE_CLUSTER": cluster},
        )
        assert self.popen.stderr is not None
        self.url = self.popen.stderr.readline().rsplit(" ", 1)[-1].strip().removesuffix("/state")

    def state(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/state", timeout=20) as answer:
            return dict(json.load(answer))

    def leads(self) -> bool:
        return bool(self.state()["leads"])

    def end(self) -> None:
        self.popen.kill()
        self.popen.wait()
        assert self.popen.stderr is not None
        self.popen.stderr.close()


@pytest.fixture
def start(etcd: str, cluster: str) -> Iterator[Callable[[], Process]]:
    made: list[Process] = []

    def one() -> Process:
        made.append(Process(etcd, cluster))
        return made[-1]

    yield one
    for process in made:
        process.end()


def test_the_other_takes_over_from_a_killed_leader(start: Callable[[], Process]) -> None:
    first = start()
    eventually_sync(first.leads, 20, "the first to lead")
    second = start()
    eventually_sync(lambda: second.state()["leader"], 20, "the second to see the leader")
    assert not second.leads()
    before = first.state()["epoch"]
    first.popen.kill()
    eventually_sync(second.leads, 30, "the second to take over")
    assert second.state()["epoch"] > before


def test_a_clean_stop_hands_over_and_a_paused_leader_steps_back(start: Callable[[], Process]) -> None:
    first = start()
    eventually_sync(first.leads, 20, "the first to lead")
    second = start()
    first.popen.send_signal(signal.SIGSTOP)
    eventually_sync(second.leads, 30, "the second to take over from the paused one")
    first.popen.send_signal(signal.SIGCONT)
    eventually_sync(lambda: first.state()["epoch"] == second.state()["epoch"], 20, "the paused one to see the other")
    assert not first.leads()
    second.popen.terminate()
    assert second.popen.wait(timeout=15) == 0
    eventually_sync(first.leads, 20, "the first to lead again")


def test_a_monitor_waits_for_its_store(cluster: str) -> None:
    from rankpulse.store.embedded import EmbeddedEtcd

    with EmbeddedEtcd() as own:
        own.kill()
        process = Process(own.endpoint, cluster)
        try:
            eventually_sync(lambda: own.endpoint in process.state()["blind_reason"], 20, "the reason to be shown")
            with urllib.request.urlopen(f"{process.url}/healthz", timeout=20) as answer:
                assert answer.status == 200
            with pytest.raises(urllib.error.HTTPError, match="503"):
                urllib.request.urlopen(f"{process.url}/readyz", timeout=20)
            own.restart()
            eventually_sync(process.leads, 30, "the monitor to lead once its store is there")
        finally:
            process.end()
