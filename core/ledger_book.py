"""The ledger as the store has it: entries, days, and the sums of what it has let go. Folded by every monitor.

Sums never count anything twice: what the record of the past counts already is left out where it still stands.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator

from rankpulse.core.keys import Keys
from rankpulse.core.ledger import interrupts
from rankpulse.core.ledger_running import RunningSums
from rankpulse.core.ledger_sums import Totals
from rankpulse.core.records import LedgerDay, LedgerEntry, LedgerOrigin, LedgerPast, Record

NOTHING = LedgerPast(origin="", at=0.0)


class LedgerBook:
    """One per engine; `entries`, `days` by key, `pasts` by origin."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self.origin: LedgerOrigin | None = None
        self.followed: LedgerOrigin | None = None  # the last one that was seen, also where the store has lost it
        self.entries: dict[str, LedgerEntry] = {}
        self.days: dict[str, LedgerDay] = {}
        self.pasts: dict[str, LedgerPast] = {}
        self.listings = 0  # so far
        self.changes = 0  # so far: whoever works something out of it sees by it whether that still holds
        self._sums = RunningSums()
        self._failures: dict[str, list[tuple[str, LedgerEntry]]] = {}  # by run, in order of their keys

    def seen(self, key: str, record: Record) -> None:
        self.changes += 1
        if isinstance(record, LedgerEntry):
            self._entered(key, record)
        elif isinstance(record, LedgerDay):
            before, self.days[key] = self.days.get(key), record
            self._sums.day(key, before, record, self.past.days_upto)
        elif isinstance(record, LedgerPast):
            self.pasts[record.origin] = record
            self._sums.spoiled()
        elif isinstance(record, LedgerOrigin):
            self.origin = self.followed = record
            self._sums.spoiled()

    def gone(self, key: str) -> None:
        self.changes += 1
        entry, day = self.entries.pop(key, None), self.days.pop(key, None)
        if entry is not None:
            self._forget_failure(key, entry)
        if entry is not None and self._is_live(key):
            self._sums.spoiled()
        if day is not None and day.day > self.past.days_upto:
            self._sums.day_gone(key)
        if key == self._keys.ledger_origin():
            self.origin = None
            self._sums.spoiled()
        for origin in [name for name in self.pasts if self.key_of_past(self.pasts[name]) == key]:
            del self.pasts[origin]
            self._sums.spoiled()

    def relisted(self) -> None:
        """The listing tells it again."""
        self.listings += 1
        self.changes += 1
        self.origin = None
        self.entries.clear()
        self.days.clear()
        self.pasts.clear()
        self._failures.clear()
        self._sums.relisted()

    def copied(self) -> "LedgerBook":
        """What it holds now, to be looked through beside the loop; without the sums."""
        made = LedgerBook(self._keys)
        made.origin, made.listings = self.origin, self.listings
        made.entries, made.days, made.pasts = dict(self.entries), dict(self.days), dict(self.pasts)
        return made

    @property
    def past(self) -> LedgerPast:
        """The sums of this store's own ledger."""
        return self.pasts.get(self.origin.origin, NOTHING) if self.origin is not None else NOTHING

    @property
    def let_go_until(self) -> float:
        """A UTC time: an entry from before it would be taken for one that is in the sums already; 0: there are none."""
        mark = self.past.entries_upto[:13]
        return (int(mark) + 1) / 1000 if mark.isascii() and mark.isdigit() else 0.0

    def day(self, name: str) -> LedgerDay | None:
        """What this store's own ledger says of a day."""
        return self.days.get(self._keys.ledger_day(name, self.origin.origin)) if self.origin is not None else None

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

    def failures(self, run_uid: str) -> list[LedgerEntry]:
        """What interrupted a run, in order of time, as far as it is in no sum yet."""
        return [one for key, one in self._failures.get(run_uid, ()) if self._is_live(key)]

    def totals(self) -> Totals:
        return self._sums.totals(self.pasts, self.live_entries, self.live_days)

    def _is_live(self, key: str) -> bool:
        return self.name(key) > self.past.entries_upto

    def _entered(self, key: str, entry: LedgerEntry) -> None:
        before, self.entries[key] = self.entries.get(key), entry
        if before == entry:
            return
        if before is not None:
            self._forget_failure(key, before)
            self._sums.spoiled()
        elif self._is_live(key):
            self._sums.entry(entry)
        if entry.run_uid and interrupts(entry):
            insort(self._failures.setdefault(entry.run_uid, []), (key, entry), key=lambda row: row[0])

    def _forget_failure(self, key: str, entry: LedgerEntry) -> None:
        rows = self._failures.get(entry.run_uid, [])
        at = bisect_left(rows, key, key=lambda row: row[0])
        if at < len(rows) and rows[at][0] == key:
            del rows[at]
