"""The ledger as the store has it: entries, days, and the sums of what it has let go. Folded by every monitor.

Sums never count anything twice: what the record of the past counts already is left out where it still stands.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rankpulse.core import effective_time, stages
from rankpulse.core.estimators import rate_exact
from rankpulse.core.keys import Keys
from rankpulse.core.ledger import interrupts
from rankpulse.core.records import LedgerDay, LedgerEntry, LedgerOrigin, LedgerPast, Record

NOTHING = LedgerPast(origin="", at=0.0)
ALL = "all"


class Between(NamedTuple):
    """GPU seconds between failures, with the bounds of the exact 90 % interval; infinite where none failed."""

    best: float
    low: float
    high: float


@dataclass
class OfRun:
    """What the ledger holds of one run. Seconds."""

    run_s: float = 0.0
    gpu_s: float = 0.0
    lost_s: Counter[str] = field(default_factory=Counter)
    failures: int = 0

    def ettr(self) -> float | None:
        """The share of its time that interruptions left: the effective training time ratio."""
        return effective_time.ettr(self.run_s, self.lost_s)

    def goodput(self) -> float | None:
        """The share that is left when saving and slow ranks are taken off as well."""
        return effective_time.goodput(self.run_s, self.lost_s)


@dataclass
class Totals:
    """Sums over all that the ledger holds or has held. Seconds."""

    failures: Counter[str] = field(default_factory=Counter)  # by `<class>/<component>`
    lost_s: Counter[str] = field(default_factory=Counter)  # by what it went to
    lost_gpu_s: Counter[str] = field(default_factory=Counter)
    node_s: float = 0.0
    gpu_s: float = 0.0
    run_s: float = 0.0
    unseen_s: float = 0.0
    runs: dict[str, OfRun] = field(default_factory=dict)
    _between: dict[str, Between] | None = None

    def between_failures(self) -> dict[str, Between]:
        """By component, where one has failed; "all" of them together always."""
        if self._between is None:
            counts: Counter[str] = Counter({ALL: sum(self.failures.values())})
            for name, count in self.failures.items():
                counts[name.rpartition("/")[2]] += count
            self._between = {name: _between(count, self.gpu_s) for name, count in sorted(counts.items())}
        return self._between

    def add_past(self, past: LedgerPast) -> None:
        self.failures.update(past.failures)
        _more(self.lost_s, past.lost_s)
        _more(self.lost_gpu_s, past.lost_gpu_s)
        self._exposed(past)

    def add_entry(self, entry: LedgerEntry) -> None:
        lost_s = {name: s for name, s in entry.lost_s.items() if name in stages.CAUSES}
        _more(self.lost_s, lost_s)
        _more(self.lost_gpu_s, {name: s * entry.ranks for name, s in lost_s.items()})
        failed = interrupts(entry)
        if failed:
            self.failures[f"{entry.klass}/{entry.component}"] += 1
        if entry.run_uid:
            run = self.runs.setdefault(entry.run_uid, OfRun())
            run.failures += failed
            _more(run.lost_s, lost_s)

    def add_day(self, day: LedgerDay) -> None:
        self._exposed(day)
        for uid, row in day.runs.items():
            ranks = row.gpu_s / row.run_s if row.run_s > 0 else 0.0
            lost_s = {stages.CHECKPOINT: row.checkpoint_s, stages.STRAGGLING: row.straggling_s}
            _more(self.lost_s, lost_s)
            _more(self.lost_gpu_s, {name: s * ranks for name, s in lost_s.items()})
            run = self.runs.setdefault(uid, OfRun())
            run.run_s += row.run_s
            run.gpu_s += row.gpu_s
            _more(run.lost_s, lost_s)

    def _exposed(self, told: LedgerDay | LedgerPast) -> None:
        self.node_s += told.node_s
        self.gpu_s += told.gpu_s
        self.run_s += told.run_s
        self.unseen_s += told.unseen_s


def summed(pasts: Iterable[LedgerPast], entries: Iterable[LedgerEntry], days: Iterable[LedgerDay]) -> Totals:
    totals = Totals()
    for past in pasts:
        totals.add_past(past)
    for entry in entries:
        totals.add_entry(entry)
    for day in days:
        totals.add_day(day)
    return totals


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

    def seen(self, key: str, record: Record) -> None:
        self.changes += 1
        if isinstance(record, LedgerEntry):
            self.entries[key] = record
        elif isinstance(record, LedgerDay):
            self.days[key] = record
        elif isinstance(record, LedgerPast):
            self.pasts[record.origin] = record
        elif isinstance(record, LedgerOrigin):
            self.origin = record

    def gone(self, key: str) -> None:
        self.changes += 1
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
        """Summed up anew only after something changed."""
        if self._totals is None or self._totals[0] != self.changes:
            entries, days = (one for _, one in self.live_entries()), (one for _, one in self.live_days())
            self._totals = self.changes, summed(self.pasts.values(), entries, days)
        return self._totals[1]


def _between(failures: int, gpu_s: float) -> Between:
    """Failures without time to fail in say nothing."""
    if gpu_s <= 0:
        return Between(math.inf, 0.0, math.inf)
    rate = rate_exact(failures, gpu_s)
    best = gpu_s / failures if failures else math.inf
    return Between(best, 1 / rate.high, 1 / rate.low if rate.low else math.inf)


def _more(into: Counter[str], seconds: dict[str, float]) -> None:
    """Counter is made for whole numbers; it takes others as well."""
    for name, s in seconds.items():
        into[name] += s  # type: ignore[assignment]
