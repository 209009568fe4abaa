"""A book of what is the matter with something: opened once, counted, and cleared by proof alone, never by time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

# how bad it is, the worst last
OK, WATCH, UNKNOWN, SICK, BROKEN = "ok", "watch", "unknown", "sick", "broken"
LEVELS: Final = (OK, WATCH, UNKNOWN, SICK, BROKEN)
# what is to be done, the heaviest last
IGNORE, RESTART_APP, INSPECT = "ignore", "restart_app", "inspect"
RESET, REBOOT, VENDOR = "reset_gpu", "drain_reboot", "contact_vendor"
ACTIONS: Final = (IGNORE, RESTART_APP, INSPECT, RESET, REBOOT, VENDOR)
OPENED, CHANGED, CLEARED, SEEN = "opened", "changed", "cleared", "seen"
KEPT: Final = 64


class Condition(NamedTuple):
    """What is the matter."""

    level: str
    action: str
    text: str
    source: str = ""  # who says so: kernel, nvml, injected; "": what was read


class Clear(NamedTuple):
    """Proof that it is not."""


CLEAR: Final = Clear()
Verdict = Condition | Clear | None  # None: it cannot be told


@dataclass(frozen=True, slots=True)
class Finding:
    """`at`s are UTC, for people. Open while `cleared_at` is None."""

    what: str
    level: str
    action: str
    text: str
    first_at: float
    last_at: float
    count: int = 1
    cleared_at: float | None = None
    source: str = ""

    @property
    def open(self) -> bool:
        return self.cleared_at is None


class Change(NamedTuple):
    """What is worth an observation: a finding was opened, became another, was cleared, or passed at once (`seen`)."""

    how: str
    finding: Finding


@dataclass(slots=True, eq=False)
class Book:
    """Of one thing. Every method that writes returns what changed."""

    findings: dict[str, Finding] = field(default_factory=dict)

    def take(self, what: str, verdict: Verdict, at: float, *, counts: bool = False) -> list[Change]:
        if isinstance(verdict, Condition):
            return self.found(what, verdict, at, counts=counts)
        return self.cleared(what, at) if isinstance(verdict, Clear) else []

    def found(self, what: str, condition: Condition, at: float, *, counts: bool = False) -> list[Change]:
        """`counts`: each time is one more; else only a return is, for a state is read again and again."""
        before = self.findings.get(what)
        if before is None or not before.open:
            first, count = (before.first_at, before.count) if before else (at, 0)
            opened = Finding(what, *condition[:3], first, at, count + 1, source=condition.source)
            return [Change(OPENED, self._write(opened))]
        after = self._write(replace(before, **condition._asdict(), last_at=at, count=before.count + counts))
        changed = (before.level, before.action) != (after.level, after.action)
        return [Change(CHANGED, after)] if changed else []

    def passed(self, what: str, condition: Condition, at: float, times: int = 1) -> list[Change]:
        """It was so, and is over. Told of the first time, and each time that it has doubled: storms pass, too."""
        before = self.findings.get(what)
        first, count = (before.first_at, before.count) if before else (at, 0)
        finding = Finding(what, *condition[:3], first, at, count + times, cleared_at=at, source=condition.source)
        now = self._write(finding)
        return [Change(SEEN, now)] if now.count.bit_length() > count.bit_length() else []

    def cleared(self, what: str, at: float) -> list[Change]:
        finding = self.findings.get(what)
        if finding is None or not finding.open:
            return []
        return [Change(CLEARED, self._write(replace(finding, cleared_at=at)))]

    def clear_where(self, test: Callable[[Finding], bool], at: float) -> list[Change]:
        return [change for one in self.open if test(one) for change in self.cleared(one.what, at)]

    @property
    def open(self) -> list[Finding]:
        """The worst first."""
        found = [finding for finding in self.findings.values() if finding.open]
        return sorted(found, key=lambda one: (-LEVELS.index(one.level), -ACTIONS.index(one.action), one.first_at))

    @property
    def over(self) -> list[Finding]:
        """The newest first."""
        return sorted((one for one in self.findings.values() if not one.open), key=lambda one: -one.last_at)

    def _write(self, finding: Finding) -> Finding:
        self.findings[finding.what] = finding
        over = self.over if len(self.findings) > KEPT else []
        if over:
            del self.findings[over[-1].what]
        return finding


def worst(levels: Sequence[str], otherwise: str = OK) -> str:
    return max(levels, key=LEVELS.index, default=otherwise)


def heaviest(actions: Sequence[str]) -> str:
    return max(actions, key=ACTIONS.index, default=IGNORE)
