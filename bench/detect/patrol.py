"""Which stretches of a day the engine is driven through, and what it wrongly decides in them.

A conviction needs a node of which nothing was heard on any path for as long as the operating point says, so nothing
can happen where every node was heard more often than that. Driven are the stretches around longer silences, with a
lead-in in which the engine learns what it would know; all other time counts as watched. `--straight` leaves nothing
out, and must decide the same.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec
import numpy as np

from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.drive import CLUSTER, Drive, Verdict, Way
from rankpulse.bench.detect.job import Job, Timeline
from rankpulse.bench.detect.past import REMEMBERED_S, Past
from rankpulse.bench.detect.senders import Beats, node_beats
from rankpulse.bench.detect.trace import Day
from rankpulse.core import cost_rule
from rankpulse.core import records as r
from rankpulse.core.fleet_learned import HEALED_KEPT
from rankpulse.core.fold_beats import MOVED_WITHIN_S

LEAD_IN_S: Final = 60.0
TAIL_S: Final = MOVED_WITHIN_S + 2.0  # so long it takes to know that a silence has healed by itself
FLEET: Final = CLUSTER.fleet_learned()
HEALED_S: Final = 2.0  # freezes and rack pauses longer than this are driven through, too: the cost rule learns of them


class Span(NamedTuple):
    begin: float
    end: float


@dataclass
class Found:
    """What came of a day or of several."""

    seconds: float = 0.0
    convicted: list[Verdict] = field(default_factory=list)
    others: dict[str, int] = field(default_factory=dict)  # further incidents, by class
    driven_s: float = 0.0
    beats: int = 0
    ticks: int = 0
    learned: dict[str, r.Record] = field(default_factory=dict)  # what the store holds at the end


def node_day(day: Day) -> list[Beats]:
    return [node_beats(day, node) for node in range(day.nodes)]


def silences(beats: list[Beats], least_s: float) -> list[Span]:
    """Every stretch in which some node was not heard for so long, by its beginning."""
    found = []
    for mine in beats:
        gaps = np.diff(mine.arrived)
        for k in np.flatnonzero(gaps > least_s):
            found.append(Span(float(mine.arrived[k]), float(mine.arrived[k + 1])))
    return sorted(found)


def disturbances(day: Day, beats: list[Beats], least_s: float) -> list[Span]:
    """What is driven through."""
    healed = [Span(a, b) for spans in (day.racks, day.freezes) for a, b in spans.pairs() if b - a > HEALED_S]
    return sorted([*silences(beats, least_s), *healed])


def least(way: Way, learned: r.FleetLearned | None) -> float:
    """Shorter silences convict nobody: the way's own bound, or less where the cost rule has come to wait less."""
    times = cost_rule.times(way.settings.detect, learned)
    return min(way.least_s, times.node_s - z.INTERVAL_S, times.rack_s - z.INTERVAL_S)


def lead_in(day: Day, at: float) -> float:
    """Where to begin, so that a minute of training lies before `at`, and jitter that deadlines remember (see past.py:
    what is learned while many are late together depends on what was learned before)."""
    begin = at - LEAD_IN_S
    for start, end in day.regimes.pairs():
        if start < at and end + REMEMBERED_S > begin:
            begin = min(begin, start - LEAD_IN_S)
    for phases in (day.checkpoints, day.evaluations):
        for start, end in phases.pairs():
            if start < at and end > begin:
                begin = min(begin, start - LEAD_IN_S)
    return float(max(math.floor(begin), 0))


def stretches(day: Day, found: Iterable[Span], free_at: float) -> list[Span]:
    """The stretches to drive, from `free_at` on."""
    spans = [
        Span(max(lead_in(day, one.begin), free_at), min(one.end + TAIL_S, day.seconds))
        for one in found
        if one.begin >= free_at
    ]
    result: list[Span] = []
    for span in sorted(spans):
        if result and span.begin < result[-1].end:
            result[-1] = Span(result[-1].begin, max(result[-1].end, span.end))
        else:
            result.append(span)
    return result


def patrol(
    day: Day,
    beats: list[Beats],
    line: Timeline,
    way: Way,
    *,
    experience: r.FleetLearned | None = None,
    straight: bool = False,
    past: Past | None = None,
) -> Found:
    """A day without deaths: every conviction is a mistake, and restarts the job. `experience`: of days before."""
    drive, life = Drive(day, beats, Job(line, way.manner), way, past=past), Life(day, experience)
    silent = [] if straight else disturbances(day, beats, least(way, experience))
    found, free_at = Found(day.seconds), 0.0
    todo = [Span(0.0, day.seconds)] if straight else stretches(day, silent, 0.0)
    while todo:
        span = todo.pop(0)
        drive.store[FLEET] = life.learned(drive.store, span.begin)
        for verdict in drive.stretch(*span):
            if verdict.klass not in way.alarms or not verdict.nodes:
                found.others[verdict.klass] = found.others.get(verdict.klass, 0) + 1
                continue
            found.convicted.append(verdict)
            free_at = verdict.at + z.BLOCKED_S
            todo = [Span(free_at, day.seconds)] if straight else stretches(day, silent, free_at)
            todo = [span for span in todo if span.begin < day.seconds]
            break
    drive.store[FLEET] = life.learned(drive.store, day.seconds)
    found.learned = dict(drive.store)
    found.driven_s, found.beats, found.ticks = drive.watched_s, drive.folded, drive.ticks
    return found


class Life:
    """What the cost rule knows of the fleet by and by: time that is not driven through was watched all the same, and
    the trace's real failures, whose detection is measured apart, have been seen."""

    def __init__(self, day: Day, before: r.FleetLearned | None) -> None:
        self._day, self._before = day, before or r.FleetLearned(at=0.0)
        rng = day.rng("failures")
        count = int(rng.poisson(z.FAILURES_PER_NODE_DAY * day.nodes * day.seconds / z.DAY_S))
        self._failures = np.sort(rng.uniform(0.0, day.seconds, count))

    def learned(self, store: dict[str, r.Record], at: float) -> r.FleetLearned:
        """The record as it stands at that moment of the day; silences as the engine has counted them."""
        record = store.get(FLEET, self._before)
        assert isinstance(record, r.FleetLearned)
        days = self._before.node_days + self._day.nodes * at / z.DAY_S
        deaths = self._before.deaths + int(np.searchsorted(self._failures, at))
        return msgspec.structs.replace(record, node_days=days, deaths=deaths)


def summed(records: list[r.FleetLearned]) -> r.FleetLearned:
    """The experience of several fleets, or of one on several days."""
    healed = tuple(s for record in records for s in record.healed_s)
    return r.FleetLearned(
        at=0.0,
        node_days=sum(record.node_days for record in records),
        deaths=sum(record.deaths for record in records),
        healed_s=healed[-HEALED_KEPT:],
        healed=sum(record.healed for record in records),
    )
