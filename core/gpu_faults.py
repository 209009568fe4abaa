"""Faults of GPUs as agents tell them: which of them are causes that call for action. Pure."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from rankpulse.core import diagnosis as d
from rankpulse.core import xid_catalogue as catalogue
from rankpulse.core.faults import INJECTED, LOST
from rankpulse.core.health_book import ACTIONS, BROKEN, INSPECT, LEVELS, REBOOT, RESET, SICK, UNKNOWN, VENDOR, WATCH
from rankpulse.core.records import DeviceFault, HealthFinding
from rankpulse.core.words import printable

HEAVY: Final = (RESET, REBOOT, VENDOR)
COUNT_MAX, INDEX_MAX = 2**53, 2**16
SURE, LIKELY = 0.95, 0.75
OF_NODES: Final = ("missing", "nvml", "nvml_stuck")  # findings of a node that are about its GPUs
_LINKED: Final = ("nvlink_down", "fabric", "fabric_health")
_OF_LINKS: Final = (catalogue.LINK, catalogue.FABRIC)


class Place(NamedTuple):
    """What is the matter where."""

    node: str
    bus: str
    what: str


def place(fault: DeviceFault) -> Place:
    return Place(fault.node, fault.bus, fault.what)


def of_finding(
    node: str, finding: HealthFinding, gpu: tuple[str, str, int] = ("", "", -1), boot: str = ""
) -> DeviceFault:
    """From an agent's word; `gpu`: bus, UUID, index. What this version has no word for is watched, no more."""
    bus, uuid, index = gpu
    return DeviceFault(
        node=node,
        bus=printable(bus, 40),
        what=printable(finding.what, 80),
        level=finding.level if finding.level in LEVELS else WATCH,
        action=finding.action if finding.action in ACTIONS else INSPECT,
        text=printable(finding.text, 300),
        index=min(max(index, -1), INDEX_MAX),
        uuid=printable(uuid, 80),
        source=printable(finding.source, 20),
        first_at=finding.first_at,
        count=min(max(finding.count, 1), COUNT_MAX),
        boot=boot,
    )


def is_cause(fault: DeviceFault, *, believe_injected: bool) -> bool:
    """Whether it has an incident: hardware that is broken, or that takes more than a restart of the program."""
    if fault.source == INJECTED and not believe_injected:
        return False
    if not fault.bus and fault.what not in OF_NODES and not fault.what.startswith("sxid_"):
        return False  # of the machine around the GPUs
    return fault.level == BROKEN or (fault.level in (SICK, UNKNOWN) and fault.action in HEAVY)


def is_linked(fault: DeviceFault) -> bool:
    """Whether others of its NVLink domain tell of the same."""
    number = code(fault)
    of_links = number is not None and fault.what.startswith("xid_") and catalogue.of(number).scope in _OF_LINKS
    return of_links or fault.what.startswith("sxid_") or fault.what in _LINKED


def code(fault: DeviceFault) -> int | None:
    """The XID, or SXid."""
    number = fault.what.rpartition("_")[2]
    return int(number) if fault.what.startswith(("xid_", "sxid_")) and number.isdecimal() and number.isascii() else None


def lead(faults: Iterable[DeviceFault]) -> DeviceFault:
    """The one that an incident is named after: a lost or broken device before links, the worse, the first."""
    return min(
        faults,
        key=lambda one: (
            bool(one.cleared),
            is_linked(one),
            -_rank(LEVELS, one.level),
            -_rank(ACTIONS, one.action),
            one.what != f"xid_{LOST}",
            one.first_at,
        ),
    )


def _rank(order: Sequence[str], word: str) -> int:
    """What another version wrote may have other words."""
    return order.index(word) if word in order else 0


def action(faults: Iterable[DeviceFault]) -> str:
    """The heaviest of all that is not over."""
    return max((one.action for one in faults if not one.cleared), key=lambda one: _rank(ACTIONS, one), default=INSPECT)


def confidence(faults: Iterable[DeviceFault]) -> float:
    """That a device is broken is the driver's word; one that does not answer may be well."""
    return SURE if any(one.level == BROKEN and not one.cleared for one in faults) else LIKELY


def klass(faults: Sequence[DeviceFault]) -> str:
    """One device, or what joins several machines."""
    first = lead(faults)
    several = len({one.node for one in faults}) > 1
    return d.NVLINK_DOMAIN if is_linked(first) and (several or first.what.startswith("sxid_")) else d.GPU_FAULT


def signature(faults: Sequence[DeviceFault]) -> str:
    """As verdicts on evidence write it: what is the same when it happens again."""
    first = lead(faults)
    return f"{klass(faults)}:gpu {code(first) if code(first) is not None else first.what}"


def nodes(faults: Iterable[DeviceFault]) -> tuple[str, ...]:
    return tuple(sorted({one.node for one in faults}))
