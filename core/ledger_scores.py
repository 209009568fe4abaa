"""Which machines fail too often, and whether failures become more: of the live ledger, for metrics and the page.

Worked out when the ledger has changed, which is when a failure is entered or a day is written anew, once a minute at
most in a small fleet and more seldom in a large one; never because somebody asks. Days are added and taken off one by
one: what a change costs does not grow with what the ledger holds.
"""

from typing import Final, NamedTuple

from rankpulse.core.ledger import interrupts
from rankpulse.core.ledger_book import LedgerBook
from rankpulse.core.lemons import Score
from rankpulse.core.records import LedgerDay
from rankpulse.core.review_days import instants
from rankpulse.core.review_suspects import Exposed, gpus, nodes
from rankpulse.core.trend import Trend, trend

TOP: Final = 10  # nodes, and GPUs, that are told of by name: series are bounded whatever fails


class Picture(NamedTuple):
    """Worst first, those that failed at all. trend None: nothing ran. counted_at: UTC up to which days count."""

    nodes: tuple[Score, ...]
    gpus: tuple[Score, ...]
    trend: Trend | None
    counted_at: float


class LedgerScores:
    """One per engine. It covers what the ledger still holds one by one: `ledger.days_kept`, `ledger.entries_kept`."""

    def __init__(self, book: LedgerBook) -> None:
        self._book = book
        self._days: dict[str, LedgerDay] = {}  # that `_exposed` counts, by key
        self._exposed = Exposed()
        self._made: tuple[int, Picture] | None = None

    def picture(self) -> Picture:
        """As of the ledger's last change."""
        if self._made is None or self._made[0] != self._book.changes:
            self._made = self._book.changes, self._draw()
        return self._made[1]

    def _draw(self) -> Picture:
        self._follow(dict(self._book.live_days()))
        days = list(self._days.values())
        failures = [entry for _, entry in self._book.live_entries() if interrupts(entry)]
        gpu_h = sum(day.gpu_s for day in days) / 3600
        return Picture(
            nodes(failures, self._exposed),
            gpus(failures, self._exposed),
            trend(instants(failures, days), gpu_h) if gpu_h > 0 else None,
            max((day.at for day in days), default=0.0),
        )

    def _follow(self, present: dict[str, LedgerDay]) -> None:
        for key, day in self._days.items():
            if present.get(key) is not day:
                self._exposed.take_off(day)
        for key, day in present.items():
            if self._days.get(key) is not day:
                self._exposed.add(day)
        self._days = present
