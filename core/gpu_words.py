"""Faults of GPUs in words: what is lost or broken, where, by whose word, and what is to be done. Pure."""

from collections.abc import Sequence
from typing import Final

from rankpulse.core import xid_catalogue as catalogue
from rankpulse.core.faults import INJECTED, KERNEL, LOST
from rankpulse.core.gpu_faults import action, code, lead
from rankpulse.core.health_book import INSPECT
from rankpulse.core.naming import names_in_words
from rankpulse.core.records import DeviceFault

NAMED: Final = 8
_TITLES: Final = {
    f"xid_{LOST}": "GPU lost",
    "lost": "GPU lost",
    "missing": "GPUs missing",
    "nvml": "NVML does not start",
    "nvml_stuck": "GPU driver does not answer",
    "probe_stuck": "GPU does not answer",
    "reset_required": "GPU waits for a reset",
    "recovery_action": "GPU waits for its recovery",
    "remap_failed": "GPU memory cannot be repaired",
    "sram_threshold": "GPU memory is worn out",
    "corrected_errors": "storm of corrected memory errors",
    "nvlink_down": "NVLink down",
    "fabric": "not in its NVLink fabric",
    "fabric_health": "NVLink fabric is unwell",
    "pcie_width": "PCIe link of a GPU is narrow",
}
SOURCES: Final = {KERNEL: "the kernel's log", "nvml": "the driver's event", INJECTED: "injected into the kernel's log"}
WORDS: Final = catalogue.ACTION_WORDS | {INSPECT: "look at it"}


def title(faults: Sequence[DeviceFault]) -> str:
    """In one line: what, where, and whether somebody made it up."""
    first = lead(faults)
    made_up = " (injected)" if first.source == INJECTED else ""
    return f"{short(first)}: {_where(faults)}{made_up}"


def short(fault: DeviceFault) -> str:
    number = code(fault)
    told = _TITLES.get(fault.what)
    if told is not None:
        return f"{told} (Xid {number})" if number is not None else told
    if number is None:
        return fault.text
    if fault.what.startswith("sxid_"):
        return f"NVSwitch fault: SXid {number}, {catalogue.of_switch(number).meaning}"
    return f"GPU fault: Xid {number}, {catalogue.of(number).meaning}"


def _where(faults: Sequence[DeviceFault]) -> str:
    first = lead(faults)
    where = device(first)
    others = {(one.node, one.bus) for one in faults} - {(first.node, first.bus)}
    elsewhere = sorted({node for node, _ in others} - {first.node})
    here = len(others) - sum(1 for node, _ in others if node != first.node)
    where += f" and {here} more there" if here else ""
    return where + (f", and on {names_in_words(elsewhere, 4)}" if elsewhere else "")


def device(fault: DeviceFault) -> str:
    """Where to look: node, number and place on the bus."""
    if not fault.bus:
        return fault.node
    number = f" {fault.index}" if fault.index >= 0 else ""
    return f"{fault.node}, GPU{number} at {fault.bus}"


def reasons(faults: Sequence[DeviceFault]) -> tuple[str, ...]:
    """Who told what of which device, and what is to be done about it."""
    first = lead(faults)
    told = [_told(one) for one in sorted(faults, key=lambda one: (one is not first, bool(one.cleared)))[:NAMED]]
    told += [f"and {len(faults) - NAMED} more"] if len(faults) > NAMED else []
    return (*told, f"advice: {advice(faults)}")


def _told(fault: DeviceFault) -> str:
    who = f" ({fault.uuid})" if fault.uuid else ""
    by = f", by {SOURCES[fault.source]}" if fault.source in SOURCES else ""
    times = f", {fault.count} times" if fault.count > 1 else ""
    over = f"; over: {fault.cleared}" if fault.cleared else ""
    return f"{device(fault)}{who}: {fault.text}{by}{times}{over}"


def advice(faults: Sequence[DeviceFault]) -> str:
    """The heaviest action, and what the catalogue says comes after it."""
    first, number = lead(faults), code(lead(faults))
    words = WORDS.get(action(faults), action(faults))
    if number is None:
        return words
    found = catalogue.of_switch(number) if first.what.startswith("sxid_") else catalogue.of(number)
    return f"{words}. {found.followup}" if found.followup else words
