"""The ledger's sums while it grows: an entry that comes costs an addition, whatever the ledger holds already.

A day that goes on is written again every minute, so the one that changed last is kept apart and added at the end. Only
where something that was summed up changed or went are all of them made anew.
"""

from collections.abc import Callable, Iterable, Mapping

from rankpulse.core.ledger_sums import Totals, summed
from rankpulse.core.records import LedgerDay, LedgerEntry, LedgerPast


class RunningSums:
    """One per book, which tells what came and what went."""

    def __init__(self) -> None:
        self._settled: Totals | None = None  # of all but the day that moves; None: to be made anew
        self._moving: tuple[str, LedgerDay] | None = None  # key and record of the day that changed last
        self._all: Totals | None = None

    def spoiled(self) -> None:
        """Something that was counted is no more, or another."""
        self._settled = self._all = None

    def relisted(self) -> None:
        """All of it is told again."""
        self.spoiled()
        self._moving = None

    def entry(self, entry: LedgerEntry) -> None:
        """A new one."""
        self._all = None
        if self._settled is not None:
            self._settled.add_entry(entry)

    def day(self, key: str, before: LedgerDay | None, day: LedgerDay, upto: str) -> None:
        """A day is there, or counts more than `before`. `upto`: days up to this one are in no sum but the past's."""
        if before == day:
            return
        self._all = None
        if self._moving is None or self._moving[0] != key:
            self._settle(upto, known=before is not None)
        self._moving = key, day

    def day_gone(self, key: str) -> None:
        self.spoiled()
        if self._moving is not None and self._moving[0] == key:
            self._moving = None

    def totals(
        self,
        pasts: Mapping[str, LedgerPast],
        entries: Callable[[], Iterable[tuple[str, LedgerEntry]]],
        days: Callable[[], Iterable[tuple[str, LedgerDay]]],
    ) -> Totals:
        """Of what the book holds; it is asked for all of it only where it has to be."""
        moving = self._moving[0] if self._moving is not None else ""
        if self._settled is None:
            others = [day for key, day in days() if key != moving]
            self._settled = summed(pasts.values(), (entry for _, entry in entries()), others)
        if self._all is None:
            self._all = self._settled.copied()
            for _, day in (row for row in days() if row[0] == moving):
                self._all.add_day(day)
        return self._all

    def _settle(self, upto: str, *, known: bool) -> None:
        """Another day moves from now on: the one that did so far stays as it is."""
        if known:  # it is among the sums as it was before
            self._settled = None
        if self._settled is not None and self._moving is not None and self._moving[1].day > upto:
            self._settled.add_day(self._moving[1])
