"""Which records of the ledger should stand in the store. Asked once per tick, only while leading.

An entry is created from an incident that stands in the store as closed, under a name that follows from it: a monitor
may die at any line, and there is one entry, not two and not none. What is kept longest goes into sums first and is
erased after the sums stand in the store.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from rankpulse.core import ledger
from rankpulse.core.desk import Desk
from rankpulse.core.incidents import CLOSED
from rankpulse.core.ledger_book import LedgerBook
from rankpulse.core.ledger_sums import Totals, summed
from rankpulse.core.records import Incident, LedgerDay, LedgerEntry, LedgerOrigin, LedgerPast

SLACK: Final = 0.9  # of the entries are kept when there are too many, so that sums are not written for each
FOLD_EVERY_S: Final = 60.0


class LedgerKeeping:
    """One per judge."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._origin: LedgerOrigin | None = None  # that we begin with, where no other is known
        self._entered: tuple[int, set[tuple[str, float | None]]] = -1, set()  # as of a listing: those with an entry
        self._folded_at = float("-inf")

    @property
    def _book(self) -> LedgerBook:
        return self._desk.folder.ledger

    def judge(self) -> None:
        desk, origin = self._desk, self._book.origin
        if origin is None:
            self._origin = self._book.followed or self._origin or _new(desk.at)
            desk.want(desk.keys.ledger_origin(), self._origin, "the ledger begins", once=True)
            return
        for incident in desk.book:
            if incident.state == CLOSED and not self.stands(incident):
                self._enter(incident)
        for day in desk.folder.exposure.due(desk.now, desk.at, origin.origin):
            desk.want(desk.keys.ledger_day(day.day, day.origin), day, f"the ledger of {day.day}")
        self._let_go(origin.origin)

    def stands(self, incident: Incident) -> bool:
        """Whether the ledger counts it, so that the incident may be forgotten."""
        listing, known = self._entered
        if listing != self._desk.folder.listings:
            known = set()
            self._entered = self._desk.folder.listings, known
        mark = incident.id, incident.closed_at
        if mark in known:
            return True
        key = self._key(incident)
        if key not in self._book.entries and self._book.name(key) > self._book.past.entries_upto:
            return False
        known.add(mark)
        return True

    def _enter(self, incident: Incident) -> None:
        """Only what stands in the store is entered: what is decided anew might say something else."""
        desk = self._desk
        if desk.book.stands(incident.id):
            desk.folder.exposure.hurry()
            made = ledger.entry(incident, desk.folder.findings.get(incident.id))
            desk.want(self._key(incident), made, f"ledger: {incident.id}", once=True)

    def _key(self, incident: Incident) -> str:
        return self._desk.keys.ledger_entry(incident.closed_at or 0.0, incident.id)

    def _let_go(self, origin: str) -> None:
        """Bound the ledger. What the sums in the store count already is erased; then they are to count more."""
        desk, book, past = self._desk, self._book, self._book.past
        if desk.now - self._folded_at < FOLD_EVERY_S:
            return
        self._folded_at = desk.now
        kept, entered = desk.settings.ledger, [key for key in book.entries if book.name(key) <= past.entries_upto]
        counted = [key for key, day in book.days.items() if day.day <= past.days_upto]
        for key in (*entered, *counted):
            desk.erase(key)
        if len(book.entries) - len(entered) <= kept.entries_kept and len(book.days) - len(counted) <= kept.days_kept:
            return  # as nearly always: nothing has to be put in order
        entries, days = list(book.live_entries()), list(book.live_days())
        first, before = first_day(days, kept.days_kept), self._first_to_enter()
        old_days = [day for _, day in days if day.day < first]
        old = [row for row in old_entries(entries, first, kept.entries_kept) if not before or row[0] < before]
        if old or old_days:
            desk.want(desk.keys.ledger_past(origin), grown(past, origin, desk.at, old, old_days), "the ledger's past")

    def _first_to_enter(self) -> str:
        """The first key that is still to be created, "" for none: sums that reach beyond would seem to count it."""
        waiting = (self._key(one) for one in self._desk.book if one.state == CLOSED and not self.stands(one))
        return min(waiting, default="")


def _new(at: float) -> LedgerOrigin:
    return LedgerOrigin(origin=f"o{round(at * 1000):013d}", at=at)


def first_day(days: Sequence[tuple[str, LedgerDay]], kept: int) -> str:
    """The first of the newest days that are kept; "" while there are no more of them.

    Days that have a record are counted, not days of the calendar: a clock that is years ahead costs nothing.
    """
    names = sorted({day.day for _, day in days})
    return names[-kept] if len(names) > kept else ""


def old_entries(entries: Sequence[tuple[str, LedgerEntry]], first: str, kept: int) -> list[tuple[str, LedgerEntry]]:
    """Entries before that day, and the oldest of too many. `entries` in order of their keys."""
    too_many = len(entries) - int(kept * SLACK) if len(entries) > kept else 0
    return [
        row
        for number, row in enumerate(entries)
        if number < too_many or (first and ledger.day_of(row[1].closed_at) < first)
    ]


def grown(
    past: LedgerPast,
    origin: str,
    at: float,
    entries: Sequence[tuple[str, LedgerEntry]],
    days: Sequence[LedgerDay],
) -> LedgerPast:
    """The sums with these in them."""
    totals: Totals = summed((past,), (entry for _, entry in entries), days)
    return msgspec.structs.replace(
        past,
        origin=origin,
        at=at,
        entries_upto=max([past.entries_upto, *(key.rsplit("/", 1)[-1] for key, _ in entries)]),
        days_upto=max([past.days_upto, *(day.day for day in days)]),
        failures=dict(sorted(totals.failures.items())),
        lost_s={name: round(s, 3) for name, s in sorted(totals.lost_s.items())},
        lost_gpu_s={name: round(s, 3) for name, s in sorted(totals.lost_gpu_s.items())},
        node_s=totals.node_s,
        gpu_s=totals.gpu_s,
        run_s=totals.run_s,
        unseen_s=totals.unseen_s,
    )
