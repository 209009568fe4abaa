"""Lines of the kernel as they are found in the wild: each says one thing, and what only looks like it says nothing."""

import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import kernel_log
from rankpulse.core.kernel_prefix import UP, WALL, YEARLESS, strip
from rankpulse.core.kernel_reading import NONE, Reading, action, role

CASES = [json.loads(line) for line in (Path(__file__).parent / "kmsg_cases.jsonl").read_text().splitlines()]
LOST = "NVRM: Xid (PCI:0000:05:00): 79, pid=7, name=python3, GPU has fallen off the bus."


def told(line: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.to_builtins(kernel_log.read(line))
    return {"kind": NONE, "xid": None, "pci_bus_id": None, "pid": None, "process_name": None, **found}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
def test_every_collected_line_reads_as_stated(case: dict[str, Any]) -> None:
    found = told(case["line"])
    assert {name: found.get(name) for name in case["expected"]} == case["expected"]


# the line, and what is told of it; what is not named here is not told
READ = [
    # XID as drivers of twenty years wrote it
    ("NVRM: Xid: 13, 0000 02005600 00000056 00000c28 01400000 00000080", {"xid": 13}),
    ("NVRM: Xid (0001:00): 8, Channel 00000002", {"xid": 8, "pci_bus_id": "0000:01:00"}),
    ("NVRM: Xid (0002:00): 13, 0001 00000000 0000502d", {"xid": 13, "pci_bus_id": "0000:02:00"}),
    ("NVRM: Xid (0000:03:00): 14, Channel 00000001", {"xid": 14, "pci_bus_id": "0000:03:00"}),
    ("NVRM: Xid (PCI:10000:E1:00): 79, pid=0, x", {"xid": 79, "pci_bus_id": "10000:e1:00", "pid": 0}),
    ("NVRM: Xid (PCI:00000000:0F:00.0): 48, pid=1", {"xid": 48, "pci_bus_id": "0000:0f:00", "pid": 1}),
    ("NVRM: Xid (PCI:0000:AB:1C): 31, pid=XXX", {"xid": 31, "pci_bus_id": "0000:ab:1c"}),
    ("NVRM: Xid (PCI:0000:05:00): 99999, unknown error", {"xid": 99999, "pci_bus_id": "0000:05:00"}),
    (
        "NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:01): 43, pid=7, name=a, Ch 00000008",
        {"xid": 43, "pci_bus_id": "0000:01:00", "process_name": "a", "gpu_instance": 5, "compute_instance": 1},
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406",
        {"xid": 149, "pci_bus_id": "0018:01:00", "subcomponent": "NETIR", "fatal": True, "link": -1},
    ),
    (
        "NVRM: Xid (PCI:0018:01:00): 145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x04",
        {
            "xid": 145,
            "pci_bus_id": "0018:01:00",
            "pid": 876767,
            "process_name": "ray::WorkerDict",
            "subcomponent": "RLW_RXPIPE",
            "fatal": False,
            "link": 13,
        },
    ),
    (
        "NVRM: Xid (PCI:0000:05:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6(0x1",
        {"xid": 74, "pci_bus_id": "0000:05:00", "fatal": True, "link": 6},
    ),
    (
        "NVRM: Xid (PCI:0019:01:00): 154, GPU recovery action changed from 0x4 (Drain and Reset) to 0x1 (PF FLR)",
        {"xid": 154, "pci_bus_id": "0019:01:00", "recovery_action": {"from": 4, "to": 1}},
    ),
    (
        "NVRM: Xid (PCI:0019:01:00): 154, GPU recovery action changed from 0x0 (None) to 074 (x)",
        {"xid": 154, "recovery_action": {"from": 0, "to": 74}},
    ),
    ("NVRM: Xid (PCI:0019:01:00): 154, GPU recovery action cha", {"xid": 154, "pci_bus_id": "0019:01:00"}),
    # names are the program's choice
    ("NVRM: Xid (PCI:0000:05:00): 31, pid=12, name=my, job, Ch 00000008, intr 1", {"process_name": "my, job"}),
    ('NVRM: Xid (PCI:0000:05:00): 31, pid=12, name=it\'s "x", Ch 00000008', {"process_name": 'it\'s "x"'}),
    ("NVRM: Xid (PCI:0000:05:00): 31, pid=12, name=a:b): 79, Ch 00000008", {"xid": 31, "process_name": "a:b): 79"}),
    ("NVRM: Xid (PCI:0000:05:00): 31, pid=12, name=python3, some words, Ch 0", {"process_name": "python3"}),
    # cut lines
    ("NVRM: Xid (PCI:0000:05:00): 79", {"xid": 79, "pci_bus_id": "0000:05:00"}),
    ("NVRM: Xid (PCI:0000:05:00): 79, pid='<unk", {"xid": 79, "pci_bus_id": "0000:05:00"}),
    ("NVRM: Xid (PCI:0000:05:00): 79, pid=12, name=pyth", {"xid": 79, "pid": 12, "process_name": "pyth"}),
    # the driver without a number
    ("NVRM: GPU 0000:29:00.0: GPU has fallen off the bus.", {"kind": "gpu_lost", "pci_bus_id": "0000:29:00"}),
    ("NVRM: GPU at 0000:29:00: GPU-4c2a", {"kind": "gpu_uuid_map", "pci_bus_id": "0000:29:00", "gpu_uuid": "GPU-4c2a"}),
    (
        "NVRM: Rate limiting GSP RPC error prints for GPU at PCI:0000:9b:00 (printing 1 of every 30).",
        {"kind": "gsp_stall", "pci_bus_id": "0000:9b:00"},
    ),
    (
        "NVRM: GPU 0000:0a:00.0: rm_init_adapter failed, device minor number 3",
        {"kind": "gpu_init_failed", "pci_bus_id": "0000:0a:00"},
    ),
    ("nvidia: probe of 0000:18:00.0 failed with error -1", {"kind": "driver_probe_failed"}),
    (
        "NVRM: API mismatch: the client 'nvidia-smi' (pid 9) has the version 535.54.03, but\\x0aNVRM: this kernel "
        "module has the version 530.30.02.",
        {
            "kind": "driver_mismatch",
            "pid": 9,
            "process_name": "nvidia-smi",
            "client_version": "535.54.03",
            "module_version": "530.30.02",
        },
    ),
    (
        "nvidia-nvswitch0: SXid (PCI:0000:A9:00.0): 20034, Data {0x50610002, 0x10100030}",
        {"kind": "sxid", "pci_bus_id": "0000:a9:00.0", "sxid": 20034, "switch": 0, "continuation": True},
    ),
    # links, cards, PCIe
    ("mlx5_port_module_event:1131:(pid 0): Port module event[error]: module 0, Cable error", {"kind": "nic_error"}),
    ("mlx5_core 0000:5c:00.0: Port module event: module 0, Cable unplugged", {"kind": "nic_link_down"}),
    (
        "mlx5_core 0000:0d:00.0 enp13s0f0np0: Link down",
        {"kind": "nic_link_down", "pci_bus_id": "0000:0d:00.0", "interface": "enp13s0f0np0"},
    ),
    ("igb 0000:02:00.0 eno1: igb: eno1 NIC Link is Down", {"kind": "nic_link_down", "interface": "eno1"}),
    ("r8169 0000:02:00.0 enp2s0: Link is Up - 1Gbps/Full", {"kind": "nic_link_up", "interface": "enp2s0"}),
    (
        "efa 0000:00:1e.0 rdmap0s30: Failed to process command GET_STATS (opcode 11) comp_status 7 err -22",
        {"kind": "nic_error", "pci_bus_id": "0000:00:1e.0"},
    ),
    ("bond0: (slave eno50): link status definitely down, disabling slave", {"interface": "eno50"}),
    (
        "mlx5_core 0000:0d:00.0 eth2: NETDEV WATCHDOG: CPU: 3: transmit queue 12 timed out 5000 ms",
        {"kind": "nic_error", "pci_bus_id": "0000:0d:00.0", "interface": "eth2"},
    ),
    (
        "pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010",
        {"kind": "pcie_aer", "pci_bus_id": "0000:00:02.0", "aer_severity": "fatal"},
    ),
    (
        "nvidia 0000:02:00.0: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer",
        {"kind": "pcie_aer", "aer_severity": "nonfatal"},
    ),
    ("nvidia 0000:02:00.0:   device [10de:20b0] error status/mask=00100000/00000000", {"kind": "pcie_aer_detail"}),
    ("DMAR: [DMA Write] Request device [01:00.0] fault addr fffc0000", {"pci_bus_id": "0000:01:00.0"}),
    # the machine
    ("EDAC MC0: 1 UE memory read error on CPU_SrcID#0", {"kind": "edac", "edac": "UE", "count": 1}),
    ("{1}[Hardware Error]: event severity: fatal", {"kind": "mce", "severity": "fatal"}),
    (
        "INFO: task kworker/u512:3+mlx5:4411 blocked for more than 122 seconds.",
        {"kind": "hung_task", "pid": 4411, "process_name": "kworker/u512:3+mlx5"},
    ),
    (
        "Memory cgroup out of memory: Killed process 4321 (python3) total-vm:1kB",
        {"kind": "oom_kill", "pid": 4321, "process_name": "python3", "scope": "cgroup"},
    ),
    ("Out of memory: Killed process 99 ((sd-pam)) total-vm:1kB", {"kind": "oom_kill", "process_name": "(sd-pam)"}),
    (
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,task_memcg=/a,task=py,thon,pid=4321,uid=0",
        {"kind": "oom_kill", "pid": 4321, "process_name": "py,thon", "scope": "cgroup"},
    ),
    ("segfault at 7f79 ip 00007f7c sp 00007f7c error 4 in libnccl.so", {"kind": "segfault", "library": "libnccl.so"}),
    ("EXT4-fs error (device nvme0n1p1): ext4_find_entry:1455: inode #2", {"kind": "disk_error"}),
]


@pytest.mark.parametrize(("line", "wanted"), READ)
def test_lines_like_them_are_read_too(line: str, wanted: dict[str, Any]) -> None:
    found = told(f"[  123.456789] {line}")
    assert {name: found.get(name) for name in wanted} == wanted
    if "xid" in wanted:
        assert found["kind"] == "xid"
        assert found["pid"] == wanted.get("pid", found["pid"])


AROUND = [
    "{}",
    "[  123.456] {}",
    "[...] {}",
    "[  +0.000844] {}",
    "[  123.456789][ T1234] {}",
    "[  123.456 <    0.001>] {}",
    "kern  :err   : [  123.456] {}",
    "kern  :warn  : [Tue Jan 21 04:41:44 2025] {}",
    "<4>[  123.456] {}",
    "Jun 12 16:26:10 node-a kernel: {}",
    "Jun 12 16:26:10.123456 node-a kernel: [  123.456] {}",
    "<4>Jun  2 16:26:10 n kernel: {}",
    "2025-01-21T04:41:44+0530 node-a kernel: {}",
    "2025-01-21T04:41:44.283575Z node-a kernel: [ 1.5] {}",
    "2025-01-21T04:41:44,283575-08:00 {}",
    "2025-01-21T04:41:44-08 node-a kernel: {}",
    "2025-01-21T04:41:44 {}",
    "2025-01-21 04:41:44 node-a kernel: {}",
    "[2025-01-21 04:41:44.123] {}",
    "Tue 2025-01-21 04:41:44 UTC node-a kernel: {}",
    "2025-01-21T04:41:44.283575123Z stdout F {}",
    "2025-01-21T04:41:44.283575123Z stderr F [  123.456] {}",
    "kmsg-reader-1  | [  123.456] {}",
    "[pod/kmsg-abc/reader] 2025-01-21T04:41:44Z node-a kernel: {}",
    "1700000000.123456 node-a kernel: {}",
    "<3>1 2025-01-21T04:41:44.283575Z node-a kernel - - - {}",
    "3,1733,48429999,-,caller=T123;{}",
    "fe80::1 kernel: {}",
    "    {}",
    "{}\r",
    "\x1b[32m[  123.456] \x1b[0m\x1b[31m{}\x1b[0m",
    '{{"MESSAGE":"{}","_TRANSPORT":"kernel","SYSLOG_FACILITY":"0"}}',
    '{{"log":"[ 1.5] {}\\n","stream":"stdout"}}',
]


@pytest.mark.parametrize("around", AROUND)
def test_whatever_loggers_put_around_it(around: str) -> None:
    found = kernel_log.read(around.format(LOST))
    assert (found.kind, found.xid, found.pci_bus_id, found.pid, found.process_name) == (
        "xid", 79, "0000:05:00", 7, "python3"
    )  # fmt: skip
    assert not found.injected


NEVER = [
    "Jun 12 16:26:10 node-a python[99]: {}",
    "Jun 12 16:26:10 node-a nvidia-logger: {}",
    "[12.3] systemd[1]: {}",
    'echo "{}"',
    "[ERROR] {}",
    "app: kernel: {}",
    "user-app[812]: would print '{}' here",
    "# {}",
    "kernel {}",
    '{{"MESSAGE":"{}","_TRANSPORT":"syslog","SYSLOG_IDENTIFIER":"kernel"}}',
    "[ 1.5] [ 2.5] {}",
    "audit: msg='{}'",
]


@pytest.mark.parametrize("around", NEVER)
def test_what_programs_print_is_not_the_kernels(around: str) -> None:
    assert kernel_log.read(around.format(LOST)) == Reading()


@pytest.mark.parametrize("around", ["12,1,2,-;{}", "<12>[  1.5] {}", "user  :warn  : [  1.5] {}", "<30>{}"])
def test_what_was_written_into_the_log_is_marked(around: str) -> None:
    found = kernel_log.read(around.format(LOST))
    assert found.xid == 79
    assert found.injected


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid",
        "NVRM: Xid (",
        "NVRM: Xid (PCI:0000:05:00)",
        "NVRM: Xid (PCI:0000:05:00): ",
        "NVRM: Xid (PCI:0000:05:00): , x",
        "NVRM: Xid (PCI:0000:05:00): 11",
        "NVRM: Xid (PCI:0000:05:00): 1",
        "NVRM: Xid (PCI:0000:05:00): 7x, a",
        "NVRM: Xid (invalid): some error",
        "NVRM: Xid error: 79, GPU",
        "NVRM: Xid: 24007, Fatal, Link 28 sour (43, pid: 5678)",
        "NVRM: Xid (PCI:0000:05): 79, GPU",
        "NVRM: XID 79",
        "NVRM: Xid (PCI:0000:05:00): -79, GPU",
        "NVRM: Xid (PCI:0000:05:00): 79999999999999999999, GPU",
        "NVRM:Xid (PCI:0000:05:00): 79, G",
        "NVRM: _kgspLogXid119: ****** GSP Timeout ******",
        "NVRM: The NVIDIA GPU invalid-bdf.0\nNVRM: fallen off the bus",
        "NVRM: NVLink link training completed",
        "Killed process invalid (test)",
        "INFO: task xyz blocked for more than 60 seconds.",
        "ata1: SATA link down (SStatus 0 SControl 300)",
        "EDAC MC: Ver: 3.0.0",
        "mce: CPU supports 20 MCE banks",
        "",
        "mlx5_core 0000:0d:00.0: firmware version: 20.31.1014",
        "---[ end Kernel panic - not syncing: x ]---",
        "enabled: Link down",
    ],
)
def test_near_misses_say_nothing(line: str) -> None:
    assert kernel_log.read(line) == Reading()


