"""The faults of one node, reconciled: what the kernel's log and NVML tell is one fault, what follows is its echo.

Bounded: a storm of lines is counted before anything is kept of it, and faults beyond a limit are counted alone.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rankpulse.core import kernel_reading as kr
from rankpulse.core import xid_catalogue as c
from rankpulse.core.faults import MERGE_S, OF_PROCESSES, Fault, Key, Seen, key_of, near
from rankpulse.core.kernel_reading import Reading

ECHO_S: Final = 60.0  # an echo is told this long after its cause at most
REBOOT_S: Final = 60.0  # a clock of uptime that fell back by more: the machine was started again
FAULTS_MAX: Final = 4096
SHARE_MAX: Final = 512  # of those that anybody's program can make up: they must not take the room of a GPU's
# lines without a number of their own, and the codes that they belong to; (): any
_BESIDE: Final[dict[str, tuple[int | str, ...]]] = {
    kr.GSP_STALL: (62, 109, 119, 120),
    "gpu_reset_required": (),
    "gpu_init_failed": (79,),
    "driver_probe_failed": ("gpu_init_failed", 79),
    "pcie_aer_detail": ("pcie_aer", "pcie_aer_mild"),
    "oom_reaped": ("oom_kill",),
    "oom_invoked": ("oom_kill",),
    "peermem_warning": (),
}
_ELSEWHERE: Final = ("oom_reaped", "oom_invoked", "peermem_warning", "driver_probe_failed")
_ECHOES: Final[tuple[int | str, ...]] = (43, 45, 154, 160, 161, 171, 172, kr.GSP_STALL, "gpu_reset_required")
_CLEARS: Final = {"nic_link_up": "nic_link_down", "nic_recovered": "nic_error"}
_SILENT: Final = (kr.NONE, kr.GPU_UUID, "driver_load")
_REBOOT: Final = 2  # a recovery action that may be the whole system's, and then shows on every GPU


@dataclass(slots=True)
class Book:
    faults: dict[Key, Fault] = field(default_factory=dict)
    uuids: dict[str, str] = field(default_factory=dict)  # bus id -> UUID, as the driver printed them
    boots: int = 1
    beyond: int = 0  # sightings of faults that there was no room for
    _made_up: int = 0  # faults that are kept of those that programs can make up
    _up: float = 0.0
    _newest: dict[str, Fault] = field(default_factory=dict)  # where -> the newest that others can follow from
    _last: Fault | None = None

    def seen(self, seen: Seen) -> Fault | None:
        """Take a sighting. The fault that it belongs to; None where it speaks of none."""
        reading = seen.reading
        self._clock(seen)
        if reading.gpu_uuid and reading.pci_bus_id and len(self.uuids) < FAULTS_MAX:
            self.uuids[reading.pci_bus_id] = reading.gpu_uuid
        if reading.kind in _SILENT:
            return None
        if reading.kind in _CLEARS:
            return self._over(key_of(reading)._replace(code=_CLEARS[reading.kind]))
        fault = self._open(key_of(reading), seen)
        if fault is not None:
            self._relate(fault, seen, began=fault.take(seen, self.boots))
        return fault

    def _over(self, key: Key) -> Fault | None:
        """Good news: the trouble that it ends, if there was any."""
        fault = self.faults.get(key)
        if fault is not None:
            fault.cleared = True
        return fault

    def causes(self) -> Iterator[Fault]:
        """Every fault that is no echo of another."""
        return (fault for fault in self.faults.values() if fault.cause is None)

    def _clock(self, seen: Seen) -> None:
        if seen.clock != "up" or seen.at is None:
            return
        if seen.at < self._up - REBOOT_S:
            self.boots += 1
            self._newest.clear()
            self._last = None
        self._up = seen.at

    def _open(self, key: Key, seen: Seen) -> Fault | None:
        fault = self.faults.get(key)
        if fault is None:
            mine = key.injected or seen.reading.kind in OF_PROCESSES
            if len(self.faults) >= FAULTS_MAX or (mine and self._made_up >= SHARE_MAX):
                self.beyond += 1
                return None
            self._made_up += mine
            fault = Fault(key, seen.reading, seen.at, seen.clock, numbered=seen.reading.kind != kr.GPU_LOST)
            fault.boot = self.boots
            self.faults[key] = fault
        return fault

    def _relate(self, fault: Fault, seen: Seen, began: bool) -> None:
        """An echo goes to the fault that it follows; a fault takes in the echoes that were told just before it.

        Both once per occurrence: what a storm goes on to print changes nothing.
        """
        if follows(seen.reading):
            named = self._named(fault, seen.reading)
            cause = named or fault.cause or (self._cause_of(fault, seen) if began else None)
            if cause is not None:
                attach(fault, cause, 1)
        elif began:
            self._newest[fault.key.where] = self._last = fault
            for code in _ECHOES:
                echo = self.faults.get(Key(fault.key.where, code, fault.key.injected))
                if echo is not None and echo.cause is None and _fits(fault, code) and near(echo, seen, MERGE_S):
                    attach(echo, fault, echo.in_burst)

    def _named(self, echo: Fault, reading: Reading) -> Fault | None:
        if reading.caused_by_xid is None:
            return None
        return self.faults.get(Key(echo.key.where, reading.caused_by_xid, reading.injected))

    def _cause_of(self, echo: Fault, seen: Seen) -> Fault | None:
        where = echo.key.where
        cause = self._newest.get(where) if where else None
        if cause is None and _of_node(echo, seen.reading):
            cause = self._last
        if cause is None or cause is echo or cause.key.injected != echo.key.injected:
            return None
        return cause if _fits(cause, echo.key.code) and near(cause, seen, ECHO_S) else None


def follows(reading: Reading) -> bool:
    if reading.xid is not None:
        return c.of(reading.xid).role == c.CONSEQUENCE
    return reading.kind in _BESIDE


def attach(echo: Fault, cause: Fault, lines: int) -> None:
    echo.cause = cause
    cause.echoes[str(echo.key.code)] += lines
    if echo.recovery is not None:
        cause.recovery = echo.recovery


def _of_node(echo: Fault, reading: Reading) -> bool:
    return not echo.key.where or echo.recovery == _REBOOT or reading.kind in _ELSEWHERE


def _fits(cause: Fault, echo: int | str) -> bool:
    wanted = _BESIDE.get(echo, ()) if isinstance(echo, str) else c.of(echo).echo_of
    if isinstance(echo, int) and not isinstance(cause.key.code, int):
        return False  # an XID follows from an XID
    return not wanted or cause.key.code in wanted
