"""The health of one GPU: a fold over what its readings, its silences and the faults told of it have shown.

Faults that take a reset are cleared by a reset that was seen, those that take a reboot by none: an agent after the
reboot begins with an empty book.
"""

from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from rankpulse.core.gpu_reading import Identity, Said
from rankpulse.core.gpu_rules import Memory, Reading, verdicts
from rankpulse.core.health_book import (
    BROKEN,
    INSPECT,
    OK,
    REBOOT,
    RESET,
    RESTART_APP,
    SICK,
    UNKNOWN,
    VENDOR,
    WATCH,
    Book,
    Change,
    Condition,
    heaviest,
    worst,
)

CAUSE, UNLISTED = "cause", "unknown"  # what the catalogue says of a code; of others: consequence | informational
_XIDS_MAX: Final = 64
_SILENT: Final = ("lost", "reset_required", "no_answer", "probe_stuck", "unheard")  # cleared by any answer
_LEVEL_OF: Final = {INSPECT: WATCH, RESET: BROKEN, REBOOT: BROKEN, VENDOR: SICK}  # of an Xid, by its action
_LOST, _RESET_REQUIRED, _NOT_FOUND = 15, 16, 28  # of NVML
_FAILED: Final = {
    _LOST: ("lost", Condition(BROKEN, REBOOT, "it has fallen off the bus: no call reaches it")),
    _NOT_FOUND: ("lost", Condition(BROKEN, REBOOT, "the driver does not know it any more")),
    _RESET_REQUIRED: ("reset_required", Condition(BROKEN, RESET, "it answers nothing before it is reset")),
}
_HIDDEN: Final = Condition(UNKNOWN, INSPECT, "NVML does not show it here, and never did: compare with the host")


_NOBODY: Final = Identity()


class XidCount(NamedTuple):
    first_at: float
    last_at: float
    times: int


@dataclass(slots=True, eq=False)
class GpuHealth:
    """Of the board that sits at `bus`. `now`: monotonic, for rates; `at`: UTC, for people."""

    bus: str
    memory: Memory = field(default_factory=Memory)
    identity: Identity = _NOBODY
    values: dict[str, float] = field(default_factory=dict)  # the last that was told of each
    links: tuple[dict[str, float], ...] = ()
    book: Book = field(default_factory=Book)
    xids: dict[int, XidCount] = field(default_factory=dict)
    resets: int = 0  # seen: counters that went down, and drivers loaded anew
    heard: float | None = None  # the last answer, monotonic

    def reading(self, said: Said, now: float, at: float) -> list[Change]:
        """It answered."""
        if said.identity:
            self._is(said.identity)
        told, changes = said.values or {}, list[Change]()
        if self._was_reset(told):
            changes += self._reset_seen(at)
        self.heard, self.links = now, said.links or self.links
        self.values |= told
        self.memory.open = {finding.what for finding in self.book.open}
        for name, verdict in verdicts(Reading(told, self.values, said, now, self.memory)).items():
            changes += self.book.take(name, verdict, at)
        for name in _SILENT:
            changes += self.book.cleared(name, at)
        return changes

    def failed(self, code: int, text: str, at: float) -> list[Change]:
        """It does not answer, and NVML says so."""
        unknown = Condition(UNKNOWN, INSPECT, f"NVML answers with error {code} ({text}): compare with the host")
        name, condition = _FAILED.get(code, ("no_answer", unknown))
        if code == _NOT_FOUND and self.heard is None and "lost" not in self.book.findings:
            name, condition = "no_answer", _HIDDEN  # a container may list GPUs that are not its own
        return [*self.book.found(name, condition, at), *self.book.cleared("probe_stuck", at)]

    def stuck(self, for_s: float, where: str, at: float) -> list[Change]:
        """It does not answer at all: a finding about this GPU, whose health is not known."""
        text = f"calls to it do not come back ({for_s:.0f} s{f', {where}' if where else ''})"
        return self.book.found("probe_stuck", Condition(UNKNOWN, RESET, text), at, counts=True)

    def unheard(self, at: float) -> list[Change]:
        """Nobody could ask it: it may be well, and nobody knows."""
        return self.book.found("unheard", Condition(UNKNOWN, INSPECT, "it could not be asked for a while"), at)

    def fault(
        self, code: int, words: str, action: str, role: str, at: float, count: int = 1, source: str = ""
    ) -> list[Change]:
        """An Xid, from the driver's events or the kernel's log, once for both. Only causes speak against the GPU."""
        before = self.xids.pop(code, None)
        first, known = (before.first_at, before.times) if before else (at, 0)
        self.xids[code] = XidCount(first, at, known + count)
        if len(self.xids) > _XIDS_MAX:
            del self.xids[next(iter(self.xids))]
        what = f"xid_{code}"
        if role == UNLISTED:
            return self.book.passed(what, Condition(WATCH, INSPECT, words, source), at, count)
        if role != CAUSE:
            return []
        if action == RESTART_APP:
            return self.book.passed(what, Condition(WATCH, action, words, source), at, count)
        level = _LEVEL_OF.get(action)
        return self.book.found(what, Condition(level, action, words, source), at, counts=count > 0) if level else []

    def driver_loaded(self, at: float) -> list[Change]:
        """Anew, under this agent: whatever a reset mends is mended, unless the next reading says otherwise."""
        self.memory.rates.clear()
        return self._reset_seen(at)

    @property
    def level(self) -> str:
        """Of a GPU that never answered nothing is known."""
        return worst([finding.level for finding in self.book.open], UNKNOWN if self.heard is None else OK)

    @property
    def action(self) -> str:
        """The heaviest of all that is open: the catalogue's and the driver's alike."""
        return heaviest([finding.action for finding in self.book.open])

    def _is(self, identity: Identity) -> None:
        """Another board at this place has a book of its own."""
        if self.identity.uuid and identity.uuid and identity.uuid != self.identity.uuid:
            self.book, self.xids, self.values = Book(), {}, {}
            self.memory = replace(self.memory, active_links=set(), fabric_since=None)
            self.memory.rates.clear()
        self.identity = identity

    def _was_reset(self, told: dict[str, float]) -> bool:
        """Volatile counters go down at a driver load or a reset of the GPU, and at nothing else; so does the driver's
        wish for one."""
        volatile = (name for name in told if name.endswith("_volatile"))
        down = any(told[name] < self.values.get(name, 0) for name in volatile)
        return down or (told.get("recovery_action") == 0 and self.values.get("recovery_action", 0) > 0)

    def _reset_seen(self, at: float) -> list[Change]:
        self.resets += 1
        self.memory.active_links.clear()
        lasting = (REBOOT, VENDOR)
        return self.book.clear_where(lambda one: one.what.startswith("xid_") and one.action not in lasting, at)
