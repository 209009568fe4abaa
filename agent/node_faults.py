"""The faults of this node: what the driver's events and the kernel's lines tell, made one, and told once.

An event and the lines of the same fault come seconds apart, so both are taken at the time at which they are heard.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rankpulse.agent.gpu_books import GpuBooks
from rankpulse.core import fault_advice
from rankpulse.core import kernel_reading as kr
from rankpulse.core import xid_catalogue as catalogue
from rankpulse.core.fault_book import Book
from rankpulse.core.faults import INJECTED, KERNEL, NVML, Fault, Key, Seen
from rankpulse.core.health_book import (
    BROKEN,
    CLEAR,
    INSPECT,
    REBOOT,
    RESET,
    RESTART_APP,
    SEEN,
    SICK,
    VENDOR,
    WATCH,
    Change,
    Condition,
    Finding,
)
from rankpulse.core.kernel_reading import Reading

_CLOCK: Final = "utc"
_LEVELS: Final = {INSPECT: WATCH, RESTART_APP: WATCH, RESET: BROKEN, REBOOT: BROKEN, VENDOR: SICK}
_UNPLUGGED: Final = ("nic_link_down",)  # a port that nobody uses says so at every boot; of one in use sysfs tells


class _Told(NamedTuple):
    """What was last said of a fault."""

    occurrences: int = 0
    action: str = ""
    role: str = ""
    cleared: bool = False


@dataclass(slots=True)
class NodeFaults:
    """One per agent."""

    books: GpuBooks
    believe_injected: bool = False  # what programs wrote into the kernel's log counts, too; it stays marked
    faults: Book = field(default_factory=Book)
    _told: dict[Key, _Told] = field(default_factory=dict)

    def event(self, bus: str, code: int, at: float, gpu_instance: int | None, compute_instance: int | None) -> None:
        """The driver tells of an Xid."""
        reading = Reading(
            kind=kr.XID, xid=code, pci_bus_id=bus, gpu_instance=gpu_instance, compute_instance=compute_instance
        )
        self._take(Seen(reading, at, _CLOCK, NVML))

    def line(self, reading: Reading, at: float, text: str = "") -> None:
        """The kernel tells of something. `at`: UTC."""
        self._take(Seen(reading, at, _CLOCK, text=text))

    def known(self, reading: Reading, at: float) -> None:
        """A line that was told already: it counts for what comes again, and is not told."""
        fault = self.faults.seen(Seen(reading, at, _CLOCK))
        for one in (fault, fault.cause if fault else None):
            if one is not None:
                self._told[one.key] = self._now(one)

    def _take(self, seen: Seen) -> None:
        fault = self.faults.seen(seen)
        if fault is not None:
            self._tell(fault, seen.at or 0.0)
            if fault.cause is not None:  # it may weigh more now
                self._tell(fault.cause, seen.at or 0.0)

    def _tell(self, fault: Fault, at: float) -> None:
        """Only what is new: another occurrence, a heavier action, its end."""
        before = self._told.get(fault.key, _Told())
        now = self._now(fault)
        action = now.action
        if now == before:
            return
        self._told[fault.key] = now
        fresh = now.occurrences - before.occurrences
        if fault.key.injected and not self.believe_injected:
            self._injected(fault, action, at)
        elif fault.reading.kind in (kr.XID, kr.GPU_LOST) and isinstance(fault.key.code, int) and fault.key.where:
            action = INSPECT if action == catalogue.DECODE else action
            words, source = _words(fault), _source(fault)
            self.books.fault(fault.key.where, fault.key.code, words, action, now.role, at, fresh, source)
        elif now.role in (catalogue.CAUSE, catalogue.UNKNOWN):
            self._of_node(fault, action, at)

    def _now(self, fault: Fault) -> _Told:
        action = fault_advice.advice(fault).action
        return _Told(fault.occurrences, action, fault_advice.role(fault), fault.cleared)

    def _of_node(self, fault: Fault, action: str, at: float) -> None:
        """A link, a switch, a network card, memory, a program."""
        books, what, condition = self.books, _what(fault), _condition(fault, action)
        if fault.cleared:
            if not any(self._open_elsewhere(other, fault) for other in self.faults.faults.values()):
                books.of_host(what, CLEAR)
        elif condition is None or action == RESTART_APP:
            passing = condition or Condition(WATCH, action, _words(fault), _source(fault))
            books.told(books.book.passed(what, passing, at))
        else:
            books.told(books.book.found(what, condition, at, counts=True))

    def _open_elsewhere(self, other: Fault, fault: Fault) -> bool:
        """Another port, or switch, has the same, and shares the finding: the end of one is none of the other's."""
        alike = other.key.code == fault.key.code and other.key.injected == fault.key.injected
        return alike and not other.cleared and other.key in self._told

    def _injected(self, fault: Fault, action: str, at: float) -> None:
        """Somebody wrote it into the log. It is told as such, and nothing is believed of it."""
        what, words, times = _what(fault), _words(fault), fault.occurrences
        finding = Finding(what, WATCH, action, words, at, at, times, cleared_at=at, source=INJECTED)
        if fault.occurrences & (fault.occurrences - 1) == 0:  # a storm of them is no storm of observations
            gpu = self.books.gpus.get(fault.key.where)
            self.books.told([Change(SEEN, finding)], gpu, injected=True)


def _what(fault: Fault) -> str:
    kind, code = fault.reading.kind, fault.key.code
    return f"{'xid' if kind == kr.GPU_LOST else kind}_{code}" if isinstance(code, int) else str(code)


def _condition(fault: Fault, action: str) -> Condition | None:
    level = (
        WATCH
        if fault.reading.kind in _UNPLUGGED
        else _LEVELS.get(INSPECT if action in (catalogue.DECODE, catalogue.STATED) else action)
    )
    where = f" ({fault.key.where})" if fault.key.where else ""
    return Condition(level, action, f"{_words(fault)}{where}", _source(fault)) if level else None


def _source(fault: Fault) -> str:
    """Who told: where the kernel's log was read, it tells more than the driver's event."""
    return INJECTED if fault.key.injected else KERNEL if fault.lines else NVML


def _words(fault: Fault) -> str:
    return f"{'injected: ' if fault.key.injected else ''}{fault_advice.words(fault)[:200]}"
