"""From faults to incidents: what has one cause is one incident, named after the fault that explains the others."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from rankpulse.core import kernel_reading as kr
from rankpulse.core import xid_catalogue as c
from rankpulse.core.fault_advice import Advice, advice
from rankpulse.core.faults import Fault

TOGETHER_S: Final = 5.0
_LINKED: Final = (c.LINK, c.FABRIC)
_MINOR: Final = (c.INFORMATIONAL, c.CONSEQUENCE)


class Incident(NamedTuple):
    lead: Fault
    others: tuple[Fault, ...]
    advice: Advice

    @property
    def faults(self) -> tuple[Fault, ...]:
        return (self.lead, *self.others)


def incidents(faults: Iterable[Fault]) -> list[Incident]:
    """Of all faults that are no echoes, the first in time first."""
    groups: list[list[Fault]] = []
    for fault in sorted(faults, key=lambda fault: (fault.clock, fault.first or 0.0)):
        group = next((group for group in reversed(groups[-64:]) if any(_one(fault, other) for other in group)), None)
        if group is None:
            groups.append([fault])
        else:
            group.append(fault)
    return [_incident(group) for group in groups]


def _one(fault: Fault, other: Fault) -> bool:
    """The same device within seconds, or links of one NVLink domain: an error on one is seen from both ends."""
    if fault.key.injected != other.key.injected or not _together(fault, other):
        return False
    if fault.key.where and fault.key.where == other.key.where:
        return True
    return _of_nvlink(fault) and _of_nvlink(other)


def _of_nvlink(fault: Fault) -> bool:
    return fault.reading.kind in (kr.XID, kr.SXID) and kr.scope(fault.reading) in _LINKED


def _together(fault: Fault, other: Fault) -> bool:
    if fault.first is None or other.first is None:
        return fault.first is None and other.first is None and fault.key.where == other.key.where
    return fault.clock == other.clock and abs(fault.first - other.first) <= TOGETHER_S


def _incident(group: list[Fault]) -> Incident:
    lead = max(group, key=_explains)
    others = tuple(fault for fault in group if fault is not lead)
    return Incident(lead, others, max(map(advice, group), key=lambda one: c.weight(one.action)))


def _explains(fault: Fault) -> tuple[bool, bool, int, float]:
    """Causes before notes, what is fatal before what is not, the heavier, the earlier."""
    return (
        kr.role(fault.reading) not in _MINOR,
        bool(fault.fatal),
        c.weight(advice(fault).action),
        -(fault.first or 0.0),
    )
