"""The machine around the GPUs, in directories of ours."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from support import eventually

from rankpulse.agent import host_watch
from rankpulse.agent.clock import Clock
from rankpulse.agent.facts import Fact
from rankpulse.agent.gpu_books import GpuBooks
from rankpulse.agent.host_watch import HostWatch
from rankpulse.agent.preflight_look import Look
from rankpulse.core.gpu_plan import Plan
from rankpulse.core.settings import GpuSettings, PreflightSettings

QUIET = "some avg10=0.00 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n"


class Machine:
    def __init__(self, root: Path, **preflight: Any) -> None:
        self.root, self.facts = root, list[Fact]()
        self.write("proc/pressure/memory", QUIET)
        self.interface("eth0", "up", 1)
        plan = Plan(15, 60, 30, 900)
        books = GpuBooks(GpuSettings(host_poll_s=0.05), 0, Clock(), self.facts.append, lambda *_: None, plan)
        self.watch = HostWatch(books, Look(PreflightSettings(**preflight), gpus=False), str(root))

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def interface(self, name: str, state: str, downs: int) -> None:
        self.write(f"sys/class/net/{name}/operstate", f"{state}\n")
        self.write(f"sys/class/net/{name}/carrier_down_count", f"{downs}\n")
        (self.root / f"sys/class/net/{name}/device").mkdir(exist_ok=True)

    def card(self, state: str, downs: int) -> None:
        self.write("sys/class/infiniband/mlx5_0/ports/1/state", f"{state}\n")
        self.write("sys/class/infiniband/mlx5_0/ports/1/counters/link_downed", f"{downs}\n")

    def process(self, pid: int, state: str, name: str = "python") -> None:
        self.write(f"proc/{pid}/stat", f"{pid} ({name}) {state} 1 " + " ".join(map(str, range(3, 50))))

    def told(self) -> list[tuple[Any, Any]]:
        return [(fact.detail["how"], fact.detail["what"]) for fact in self.facts]


def test_a_machine_that_is_well_says_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.watch.at_once()
    assert machine.facts == []
    assert machine.watch.samples("h")["rankpulse_host_port_up"] == {("h", "eth0"): 1.0}


def test_a_machine_that_tells_nothing_says_nothing(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "a")
    machine.watch.root = str(tmp_path / "none")
    machine.watch.at_once()
    assert (machine.facts, machine.watch.pressure) == ([], None)


def test_memory_links_and_their_flaps(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.watch.at_once()
    machine.write("proc/pressure/memory", QUIET.replace("avg60=0.00", "avg60=33.00"))
    machine.interface("eth0", "down", 2)
    machine.watch.at_once()
    machine.write("proc/pressure/memory", QUIET)
    machine.interface("eth0", "up", 2)
    machine.watch.at_once()
    machine.interface("eth0", "up", 3)
    machine.watch.at_once()
    assert machine.told() == [
        ("opened", "memory_pressure"), ("opened", "network_link"), ("cleared", "memory_pressure"),
        ("cleared", "network_link"), ("seen", "network_link_flap"),
    ]  # fmt: skip


@pytest.mark.live
async def test_cards_and_directories_that_may_hang_are_looked_at_by_a_process(tmp_path: Path) -> None:
    machine = Machine(tmp_path, checkpoint_dir=str(tmp_path), checkpoint_free_mb=0)
    machine.card("4: ACTIVE", 0)
    machine.watch.look.ports = str(tmp_path / "sys/class/infiniband")
    await machine.watch.what_may_hang()
    assert machine.facts == []
    machine.card("1: DOWN", 1)
    machine.watch.look.settings = PreflightSettings(checkpoint_dir=str(tmp_path / "gone"))
    await machine.watch.what_may_hang()
    assert machine.told() == [("opened", "checkpoint_directory"), ("opened", "rdma_port")]
    machine.card("4: ACTIVE", 1)
    machine.watch.look.settings = PreflightSettings(checkpoint_dir=str(tmp_path), checkpoint_free_mb=0)
    await machine.watch.what_may_hang()
    assert machine.told()[2:] == [("cleared", "checkpoint_directory"), ("cleared", "rdma_port")]


@pytest.mark.live
async def test_a_card_that_holds_up_who_reads_it_is_told_of(tmp_path: Path) -> None:
    machine = Machine(tmp_path, look_timeout_s=1.0)
    machine.card("4: ACTIVE", 0)
    os.unlink(tmp_path / "sys/class/infiniband/mlx5_0/ports/1/state")
    os.mkfifo(tmp_path / "sys/class/infiniband/mlx5_0/ports/1/state")  # nobody ever writes
    machine.watch.look.ports = str(tmp_path / "sys/class/infiniband")
    await machine.watch.what_may_hang()
    assert machine.told() == [("opened", "rdma_hangs")]


async def test_processes_that_stay_stuck(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.process(7, "D")
    machine.process(8, "S")
    (tmp_path / "proc/9").mkdir()
    assert [one.pid for one in await machine.watch._stuck()] == [7]
    task = asyncio.create_task(machine.watch.run())
    await eventually(lambda: ("opened", "stuck_processes") in machine.told(), 10, "the finding")
    machine.process(7, "R")
    await eventually(lambda: ("cleared", "stuck_processes") in machine.told(), 10, "its end")
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_the_clock_says_how_far_it_may_be_off_or_nothing() -> None:
    error = host_watch.clock_error_s()
    assert error is None or error >= 0
