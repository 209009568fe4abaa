"""Verdicts on snapshots: made at once where a snapshot is small, by the shell, in its own time, where it is large.

Sixteen thousand ranks take seconds. A loop that thinks for so long seems asleep to itself, and loses its lease.
"""

from dataclasses import dataclass
from typing import Final

from rankpulse.core import events as ev
from rankpulse.core.diagnosing import diagnose
from rankpulse.core.snapshot import Snapshot
from rankpulse.core.verdict import Verdict
from rankpulse.core.words import printable

AT_ONCE_MAX: Final = 512  # ranks: some tens of milliseconds
LATE_S: Final = 25.0  # no verdict by then: none will come


@dataclass
class Case:
    """One snapshot. Neither `verdict` nor `why`: it is being diagnosed."""

    number: int
    asked_at: float
    verdict: Verdict | None = None
    why: str = ""  # there will be none

    def is_open(self, now: float) -> bool:
        if self.verdict is None and not self.why and now - self.asked_at >= LATE_S:
            self.why = f"no verdict came within {LATE_S:g} s"
        return self.verdict is None and not self.why


class Diagnoses:
    """One per engine."""

    def __init__(self) -> None:
        self.at_once_max = AT_ONCE_MAX
        self._number = 0
        self._open: dict[int, Case] = {}
        self._due: list[ev.Diagnose] = []

    def begin(self, snapshot: Snapshot, now: float) -> Case:
        """The verdict, or the promise of one."""
        self._number += 1
        case = Case(self._number, now)
        if len(snapshot.ranks) > self.at_once_max:
            self._open[case.number] = case
            self._due.append(ev.Diagnose(case.number, snapshot))
            return case
        try:
            case.verdict = diagnose(snapshot)
        except Exception as error:  # what beats and rows say must do then: a bug here must not hide a hang
            case.why = f"a bug in rankpulse: {printable(error, 120)}"
        return case

    def told(self, event: ev.Diagnosed) -> None:
        case = self._open.pop(event.number, None)
        if case is not None:
            case.verdict, case.why = event.verdict, "" if event.verdict is not None else event.detail or "none came"

    def forget(self, case: Case) -> None:
        """Nobody waits for it any more."""
        self._open.pop(case.number, None)

    def take_due(self) -> list[ev.Diagnose]:
        """What the shell has to diagnose; each once."""
        due, self._due = self._due, []
        return [one for one in due if one.number in self._open]

    def clear(self) -> None:
        self._open.clear()
        self._due.clear()
