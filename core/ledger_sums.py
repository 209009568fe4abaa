"""Sums of the ledger: failures, lost time and running time, in all and by run; GPU time between failures."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple

from rankpulse.core import effective_time, stages
from rankpulse.core.estimators import Bounds, rate_exact
from rankpulse.core.ledger import interrupts
from rankpulse.core.records import LedgerDay, LedgerEntry, LedgerPast

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


NEW = OfRun()


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
    _lent: bool = False  # runs are those of other sums: before one of them grows, it is copied

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
            run = self._run(entry.run_uid)
            run.failures += failed
            _more(run.lost_s, lost_s)

    def add_day(self, day: LedgerDay) -> None:
        self._exposed(day)
        for uid, row in day.runs.items():
            ranks = row.gpu_s / row.run_s if row.run_s > 0 else 0.0
            lost_s = {stages.CHECKPOINT: row.checkpoint_s, stages.STRAGGLING: row.straggling_s}
            _more(self.lost_s, lost_s)
            _more(self.lost_gpu_s, {name: s * ranks for name, s in lost_s.items()})
            run = self._run(uid)
            run.run_s, run.gpu_s = run.run_s + row.run_s, run.gpu_s + row.gpu_s
            _more(run.lost_s, lost_s)

    def copied(self) -> "Totals":
        """To add days to."""
        counters = Counter(self.failures), Counter(self.lost_s), Counter(self.lost_gpu_s)
        return Totals(*counters, self.node_s, self.gpu_s, self.run_s, self.unseen_s, dict(self.runs), _lent=True)

    def _run(self, uid: str) -> OfRun:
        run = self.runs.get(uid)
        if run is None or self._lent:
            before = run or NEW
            run = self.runs[uid] = OfRun(before.run_s, before.gpu_s, Counter(before.lost_s), before.failures)
        return run

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


def _between(failures: int, gpu_s: float) -> Between:
    """Failures without time to fail in say nothing."""
    if gpu_s <= 0:
        return Between(math.inf, 0.0, math.inf)
    few, many = _expected(failures)
    best = gpu_s / failures if failures else math.inf
    return Between(best, gpu_s / many, gpu_s / few if few else math.inf)


@lru_cache(maxsize=256)
def _expected(failures: int) -> Bounds:
    """How many were to be expected where so many came; time goes on every minute, this seldom changes."""
    return rate_exact(failures, 1.0)


def _more(into: Counter[str], seconds: dict[str, float]) -> None:
    """Counter is made for whole numbers; it takes others as well."""
    for name, s in seconds.items():
        into[name] += s  # type: ignore[assignment]
