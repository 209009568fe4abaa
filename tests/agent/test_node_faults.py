"""Events of the driver and lines of the kernel become one fault, told once."""

from pathlib import Path
from typing import Any

import pytest

from rankpulse.agent import health_kept
from rankpulse.agent.clock import Clock
from rankpulse.agent.facts import Fact
from rankpulse.agent.folder import private
from rankpulse.agent.gpu_books import GpuBooks
from rankpulse.agent.node_faults import NodeFaults
from rankpulse.core import kernel_log
from rankpulse.core.gpu_plan import Plan
from rankpulse.core.health_book import Condition
from rankpulse.core.settings import GpuSettings

BUS = "0000:0f:00"
LOST = "NVRM: Xid (PCI:0000:0f:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
TWIN = "NVRM: GPU 0000:0f:00.0: GPU has fallen off the bus."
ECHO = "NVRM: Xid (PCI:0000:0f:00): 45, pid=4711, name=python, Ch 00000008"
FAULT = "NVRM: Xid (PCI:0000:0f:00): 31, pid=4711, name=python, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS"
ASKS = "NVRM: Xid (PCI:0000:0f:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"
RESET = "NVRM: Xid (PCI:0000:0f:00): 119, pid=4711, name=python, Timeout after 6s of waiting for RPC response"


class Node:
    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self.books = GpuBooks(
            GpuSettings(), 0, Clock(), self.facts.append, lambda *_: None, Plan(15.0, 60.0, 30.0, 900.0)
        )
        self.faults = NodeFaults(self.books)

    def line(self, text: str, at: float) -> "Node":
        self.faults.line(kernel_log.read(text), at, text)
        return self

    def event(self, code: int, at: float) -> "Node":
        self.faults.event(BUS, code, at, None, None)
        return self

    def told(self) -> list[tuple[Any, ...]]:
        return [tuple(fact.detail[name] for name in ("how", "what", "action")) for fact in self.facts]


@pytest.mark.parametrize("event_first", [True, False])
def test_event_line_and_twin_are_one_fault(event_first: bool) -> None:
    node = Node()
    if event_first:
        node.event(79, 100.0)
    node.line(LOST, 101.0).line(TWIN, 101.1)
    if not event_first:
        node.event(79, 102.0)
    assert node.told() == [("opened", "xid_79", "drain_reboot")]
    assert node.books.gpus[BUS].xids[79].times == 1


def test_echoes_are_counted_and_accuse_nobody() -> None:
    node = Node().line(FAULT, 100.0).line(ECHO, 100.2).event(45, 100.3)
    assert node.told() == [("seen", "xid_31", "restart_app")]
    assert {code: one.times for code, one in node.books.gpus[BUS].xids.items()} == {31: 1, 45: 1}
    assert node.books.gpus[BUS].book.open == []


def test_what_the_driver_asks_for_makes_the_fault_heavier() -> None:
    node = Node().line(RESET, 100.0)
    assert node.told() == [("opened", "xid_119", "reset_gpu")]
    node.line(ASKS, 103.0)
    assert node.told()[1:] == [("changed", "xid_119", "drain_reboot")]
    assert node.books.gpus[BUS].action == "drain_reboot"


def test_a_storm_is_one_fault_and_few_observations() -> None:
    node = Node()
    for number in range(2000):
        node.line(FAULT, 100.0 + 0.01 * number)
    assert len(node.facts) == 1
    for number in range(2000):
        node.line(FAULT, 1000.0 + 10.0 * number)
    assert node.books.gpus[BUS].xids[31].times == 2001
    assert len(node.facts) < 20


def test_what_somebody_wrote_into_the_log_is_told_as_such_and_not_believed() -> None:
    node = Node()
    reading = kernel_log.read(LOST)
    node.faults.line(type(reading)(**{**_fields(reading), "origin": "user"}), 100.0)
    (fact,) = node.facts
    assert (fact.detail["injected"], fact.detail["what"], fact.detail["how"]) == (True, "xid_79", "seen")
    assert node.books.gpus == {}


