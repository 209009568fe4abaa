"""`rankpulse bench hang`: jobs that a fault has stopped, and which rule names the culprit by the dumps alone.

Trials are independent of each other and go to processes; what comes out depends on the seed alone, the times apart.
"""

import json as json_
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from random import Random
from typing import Any, Final, NamedTuple

from rankpulse.bench.hang import dumps, faults, speed, tables
from rankpulse.bench.hang.layout import Layout
from rankpulse.bench.hang.program import Style
from rankpulse.bench.hang.trials import Score, hang, judged, rows_of

SHARES: Final = (0.0, 0.05, 0.2)  # of dumps that are missing
BATCH: Final = 10  # trials that go to a process together
QUICK: Final = 3


class Field(NamedTuple):
    """A topology and what is recorded of it."""

    name: str
    layout: Layout
    recorders: tuple[str, ...]
    trials: int  # per kind of fault
    style: Style | None = None  # None: drawn for each trial


NCCL: Final = (dumps.TIMED, dumps.UNTIMED)
# programs of 16,384 ranks are short: what counts is who waits for whom at the end, not how long it went well
SHORT: Final = Style(microbatches=4, layers=1, buckets=2, steps=2)
FIELDS: Final = (
    Field("TP4 x PP4 x DP4", Layout(4, 4, 4), NCCL, 100),
    Field("TP4 x PP4 x DP4", Layout(4, 4, 4), (dumps.GLOO,), 40),
    Field("TP4 x PP4 x DP4, EP2", Layout(4, 4, 4, ep=2), (dumps.TIMED,), 20),
    Field("TP2 x PP4 x DP2", Layout(2, 4, 2), (dumps.TIMED,), 20),
    Field("TP8 x PP16 x DP128", Layout(8, 16, 128), (dumps.TIMED,), 1, SHORT),
)


class Work(NamedTuple):
    field: int
    kind: str
    first: int
    trials: int
    seed: int


class Result(NamedTuple):
    field: int
    kind: str
    recorder: str
    missing: float
    rule: str
    score: Score


def run(is_quick: bool = False, seed: int = 1, jobs: int | None = None, big: bool = True, json: bool = False) -> int:
    """Run all trials and print. Returns 0."""
    fields = FIELDS if big and not is_quick else FIELDS[:-1]
    with ProcessPoolExecutor(jobs or os.cpu_count()) as pool:
        found = [result for results in pool.map(work, _plan(fields, is_quick, seed)) for result in results]
    report = {
        "rows": list(_rows(found)),
        "speed": speed.measured(fields[-1].layout, SHORT),
        "seed": seed,
        "quick": is_quick,
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": sys.version.split()[0],
    }
    print(json_.dumps(report) if json else tables.text(report))
    return 0


def work(task: Work) -> list[Result]:
    """Some trials of one kind of fault."""
    field = FIELDS[task.field]
    found: list[Result] = []
    for trial in range(task.first, task.first + task.trials):
        lot = f"{task.seed}/{field.name}/{field.recorders}/{task.kind}/{trial}"
        found += _trial(task, field, Random(lot))  # noqa: S311
    return found


def _trial(task: Work, field: Field, random: Random) -> Iterator[Result]:
    stopped = hang(task.kind, field.layout, random, field.style, blocking=dumps.GLOO in field.recorders)
    groups = dumps.groups(field.layout)
    for recorder in field.recorders:
        for share, rows in rows_of(stopped, recorder, SHARES, random):
            for rule, score in judged(stopped, rows, groups):
                yield Result(task.field, task.kind, recorder, share, rule, score)


def _plan(fields: Iterable[Field], is_quick: bool, seed: int) -> Iterator[Work]:
    """The longest first."""
    for number, field in reversed(list(enumerate(fields))):
        trials = min(QUICK, field.trials) if is_quick else field.trials
        step = BATCH if field.style is None else 1
        for kind in faults.KINDS:
            if kind == faults.GPU and dumps.GLOO in field.recorders:
                continue  # there is no device that the host could be ahead of
            for first in range(0, trials, step):
                yield Work(number, kind, first, min(step, trials - first), seed)


def _rows(found: Iterable[Result]) -> Iterator[dict[str, Any]]:
    """Figures per field, recorder, share of missing dumps, kind of fault and rule."""
    cells: dict[tuple[Any, ...], list[Score]] = {}
    for result in found:
        cells.setdefault(result[:-1], []).append(result.score)
    for (field, kind, recorder, missing, rule), scores in sorted(cells.items()):
        yield {
            "topology": FIELDS[field].name,
            "ranks": FIELDS[field].layout.size,
            "fault": kind,
            "recorder": recorder,
            "missing": missing,
            "rule": rule,
            "trials": len(scores),
            "exact": sum(score.exact for score in scores),
            "wrong": sum(score.wrong for score in scores),
            "first": sum(score.first for score in scores),
            "contains": sum(score.contains for score in scores),
            "size": round(sum(score.size for score in scores) / len(scores), 1),
        }
