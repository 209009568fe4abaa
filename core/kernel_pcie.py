"""What the kernel says of PCIe devices, the links to them, and the IOMMU between them and the memory. Total."""

import re
from typing import Final

from rankpulse.core.kernel_reading import Reading

_BDF = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_DEVICE = re.compile(
    r"[\w.-]{1,32} (?P<bdf>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]): ?(?P<rest>.*)", re.ASCII | re.DOTALL
)
_BUS_ERROR = re.compile(r"(?:AER: )?PCIe Bus Error: severity=(\w+)(?:\s*\((Non-Fatal|Fatal)\))?", re.ASCII)
_RECEIVED = re.compile(
    r"AER: (?:Multiple )?(Correct\w+|Uncorrect\w+)(?: \((Non-Fatal|Fatal)\))? error(?: message)? received", re.ASCII
)
_DETAIL = re.compile(
    r"(?:AER: )?\s*(?:\[ ?\d{1,2}\] [A-Z]|device \[[0-9a-f]{4}:[0-9a-f]{4}\] error status/mask="
    r"|TLP Header:|Error of this Agent|aer_\w+[:=])|AER: .*first error",
    re.ASCII,
)
_LOST = re.compile(r"can't recover|device recovery failed|AER: .*recovery failed", re.ASCII)
_AMD_VI = re.compile(
    rf"AMD-Vi: Event logged \[(?:IO_PAGE_FAULT|ILLEGAL_DEV_TABLE_ENTRY|INVALID_DEVICE_REQUEST)(?: device=({_BDF}))?",
    re.ASCII,
)
_DMAR = re.compile(
    r"(?:dmar: )?DMAR: ?\[(?:DMA|INTR)[^\]]*\] [Rr]equest device "
    rf"\[(?:0x)?({_BDF}|[0-9a-f]{{2}}:0x[0-9a-f]{{2}}\.[0-7])\]",
    re.ASCII,
)
_PROBE = re.compile(
    rf"nvidia: probe of ({_BDF}) failed with error|nvidia ({_BDF}): probe with driver nvidia failed with", re.ASCII
)
LIMITED: Final = "available PCIe bandwidth, limited by"


def read(text: str) -> Reading | None:
    found = _DEVICE.match(text)
    where, rest = (found["bdf"].lower(), found["rest"]) if found else (None, text)
    if (fault := _AMD_VI.match(rest) or (None if found else _DMAR.match(rest))) is not None:
        return Reading("iommu_fault", pci_bus_id=where or _whole(fault[1]))
    if rest.startswith("arm-smmu") and " event 0x" in rest:
        return Reading("iommu_fault")
    if (told := _BUS_ERROR.match(rest) or _RECEIVED.match(rest)) is not None:
        return Reading("pcie_aer", pci_bus_id=where, aer_severity=_severity(told[1], told[2]))
    if (probe := _PROBE.match(text)) is not None:
        return Reading("driver_probe_failed", pci_bus_id=_whole(probe[1] or probe[2]))
    return _of_port(where, rest) if where else None


def _whole(bdf: str | None) -> str | None:
    """Older lines leave out the domain, or write the device as a number."""
    if not bdf:
        return None
    short = bdf.replace("0x", "").lower()
    return short if short.count(":") == 2 else f"0000:{short}"


def _of_port(where: str, rest: str) -> Reading | None:
    if _LOST.search(rest):
        return Reading("pcie_aer", pci_bus_id=where, aer_severity="unrecoverable")
    if "AER: device recovery successful" in rest:
        return Reading("pcie_aer", pci_bus_id=where, aer_severity="recovered")
    if rest.startswith("DPC: ") and ("containment event" in rest or "uncorrectable error" in rest):
        return Reading("pcie_aer", pci_bus_id=where, aer_severity="fatal")
    if _DETAIL.match(rest):
        return Reading("pcie_aer_detail", pci_bus_id=where)
    if LIMITED in rest:
        return Reading("pcie_degraded", pci_bus_id=where)
    if rest.startswith("pciehp: ") and ("Link Down" in rest or "Card not present" in rest):
        return Reading("pcie_link_down", pci_bus_id=where)
    return None


def _severity(named: str, how: str | None) -> str:
    if named.startswith("Correct"):
        return "corrected"
    return "fatal" if "Fatal" in (how, named) else "nonfatal"
