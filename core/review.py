"""What a stretch of the ledger says: the figures of a weekly review, each with its interval. Values in, values out."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rankpulse.core import effective_time, stages
from rankpulse.core.estimators import Mtbf, mtbf
from rankpulse.core.ledger import interrupts
from rankpulse.core.ledger_sums import OfRun, Totals, summed
from rankpulse.core.lemons import Score
from rankpulse.core.records import LedgerDay, LedgerEntry, RunAdvice
from rankpulse.core.review_days import DAY_S, Column, Span, by_day, columns, instants, midnight
from rankpulse.core.review_suspects import Exposed, gpus, nodes
from rankpulse.core.trend import Trend, trend

HOUR_S: Final = 3600.0


class Told(NamedTuple):
    """All that is known, also from before the stretch. `open_`: incidents that are not over, as they count by now."""

    entries: Sequence[LedgerEntry]
    days: Sequence[LedgerDay]
    open_: Sequence[LedgerEntry] = ()
    summaries: Mapping[str, str] = {}  # by incident
    advice: Mapping[str, RunAdvice] = {}  # by run
    let_go: str = ""  # the last day that is only in the ledger's sums by now


class Failing(NamedTuple):
    """One class, or one component, in GPU hours. `between` None: nothing ran, so nothing can be said."""

    name: str
    component: str
    failures: int
    between: Mtbf | None


class Lost(NamedTuple):
    cause: str
    run_h: float
    gpu_h: float


class Cost(NamedTuple):
    """What one incident was, and what it took of its run's time."""

    entry: LedgerEntry
    summary: str
    run_h: float
    gpu_h: float


class RunRow(NamedTuple):
    uid: str
    label: str
    of: OfRun
    advice: RunAdvice | None


@dataclass(frozen=True, slots=True)
class Review:
    """Hours, but for what is called a time, which is UTC. `before`: the stretch of equal length before this one."""

    begin: float
    end: float
    node_h: float
    gpu_h: float
    run_h: float
    unseen_h: float
    all: Failing
    components: tuple[Failing, ...]
    classes: tuple[Failing, ...]
    lost: tuple[Lost, ...]
    ettr: float | None
    runs: tuple[RunRow, ...]
    incidents: tuple[Cost, ...]  # those that cost most first
    detect_s: tuple[float, ...]
    recover_s: tuple[float, ...]
    nodes: tuple[Score, ...]
    gpus: tuple[Score, ...]
    trend: Trend | None
    columns: tuple[Column, ...]
    before: Failing | None
    let_go: str  # days up to this one are missing; "" where none is


def review(told: Told, begin: float, end: float) -> Review:
    """Of whole days of UTC, from the one of `begin` on; 0: from the beginning."""
    span = Span(midnight(begin), end)
    entries, days = _within(told, span)
    totals = summed((), (*entries, *told.open_), days)
    failures = [entry for entry in entries if interrupts(entry)]
    gpu_h = totals.gpu_s / HOUR_S
    placed = instants(failures, days)
    exposed = Exposed()
    for day in days:
        exposed.add(day)
    return Review(
        begin=span.begin or _first(days, entries, end),
        end=end,
        node_h=totals.node_s / HOUR_S,
        gpu_h=gpu_h,
        run_h=totals.run_s / HOUR_S,
        unseen_h=totals.unseen_s / HOUR_S,
        all=Failing("all", "", len(failures), _between(len(failures), gpu_h)),
        components=_counted(Counter((one.component, one.component) for one in failures), gpu_h),
        classes=_counted(Counter((one.klass, one.component) for one in failures), gpu_h),
        lost=_lost(totals),
        ettr=effective_time.fleet_ettr((run.gpu_s, ratio) for run in totals.runs.values()
                                       if (ratio := run.ettr()) is not None),
        runs=_runs(totals, days, told),
        incidents=_costs((*entries, *told.open_), told.summaries),
        detect_s=_known(one.time_to_detect_s for one in failures),
        recover_s=_known(one.time_to_recover_s for one in failures),
        nodes=nodes(failures, exposed),
        gpus=gpus(failures, exposed),
        trend=trend(placed, gpu_h) if gpu_h > 0 else None,
        columns=columns(failures, days, span),
        before=_before(told, span),
        let_go=told.let_go if told.let_go and told.let_go >= by_day(span.begin) else "",
    )  # fmt: skip


def middle(seconds: Sequence[float]) -> float | None:
    """The median; None of nothing."""
    return statistics.median(seconds) if seconds else None


def _within(told: Told, span: Span) -> tuple[list[LedgerEntry], list[LedgerDay]]:
    first, last = by_day(span.begin), by_day(span.end)
    entries = [one for one in told.entries if first <= by_day(one.closed_at) <= last]
    return entries, [one for one in told.days if first <= one.day <= last]


def _first(days: Sequence[LedgerDay], entries: Sequence[LedgerEntry], end: float) -> float:
    """When that began of which everything is told."""
    begins = [start for one in days if (start := midnight(one.day)) > 0] + [one.opened_at for one in entries]
    return min(begins, default=end)


def _before(told: Told, span: Span) -> Failing | None:
    """None where nothing is known of it."""
    if not span.begin:
        return None
    length = math.ceil((span.end - span.begin) / DAY_S) * DAY_S
    entries, days = _within(told, Span(span.begin - length, span.begin - 1e-3))
    gpu_h = sum(day.gpu_s for day in days) / HOUR_S
    count = sum(interrupts(entry) for entry in entries)
    return Failing("before", "", count, _between(count, gpu_h)) if gpu_h > 0 else None


def _between(count: int, gpu_h: float) -> Mtbf | None:
    return mtbf(count, gpu_h) if gpu_h > 0 else None


def _counted(counts: Counter[tuple[str, str]], gpu_h: float) -> tuple[Failing, ...]:
    rows = [Failing(name, what, count, _between(count, gpu_h)) for (name, what), count in counts.items()]
    return tuple(sorted(rows, key=lambda row: (-row.failures, row.name)))


def _lost(totals: Totals) -> tuple[Lost, ...]:
    rows = [Lost(cause, totals.lost_s[cause] / HOUR_S, totals.lost_gpu_s[cause] / HOUR_S) for cause in stages.CAUSES]
    return tuple(sorted((row for row in rows if row.run_h > 0), key=lambda row: -row.run_h))


def _runs(totals: Totals, days: Sequence[LedgerDay], told: Told) -> tuple[RunRow, ...]:
    labels = {uid: share.run_id for day in days for uid, share in day.runs.items()}
    labels |= {one.run_uid: one.run_id for one in told.entries if one.run_id and not labels.get(one.run_uid)}
    rows = [RunRow(uid, labels.get(uid, ""), run, told.advice.get(uid)) for uid, run in totals.runs.items()]
    return tuple(sorted(rows, key=lambda row: (-row.of.gpu_s, row.uid)))


def _costs(entries: Iterable[LedgerEntry], summaries: Mapping[str, str]) -> tuple[Cost, ...]:
    rows = []
    for entry in entries:
        run_h = sum(s for cause, s in entry.lost_s.items() if cause in stages.CAUSES) / HOUR_S
        rows.append(Cost(entry, summaries.get(entry.id, ""), run_h, run_h * entry.ranks))
    return tuple(sorted(rows, key=lambda row: (-row.gpu_h, -row.run_h, row.entry.opened_at, row.entry.id)))


def _known(seconds: Iterable[float | None]) -> tuple[float, ...]:
    return tuple(sorted(s for s in seconds if s is not None))
