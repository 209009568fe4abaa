"""The ledger as the store has it: entries, days, and the sums of what it has let go. Folded by every monitor.

Sums never count anything twice: what the record of the past counts already is left out where it still stands.
"""

from collections.abc import Iterator

from rankpulse.core.keys import Keys
from rankpulse.core.ledger_sums import Totals, summed
from rankpulse.core.records import LedgerDay, LedgerEntry, LedgerOrigin, LedgerPast, Record

NOTHING = LedgerPast(origin="", at=0.0)


class LedgerBook:
    """One per engine; `entries`, `days` by key, `pasts` by origin."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.origin: LedgerOrigin | None = None
        self.entries: dict[str, LedgerEntry] = {}
        self.days: dict[str, LedgerDay] = {}
        self.pasts: dict[str, LedgerPast] = {}
        self.listings = 0  # so far
        self.changes = 0  # so far: who has seen this many has seen all of it
        self._totals: tuple[int, Totals] | None = None
        self._older: tuple[int, str, Totals] | None = None  # the sums of all but the newest day
        self._newest, self._settled = "", 0  # that day, and changes of anything else

    def seen(self, key: str, record: Record) -> None:
        self.changes += 1
        if not isinstance(record, LedgerDay) or record.day < self._newest:
            self._settled += 1
        if isinstance(record, LedgerEntry):
            self.entries[key] = record
        elif isinstance(record, LedgerDay):
            self.days[key] = record
            self._newest = max(self._newest, record.day)
        elif isinstance(record, LedgerPast):
            self.pasts[record.origin] = record
        elif isinstance(record, LedgerOrigin):
            self.origin = record

    def gone(self, key: str) -> None:
        self.changes += 1
        self._settled += 1
        self.entries.pop(key, None)
        self.days.pop(key, None)
        if key == self._keys.ledger_origin():
            self.origin = None
        for origin in [name for name in self.pasts if self.key_of_past(self.pasts[name]) == key]:
            del self.pasts[origin]

    def relisted(self) -> None:
        """The listing tells it again."""
        self.listings += 1
        self.changes += 1
        self._settled += 1
        self._newest = ""
        self.origin = None
        self.entries.clear()
        self.days.clear()
        self.pasts.clear()

    @property
    def past(self) -> LedgerPast:
        """The sums of this store's own ledger."""
        return self.pasts.get(self.origin.origin, NOTHING) if self.origin is not None else NOTHING

    def name(self, key: str) -> str:
        """An entry's place in time, as the record of the past names it."""
        return key.rsplit("/", 1)[-1]

    def key_of_past(self, past: LedgerPast) -> str:
        return self._keys.ledger_past(past.origin)

    def live_entries(self) -> Iterator[tuple[str, LedgerEntry]]:
        """By key, those that are in no sum yet."""
        upto = self.past.entries_upto
        return ((key, one) for key, one in sorted(self.entries.items()) if self.name(key) > upto)

    def live_days(self) -> Iterator[tuple[str, LedgerDay]]:
        upto = self.past.days_upto
        return ((key, one) for key, one in sorted(self.days.items()) if one.day > upto)

    def totals(self) -> Totals:
        """Summed up anew only after something changed; of what changes every minute, the newest day, that alone."""
        if self._totals is None or self._totals[0] != self.changes:
            totals = self._sums_before(self._newest).copied()
            for _, day in self.live_days():
                if day.day == self._newest:
                    totals.add_day(day)
            self._totals = self.changes, totals
        return self._totals[1]

    def _sums_before(self, newest: str) -> Totals:
        if self._older is None or self._older[:2] != (self._settled, newest):
            entries = (one for _, one in self.live_entries())
            days = (one for _, one in self.live_days() if one.day != newest)
            self._older = self._settled, newest, summed(self.pasts.values(), entries, days)
        return self._older[2]
