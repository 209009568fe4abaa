"""A fault: one code at one place, however often and by whom it is told. What it keeps of its sightings is bounded."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from rankpulse.core import kernel_reading as kr
from rankpulse.core.kernel_reading import Reading

MERGE_S: Final = 5.0  # sightings this near each other are one occurrence
KEPT: Final = 8  # of everything that a fault keeps: processes, places, links
SAMPLES: Final = 3
LOST: Final = 79
KERNEL, NVML, INJECTED = "kernel", "nvml", "injected"
OF_PROCESSES: Final = ("oom_kill", "oom_reaped", "oom_invoked", "hung_task", "segfault")


class Seen(NamedTuple):
    """One sighting. `at` is on `clock`; times of two clocks are never compared."""

    reading: Reading
    at: float | None = None
    clock: str = ""
    source: str = KERNEL
    text: str = ""


class Key(NamedTuple):
    where: str
    code: int | str  # XID, SXid, or the kind of a line without a number
    injected: bool = False


@dataclass(slots=True)
class Fault:
    key: Key
    reading: Reading  # the first
    first: float | None
    clock: str
    last: float | None = None
    lines: int = 0  # of the kernel's log
    events: int = 0  # of NVML
    occurrences: int = 1
    in_burst: int = 0  # lines of the newest occurrence
    boot: int = 1  # of the machine, counted from the first that is seen
    numbered: bool = True  # False: a lost GPU, told without an XID
    cleared: bool = False
    fatal: bool | None = None
    recovery: int | None = None  # what the driver asked for, last
    cause: "Fault | None" = None  # what this is an echo of
    echoes: Counter[str] = field(default_factory=Counter)
    processes: Counter[str] = field(default_factory=Counter)
    pids: set[int] = field(default_factory=set)
    places: Counter[tuple[int, int]] = field(default_factory=Counter)  # occurrences at each (GPC, TPC)
    links: Counter[int] = field(default_factory=Counter)  # occurrences at each link
    samples: list[str] = field(default_factory=list)
    _counted: set[tuple[int, ...]] = field(default_factory=set)  # places of this occurrence

    @property
    def xid(self) -> int | None:
        return self.reading.xid if self.numbered else None

    @property
    def count(self) -> int:
        """How often it was told: by the kernel's log, if that was read, else by NVML. Both tell of the same."""
        return self.lines or self.events

    def more(self, at: float | None, clock: str, asked: int | None) -> bool:
        """One more line of a burst of which all is known but the number. False: it has to be read in full."""
        last = self.last
        if clock != self.clock or (at is not None and last is not None and not 0.0 <= at - last <= MERGE_S):
            return False
        self.lines += 1
        self.in_burst += 1
        self.last = at
        if asked is not None:
            self.asks(asked)
        if self.cause is not None:
            self.cause.echoes[str(self.key.code)] += 1
        return True

    def asks(self, recovery: int) -> None:
        """What the driver wants done: a state, the newest word counts; 0 is good news."""
        self.recovery, self.cleared = recovery, recovery == 0
        if self.cause is not None:
            self.cause.recovery = recovery

    def take(self, seen: Seen, boot: int = 1) -> bool:
        """A sighting, read in full. Whether an occurrence begins with it."""
        reading = seen.reading
        began = not self.count
        if not reading.continuation and not began and (boot != self.boot or self._apart(seen)):
            began = True
            self.occurrences += 1
            self.in_burst, self.cause = 0, None
            self._counted.clear()
        self.boot = boot
        if seen.source == NVML:
            self.events += 1
        else:
            self.lines += 1
            self.in_burst += 1
        self._times(seen)
        if reading.kind == kr.XID and not self.numbered:
            self.numbered, self.reading = True, reading
        self.cleared = bool(reading.clear)
        self._collect(reading)
        if seen.text and len(self.samples) < SAMPLES:
            self.samples.append(seen.text[:300])
        return began

    def _apart(self, seen: Seen) -> bool:
        """Another occurrence has to be proven: where no clock tells, it is the same."""
        both = self.last is not None and seen.at is not None and self.clock == seen.clock
        return both and not near(self, seen, MERGE_S)

    def _times(self, seen: Seen) -> None:
        if seen.at is None:
            return
        same = seen.clock == self.clock
        if self.last is None or not same or seen.at > self.last:
            self.last = seen.at
        if same and self.first is not None:
            self.first = min(self.first, seen.at)
        self.clock = seen.clock

    def _collect(self, reading: Reading) -> None:
        name, pid = reading.process_name, reading.pid
        if name and (name in self.processes or len(self.processes) < KEPT):
            self.processes[name] += 1
        if pid and len(self.pids) < KEPT:
            self.pids.add(pid)
        if (place := reading.place) is not None and self._once(place) and _room(self.places, place):
            self.places[place] += 1
        if (link := reading.link) is not None and self._once((link,)) and _room(self.links, link):
            self.links[link] += 1
        if reading.fatal is not None:
            self.fatal = bool(self.fatal) or reading.fatal
        if reading.recovery_action is not None:
            self.asks(reading.recovery_action["to"])

    def _once(self, place: tuple[int, ...]) -> bool:
        """One event prints several lines about the same place: it counts once."""
        known = place in self._counted
        if not known and len(self._counted) < 2 * KEPT:
            self._counted.add(place)
        return not known


def _room(kept: Counter[Any], one: object) -> bool:
    return one in kept or len(kept) < KEPT


def key_of(reading: Reading) -> Key:
    where = reading.pci_bus_id or reading.interface or ""
    if reading.kind in OF_PROCESSES:
        where = reading.process_name or ""
    if reading.kind == kr.GPU_LOST:
        return Key(where, LOST, reading.injected)  # the twin line of a 79, or all that there is of it
    kind = f"{reading.kind}_mild" if kr.mild(reading) else reading.kind  # what is worse must not be counted among them
    code = reading.xid if reading.xid is not None else reading.sxid if reading.sxid is not None else kind
    return Key(where, code, reading.injected)


def near(fault: Fault, seen: Seen, within: float) -> bool:
    """Whether a sighting is that near the newest one. Where nothing at all says when, what is told belongs together."""
    if fault.last is None or seen.at is None:
        return fault.last is None and seen.at is None
    return fault.clock == seen.clock and abs(seen.at - fault.last) <= within
