"""The same events as other kernels, drivers and loggers write them: missed, or told of the wrong place."""

from typing import Any

import msgspec
import pytest

from rankpulse.core import kernel_log
from rankpulse.core.kernel_reading import action

LOST = "NVRM: Xid (PCI:0000:05:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def told(text: str) -> dict[str, Any]:
    """Of the first line, with those that belong to it."""
    found: dict[str, Any] = msgspec.to_builtins(next(kernel_log.lines(text.split("\n"))).reading)
    return found


@pytest.mark.parametrize(
    "before",
    [
        "[Sep14 20:30] ",  # dmesg -H
        "<4>1 2024-09-02T01:02:03.123456Z node-a kernel - - [meta sequenceId=\"1\"] ",
        "Sep  2 01:02:03 node-a kern.warn kernel: ",  # busybox
        "Sep  2 01:02:03 node-a kern.warning kernel: [123.4] ",
        "sept. 02 01:02:03 node-a kernel: ",  # the journal writes months in the reader's language
        "Okt 02 01:02:03 node-a kernel: ",
        "10月 02 01:02:03 node-a kernel: ",
        "[Mo Sep  2 01:02:03 2024] ",
        "[lun. sept.  2 01:02:03 2024] ",
        "\ufeff",
    ],
)  # fmt: skip
def test_what_stands_before_a_line(before: str) -> None:
    found = {name: said for name, said in told(before + LOST).items() if name != "origin"}
    assert found == {"kind": "xid", "xid": 79, "pci_bus_id": "0000:05:00"}


@pytest.mark.parametrize(
    "line",
    [
        f"Sep  2 01:02:03 node-a kernel[4242]: {LOST}",  # a program that calls itself so: the kernel has no pid
        f"epoch 12 01:02:03 {LOST}",
        f"epoch 12 01:02:03 node-a trainer: {LOST}",
        f"[epoch 12 01:02:03] {LOST}",
        f"kern.warn {LOST}",
    ],
)
def test_a_program_that_repeats_it(line: str) -> None:
    assert told(line) == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (LOST[: LOST.index("known>, GPU")], {"kind": "xid", "xid": 79, "pci_bus_id": "0000:05:00"}),  # name=<un
        (f"NVRM: Xid (PCI:0000:06:{LOST}", {"kind": "xid", "xid": 79, "pci_bus_id": "0000:05:00"}),
        (f"NVRM: Xid (PCI:0000:06:00): {LOST}", {"kind": "xid", "xid": 79, "pci_bus_id": "0000:05:00"}),
        ("NVRM: Xid (PCI:" * 540, {}),
        ("NVRM: RmInitAdapter failed! (0x26:0xffff:1096)", {"kind": "gpu_init_failed"}),
        ("NVRM: rm_init_adapter(0) failed", {"kind": "gpu_init_failed"}),
        (
            "nvidia 0000:18:00.0: probe with driver nvidia failed with error -1",
            {"kind": "driver_probe_failed", "pci_bus_id": "0000:18:00.0"},
        ),
        (
            "[ 7.1] NVRM: API mismatch: the client 'nvidia-smi' (pid 1234)\n"
            "[ 7.1] NVRM: has the version 570.86.15, but this kernel module has\n"
            "[ 7.1] NVRM: the version 550.54.15.  Please make sure that this",
            {
                "kind": "driver_mismatch", "pid": 1234, "process_name": "nvidia-smi", "client_version": "570.86.15",
                "module_version": "550.54.15",
            },
        ),
    ],
)  # fmt: skip
def test_words_of_the_driver(line: str, expected: dict[str, Any]) -> None:
    assert told(line) == expected


CARD, PORT = "0000:0c:00.0", "0000:07:00.0"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mlx5_0:dump_cqe:278:(pid 1234): dump error cqe", {"kind": "nic_error"}),
        (
            f"ice {CARD} ens801f0: tx_timeout: VSI_num: 6, Q 12, NTC: 0x0",
            {"kind": "nic_error", "pci_bus_id": CARD, "interface": "ens801f0"},
        ),
        (
            f"ixgbe {CARD} eth0: Detected Tx Unit Hang",
            {"kind": "nic_error", "pci_bus_id": CARD, "interface": "eth0"},
        ),
        (
            f"bnxt_en {CARD} eth0: Error (timeout: 500015) msg {{0x23 0x7}} len:0",
            {"kind": "nic_error", "pci_bus_id": CARD, "interface": "eth0"},
        ),
        ("ib0: transmit timeout: latency 1234 msecs", {"kind": "nic_error", "interface": "ib0"}),
        (f"nvidia {PORT}:    [ 0] RxErr                  (First)", {"kind": "pcie_aer_detail", "pci_bus_id": PORT}),
        (f"nvidia {PORT}: AER:    [ 0] RxErr             (First)", {"kind": "pcie_aer_detail", "pci_bus_id": PORT}),
        (f"nvidia {PORT}:   Error of this Agent is reported first", {"kind": "pcie_aer_detail", "pci_bus_id": PORT}),
        (f"nvidia {PORT}: aer_status: 0x1, aer_mask: 0x0", {"kind": "pcie_aer_detail", "pci_bus_id": PORT}),
        (f"pcieport {PORT}: pciehp: Slot(12): Card not present", {"kind": "pcie_link_down", "pci_bus_id": PORT}),
        (
            "DMAR:[DMA Write] Request device [5e:00.0] fault addr 7f000",
            {"kind": "iommu_fault", "pci_bus_id": "0000:5e:00.0"},
        ),
        (
            "MCE 0x12345: Killing python3:1234 due to hardware memory corruption",
            {"kind": "mce", "pid": 1234, "process_name": "python3"},
        ),
        ("watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 3", {"kind": "hard_lockup"}),
    ],
)  # fmt: skip
def test_words_of_the_kernel(line: str, expected: dict[str, Any]) -> None:
    assert told(line) == expected


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        ("mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 1: be00000000800400", "drain_reboot"),
        ("[Hardware Error]: Uncorrected, software containable error.", "drain_reboot"),
        ("[Hardware Error]: System Fatal error.", "drain_reboot"),
        ("[Hardware Error]: Corrected error, no action required.", "ignore"),
        ("[Hardware Error]: Deferred error, no action required.", "ignore"),
        ("mce: [Hardware Error]: CPU 3: Machine Check: 0 Bank 7: 8c00004000010092", "ignore"),
        ("mce: [Hardware Error]: Machine check events logged", "ignore"),
    ],
)
def test_what_the_hardware_could_not_correct(line: str, asked: str) -> None:
    assert action(kernel_log.read(line)) == asked
