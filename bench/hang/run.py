"""`rankpulse bench hang`: jobs that a fault has stopped, and which rule names the culprit by the dumps alone.

Trials are independent of each other and go to processes; what comes out depends on the seed alone, the times apart.
"""

import json as json_
import os
import platform
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from rankpulse.bench.detect.keeping import BadPlace
from rankpulse.bench.hang import dumps, faults, speed, tables
from rankpulse.bench.hang.kept import Kept
from rankpulse.bench.hang.plan import ALL, BIG, FIELDS, LARGE, SHARES, SHORT, Field, Result, Work, is_full, plan
from rankpulse.bench.hang.program import Style
from rankpulse.bench.hang.shared import Base, Lot
from rankpulse.bench.hang.trials import Hang, Score, answers, fewer, hang, judged, rows_of, score
from rankpulse.core.snapshot import Rank


def run(
    is_quick: bool = False,
    seed: int = 1,
    jobs: int | None = None,
    large: int = LARGE,
    small: bool = True,
    json: bool = False,
    out: str = "",
) -> int:
    """Run all trials and print. Returns 0, or 2 where `out` is no place for them."""
    try:
        kept = Kept(Path(out) if out else None)
    except BadPlace as error:
        print(error, file=sys.stderr)
        return 2
    found = list(_all(list(plan(is_quick, seed, large, small)), kept, jobs or os.cpu_count() or 1))
    report = {
        "rows": list(_rows(found)),
        "speed": [] if is_quick else speed.measured(FIELDS[BIG].layout, SHORT),
        "seed": seed,
        "large": large,
        "small": small,
        "quick": is_quick,
        "date": datetime.now(UTC).date().isoformat(),
        "cpus": os.cpu_count(),
        "machine": platform.machine(),
        "python": sys.version.split()[0],
    }
    print(json_.dumps(report) if json else tables.text(report))
    return 0


def _all(tasks: list[Work], kept: Kept, jobs: int) -> Iterator[Result]:
    """What was done already, then the rest as it ends."""
    done = {task: kept.found(task) for task in tasks}
    for results in done.values():
        yield from results or ()
    with ProcessPoolExecutor(jobs) as pool:
        running = {pool.submit(work, task): task for task, results in done.items() if results is None}
        for one in as_completed(running):
            kept.keep(running[one], one.result())
            yield from one.result()


def work(task: Work) -> list[Result]:
    """Some trials: of one kind of fault, or of a large job of every kind."""
    if task.kind == ALL:
        return _shared(task)
    field = FIELDS[task.field]
    found: list[Result] = []
    for trial in range(task.first, task.first + task.trials):
        found += _trial(task, field, _random(task, field, task.kind, trial))
    return found


def _random(task: Work, field: Field, *lot: object) -> Random:
    return Random("/".join(map(str, (task.seed, field.name, field.recorders, *lot))))  # noqa: S311


def _trial(task: Work, field: Field, random: Random) -> Iterator[Result]:
    stopped = hang(task.kind, field.layout, random, field.style, blocking=dumps.GLOO in field.recorders)
    groups = dumps.groups(field.layout)
    for recorder in field.recorders:
        for share, rows in rows_of(stopped, recorder, SHARES, random):
            for rule, scored in judged(stopped, rows, groups):
                yield Result(task.field, task.kind, recorder, share, rule, scored)


def _shared(task: Work) -> list[Result]:
    """A batch out of one run of a large job. A fault that stops no job is left out."""
    field = FIELDS[task.field]
    random = _random(task, field, "batch", task.first)
    base = Base(field.layout, _varied(field.style or SHORT, random), random.randrange(field.layout.dp))
    lots = [
        (trial, kind, _random(task, field, kind, trial))
        for trial in range(task.first, task.first + task.trials)
        for kind in faults.KINDS
    ]
    groups = dumps.groups(field.layout)

    def judge(lot: Lot, stopped: Hang, dumped: list[Rank]) -> list[Result]:
        full, found = is_full(task), []
        for share, rows in fewer(stopped, dumped, SHARES if full else SHARES[:1], lot.random, own=full):
            told = list(answers(rows, groups, beside=full and share == 0.0))
            found += [
                Result(task.field, lot.fault.kind, dumps.TIMED, share, rule, score(answer, stopped.fault))
                for rule, answer in told
            ]
        return found

    return [result for told in base.each(base.drawn(lots), judge, list[Result]) for result in told or ()]


def _varied(style: Style, random: Random) -> Style:
    return replace(
        style,
        sequence_parallel=random.random() < 0.5,
        p2p_sync=random.random() < 0.5,
        sharded=random.random() < 0.5,
        buckets=random.randint(1, 3),
        run_ahead=random.choice((16, 128, 1000)),
    )


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
