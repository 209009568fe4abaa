"""What an incident that is over counts as: the component that failed, whose fault it was, what it cost its run.

An entry follows from the incident and its finding as the store has them, and from nothing else: whoever makes it makes
the same, so that a monitor may die between the two, and the next one writes what the first one would have written.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from rankpulse.core import diagnosis as d
from rankpulse.core.incidents import RECOVERED, RUN_ENDED, SUPERSEDED
from rankpulse.core.records import Finding, Incident, LedgerEntry

GPU, NVLINK, NODE, NETWORK, STORAGE = "gpu", "nvlink", "node", "network", "storage"
PROGRAM, PERSON, CONTROL_PLANE, UNKNOWN = "program", "person", "control_plane", "unknown"
COMPONENTS: Final = (GPU, NVLINK, NODE, NETWORK, STORAGE, PROGRAM, PERSON, CONTROL_PLANE, UNKNOWN)
PLANNED: Final = (d.OPERATOR_RESTART, d.DRAIN)
_BY_CLASS: Final[Mapping[str, str]] = {
    d.WORKER_DEAD: UNKNOWN,  # by its error it is the program's, see `component`
    d.NODE_DEAD: NODE,
    d.SIDECAR_DEAD: CONTROL_PLANE,
    d.AGENT_CUT_OFF: NETWORK,
    d.COLLECTIVE_HANG: UNKNOWN,
    d.COLLECTIVE_MISMATCH: PROGRAM,
    d.NETWORK_STALL: NETWORK,
    d.DATA_STALL: STORAGE,
    d.STORAGE_STALL: STORAGE,
    d.GPU_FAULT: GPU,
    d.NVLINK_DOMAIN: NVLINK,
    d.OOM: PROGRAM,
    d.NUMERICAL: PROGRAM,
    d.NON_FINITE: UNKNOWN,  # data, program, or a GPU that computes wrongly
    d.SILENT_CORRUPTION: NODE,
    d.STARTUP_FAILURE: UNKNOWN,
    d.CONTROL_PLANE_DELAY: CONTROL_PLANE,
    d.BREAKER_OPEN: CONTROL_PLANE,
    d.OPERATOR_RESTART: PERSON,
    d.DRAIN: PERSON,
    d.UNKNOWN: UNKNOWN,
}
_BY_KIND: Final[Mapping[str, str]] = {  # where evidence was weighed, its family says more than the class
    "app_bug": PROGRAM,
    "desync": PROGRAM,
    "host_fault": NODE,
    "gpu_fault": GPU,
    "nvlink_domain": NVLINK,
    "network": NETWORK,
    "data_stall": STORAGE,
    "storage": STORAGE,
}
_BLAME: Final[Mapping[str, str]] = {
    GPU: "machine",
    NVLINK: "machine",
    NODE: "machine",
    NETWORK: "network",
    STORAGE: "storage",
    PROGRAM: "program",
    PERSON: "person",
    CONTROL_PLANE: "observer",
    UNKNOWN: "unknown",
}


def component(incident: Incident, finding: Finding | None = None) -> str:
    """What failed, as far as it is known."""
    if incident.foreign and incident.klass not in PLANNED:
        return UNKNOWN  # a hand from outside may have been in it: a person's, a scheduler's, the kernel's
    by_class = _BY_CLASS.get(incident.klass, UNKNOWN)
    if finding is not None and finding.klass == incident.klass and by_class == UNKNOWN != incident.klass:
        by_class = _BY_KIND.get(finding.kind, UNKNOWN)
    return PROGRAM if by_class == UNKNOWN and incident.fault and incident.klass != d.UNKNOWN else by_class


def entry(incident: Incident, finding: Finding | None = None) -> LedgerEntry:
    """The incident as it is counted; one that is still open counts up to now, and has `closed_at` 0."""
    what = component(incident, finding)
    device = _device(incident, finding)
    single = incident.culprits[0] if len(incident.culprits) == 1 else None
    nodes = tuple(sorted({member.node for member in incident.culprits})) or incident.nodes
    return LedgerEntry(
        id=incident.id,
        klass=incident.klass,
        component=what,
        blame=_BLAME[what],
        outcome=incident.outcome,
        action=incident.action,
        opened_at=incident.opened_at,
        closed_at=incident.closed_at or 0.0,
        fault_at=incident.fault_at,
        run_uid=incident.run_uid,
        run_id=incident.run_id,
        round=incident.round,
        restarts=incident.restarts,
        ranks=incident.ranks,
        nodes=nodes,
        node=nodes[0] if len(nodes) == 1 else "",
        rank=single.rank if single is not None else -1,
        gpu=device.gpu,
        pci=device.bus,
        uuid=device.uuid,
        confidence=incident.confidence,
        signature=incident.signature,
        time_to_detect_s=incident.time_to_detect_s,
        time_to_recover_s=incident.time_to_recover_s,
        lost_s=incident.lost_s,
        lost_steps=incident.lost_steps,
    )


def interrupts(entry: LedgerEntry) -> bool:
    """Whether it counts as a failure of a run: unplanned, and the run had to start again, or ended of it.

    A standstill that passed by itself cost time and ended nothing; what concerned no run stopped none. One that the run
    had not recovered from when it failed again is a failure, too.
    """
    ended = entry.outcome in (RECOVERED, RUN_ENDED) or (entry.outcome == SUPERSEDED and entry.restarts > 0)
    return bool(entry.run_uid) and ended and entry.klass not in PLANNED


def usual(klass: str) -> str:
    """The component that a class stands for where nothing closer is known."""
    return _BY_CLASS.get(klass, UNKNOWN)


def day_of(at: float) -> str:
    """The day of a UTC time, as people write it: 2026-11-30. Times that no calendar has are the first or last day."""
    days = int(min(max(at, 0.0), 253_402_300_799.0) // 86400) + 719_468  # since 0000-03-01
    era, of_era = divmod(days, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    month = (5 * of_year + 2) // 153
    day = of_year - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return f"{year + era * 400 + (month <= 2):04d}-{month:02d}-{day:02d}"


class _Device(NamedTuple):
    """The one GPU that it is about; -1 and empty: none, several, or nobody knows."""

    gpu: int = -1
    bus: str = ""
    uuid: str = ""


def _device(incident: Incident, finding: Finding | None) -> _Device:
    told = {(row.node, row.bus): row for row in incident.faults if row.bus}
    if told:
        (row, *others) = told.values()
        return _Device() if others else _Device(row.index, row.bus, row.uuid)
    if finding is None or len(incident.culprits) != 1:
        return _Device()
    rank = incident.culprits[0].rank
    return _Device(next((one.gpu for one in finding.culprits if one.rank == rank and one.gpu is not None), -1))