def test_stamps_become_times() -> None:
    assert strip("[  123.456] x")[2:4] == (UP, 123.456)
    assert strip("6,1,2500000,-;x")[2:4] == (UP, 2.5)
    assert strip("2025-01-21T04:41:44.5+05:30 h kernel: x")[2:4] == (WALL, 1737414704.5)
    assert strip("2025-01-21T04:41:44-0800 h kernel: x")[2:4] == (WALL, 1737463304.0)
    assert strip("[Tue Jan 21 04:41:44 2025] x")[2:4] == (WALL, 1737434504.0)
    first, second = strip("Feb 29 23:59:59 h kernel: x"), strip("Mar  1 00:00:01 h kernel: x")
    assert (first.clock, second.clock) == (YEARLESS, YEARLESS)
    assert second.at is not None
    assert first.at == second.at - 2


def test_a_message_over_several_lines_is_told_once() -> None:
    texts = [
        "[    5.0] NVRM: The NVIDIA GPU 0000:18:00.0",
        "           NVRM: (PCI ID: 10de:2901) installed in this system has",
        "           NVRM: fallen off the bus and is not responding to commands.",
        "[    6.0] NVRM: The NVIDIA GPU 0000:19:00.0",
        f"[    6.1] {LOST}",
        "[    7.0] NVRM: API mismatch: the client has the version 535.54.03, but",
        "[    7.0] NVRM: this kernel module has the version 530.30.02.  Please",
    ]
    found = list(kernel_log.lines(texts))
    assert [line.number for line in found] == [1, 2, 3, 4, 5, 6, 7]
    kinds = [line.reading.kind for line in found]
    assert kinds == ["gpu_lost", "none", "none", "none", "xid", "driver_mismatch", "none"]
    assert found[5].reading.module_version == "530.30.02"