def test_a_drill_may_have_it_believed() -> None:
    node = Node()
    node.faults.believe_injected = True
    node.faults.line(type(reading := kernel_log.read(LOST))(**{**_fields(reading), "origin": "user"}), 100.0)
    assert node.told() == [("opened", "xid_79", "drain_reboot")]
    assert str(node.facts[0].detail["text"]).startswith("injected: ")


def test_what_an_earlier_agent_told_is_known_and_not_told_again() -> None:
    node = Node()
    node.faults.known(kernel_log.read(RESET), 100.0)
    assert node.told() == []
    node.line(RESET, 9000.0)
    assert node.told() == [("opened", "xid_119", "drain_reboot")]  # the second time is one too many


def test_links_that_go_and_come_back_are_of_the_node() -> None:
    node = (
        Node().line("mlx5_core 0000:3b:00.0 eth2: Link down", 100.0).line("mlx5_core 0000:3b:00.0 eth2: Link up", 130.0)
    )
    assert [how for how, *_ in node.told()] == ["opened", "cleared"]


def test_a_link_that_comes_back_says_nothing_of_another() -> None:
    node = Node()
    for port, how, at in ((0, "down", 100.0), (1, "down", 110.0), (0, "up", 130.0)):
        node.line(f"mlx5_core 0000:3b:00.{port} eth{port}: Link {how}", at)
    assert [one.what for one in node.books.book.open] == ["nic_link_down"]
    node.line("mlx5_core 0000:3b:00.1 eth1: Link up", 140.0)
    assert [how for how, *_ in node.told()] == ["opened", "cleared"]


def test_a_port_without_a_cable_makes_no_machine_ill() -> None:
    node = Node().line("mlx5_core 0000:3b:00.1 eth1: Link down", 20.0)
    assert [(one.what, one.level) for one in node.books.book.open] == [("nic_link_down", "watch")]


def test_what_the_kernel_said_of_the_machine_outlives_the_agent_and_not_the_boot(tmp_path: Path) -> None:
    before, folder = Node(), private(str(tmp_path / "spool"))
    before.line("nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up", 100.0)
    before.books.told(before.books.book.found("nvml", Condition("sick", "inspect", "looked at anew"), 101.0))
    health_kept.save(folder, "boot-1", before.books)
    after, rebooted = Node(), Node()
    health_kept.restore(folder, "boot-1", after.books)
    health_kept.restore(folder, "boot-2", rebooted.books)
    assert [one.what for one in after.books.book.open] == ["sxid_20034"]
    assert (after.told(), rebooted.books.book.open) == ([], [])


def test_memory_that_ran_out_is_told_and_over() -> None:
    node = Node().line(
        "Out of memory: Killed process 4711 (python) total-vm:1kB, anon-rss:1kB, file-rss:0kB, shmem-rss:0kB, UID:0",
        100.0,
    )
    assert node.told() == [("seen", "oom_kill", "restart_app")]


def _fields(reading: Any) -> dict[str, Any]:
    return {name: getattr(reading, name) for name in reading.__struct_fields__}


def test_what_an_earlier_agent_found_is_known_and_words_that_are_not_ours_are_passed_over(tmp_path: Path) -> None:
    before, folder = Node().line(LOST, 101.0), private(str(tmp_path / "spool"))
    health_kept.save(folder, "boot-1", before.books)
    kept = folder.read("gpus.health", 1 << 20)
    foreign = b'{"what":"new","level":"dire","action":"pray","text":"","first_at":1.0,"last_at":1.0}'
    folder.write("gpus.health", kept.replace(b'"findings":[', b'"findings":[' + foreign + b","))
    after, rebooted = Node(), Node()
    health_kept.restore(folder, "boot-1", after.books)
    health_kept.restore(folder, "boot-2", rebooted.books)
    gpu = after.books.gpus[BUS]
    assert ([one.what for one in gpu.book.open], gpu.level, gpu.action) == (["xid_79"], "broken", "drain_reboot")
    assert (gpu.xids[79].times, after.told(), rebooted.books.gpus) == (1, [], {})