NASTY = [
    "[",
    "[1",
    "[+1",
    "Jan",
    "Jan 1",
    "[Mon Jan 1",
    "2025-01-21T04:41:44",
    "kern :",
    "<1>",
    "a ",
    "a:",
    "kernel:",
    "h kernel: [1",
    "NVRM: ",
    "NVRM: Xid (PCI:0000:05:00): 154, from 1",
    "NVRM: Xid (PCI:0000:05:00): 13, name=",
    "NVRM: GPU at ",
    "A_",
    "mlx5_core ",
    "mlx5_core A",
    "mlx5_core 0000:0d:00.0: Wait for completion ",
    "traps: a[1] ",
    "oom-kill:constraint=A,",
    "INFO: task ",
    "a[1]: segfault at ",
    "nvidia 0000:02:00.0: ",
    "DMAR: [DMA",
    "XFS (a): ",
    "Out of memory",
    "EDAC MC",
    "{",
    '{"MESSAGE":',
    "\x1b[",
    "#033[",
    "x | ",
    "GPU at ",
    "from 1 ",
]


@pytest.mark.parametrize("start", NASTY)
@pytest.mark.parametrize(
    "more", [" ", "  a", "A", "a, ", "1", "(", "[", "0x0 ", "GPU at ", "\\n", ":", "Wait for completion "]
)
def test_no_line_takes_long(start: str, more: str) -> None:
    began = time.process_time()
    for line in (start + more * (8192 // len(more)), f"[ 1.5] {start}{more * 4000}"):
        kernel_log.read(line)
    assert time.process_time() - began < 0.25


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    found = kernel_log.read(text)
    assert (role(found) is None) == (action(found) is None)


@given(st.sampled_from([case["line"] for case in CASES]), st.data())
def test_broken_lines_are_read(line: str, data: st.DataObject) -> None:
    """Bytes changed, lost and doubled: nothing raises, and what is told is of the kinds that there are."""
    raw = bytearray(line.encode())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, max(0, len(raw) - 1)))
        raw[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    found = kernel_log.read(raw.decode("utf-8", "replace"))
    assert msgspec.json.encode(found)
    assert (found.xid is not None) == (found.kind == "xid")


@pytest.mark.parametrize(
    "case", [case for case in CASES if case["expected"]["kind"] == "xid"], ids=lambda case: case["id"]
)
def test_a_cut_line_tells_its_number_or_nothing(case: dict[str, Any]) -> None:
    for end in range(len(case["line"])):
        assert kernel_log.read(case["line"][:end]).xid in (None, case["expected"]["xid"])
