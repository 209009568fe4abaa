"""How long a fault costs: the same job, the same faults, under plain torchrun, ft_launcher and rankpulse, in turn.

`rankpulse bench recovery [--repeat N] [--json]`. Faults: `hang` (SIGSTOP of one worker) and `crash` (SIGKILL of one),
the victim drawn by lot. Measured from the fault: `noticed_s`, until the first other process of the round was ended or,
where rankpulse watches, until its incident was opened; `first_step_s`, until the last rank made its first step in the
next round. None: not within the limit.
"""

import asyncio
import contextlib
import json as json_
import math
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rankpulse.bench.contestants import CONTESTANTS, Contestant, Running, is_trainer
from rankpulse.drills.demo import reference_start
from rankpulse.drills.job import Job

FAULTS = {"hang": signal.SIGSTOP, "crash": signal.SIGKILL}
TRAIN_FOR_S = 6.0  # before a fault
START_LIMIT_S = 180.0
GOALS_S = {"hang": 10.0, "crash": 6.0}  # ours, on a fast machine; else 4 s + 1.5 x the bare job's start


@dataclass
class Row:
    """One fault under one contestant."""

    contestant: str
    fault: str
    noticed_s: float | None = None
    first_step_s: float | None = None
    note: str = ""


def run(
    repeat: int = 1, json: bool = False, only: list[str] | None = None, limit_s: float = 60.0, seed: int | None = None
) -> int:
    """Measure and print. Returns 0 when rankpulse recovered from every fault (or did not take part), else 1."""
    names = [one.name for one in CONTESTANTS]
    unknown = [name for name in only or [] if name not in names]
    if unknown or repeat < 1 or not 0 < limit_s < math.inf:  # nan lies nowhere
        wrong = f"no contestant named {', '.join(unknown)}: choose among {', '.join(names)}" if unknown else ""
        print(wrong or f"--repeat and --limit must be positive numbers, not {repeat} and {limit_s:g}", file=sys.stderr)
        return 2
    chosen = [one for one in CONTESTANTS if not only or one.name in only]
    with tempfile.TemporaryDirectory(prefix="rankpulse-bench-") as directory:
        report = asyncio.run(_measure(chosen, repeat, limit_s, random.Random(seed), Path(directory)))  # noqa: S311
    if json:
        print(json_.dumps(report))
    else:
        _show(report)
    ours = [row for row in report["rows"] if row["contestant"] == "rankpulse"]
    return 0 if all(row["first_step_s"] is not None for row in ours) else 1


async def _measure(
    chosen: list[Contestant], repeat: int, limit_s: float, rng: random.Random, directory: Path
) -> dict[str, Any]:
    rows: list[Row] = []
    references: list[float] = []
    absent = {one.name: one.missing() for one in chosen if one.missing()}
    for name, why in absent.items():
        _tell(f"{name} does not take part: {why}")
    for turn in range(repeat):
        references.append(await asyncio.to_thread(reference_start, directory / f"bare-{turn}"))
        _tell(f"turn {turn + 1} of {repeat}: the bare job starts in {references[-1]:.1f} s")
        for one in chosen:
            if one.name not in absent:
                rows += await _turn(one, directory / f"{one.name}-{turn}", limit_s, rng)
    start = statistics.median(references)
    return {
        "rows": [asdict(row) for row in rows],
        "median": _medians(rows),
        "reference_start_s": round(start, 3),
        "goal_s": {fault: round(max(goal, 4.0 + 1.5 * start), 3) for fault, goal in GOALS_S.items()},
        "absent": absent,
        "limit_s": limit_s,
        "repeat": repeat,
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": sys.version.split()[0],
    }


async def _turn(one: Contestant, directory: Path, limit_s: float, rng: random.Random) -> list[Row]:
    """Every fault once: in one job where that lives through them, else each in a job of its own."""
    rows: list[Row] = []
    batches = [list(FAULTS)] if one.keeps_running else [[fault] for fault in FAULTS]
    for number, faults in enumerate(batches):
        place = directory / str(number)
        place.mkdir(parents=True)
        try:
            async with one.running(place) as running:
                for fault in faults:
                    rows.append(await _fault(one, running, fault, limit_s, rng))
                    _tell(_line(rows[-1]))
        except Exception as error:
            missed = faults[len([row for row in rows if row.fault in faults]) :]
            rows += [
                Row(one.name, fault, note=f"could not be played: {str(error).splitlines()[0]}") for fault in missed
            ]
            _tell(f"{one.name}: {error}")
    return rows


async def _fault(one: Contestant, running: Running, fault: str, limit_s: float, rng: random.Random) -> Row:
    job = running.job
    await _until(lambda: _in_training(job) or not job.alive(), START_LIMIT_S, job, "a job in training")
    if not job.alive():
        raise RuntimeError(f"its job ended before the fault\n{job.tail()}")
    pids = {event["pid"] for event in job.events("resumed")[-job.world_size :]}
    told = len(job.events("first_step"))
    victim, since = rng.choice(sorted(pids)), time.time()
    os.kill(victim, FAULTS[fault])
    try:
        return await _watch(Row(one.name, fault), running, pids - {victim}, told, since, limit_s)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)


def _in_training(job: Job) -> bool:
    """Every rank of the newest round has trained for a while: who learns from steps has learned."""
    first = job.events("first_step")
    whole = len(first) >= job.world_size and len(first) == len(job.events("resumed"))
    return whole and time.time() - max(event["at"] for event in first) > TRAIN_FOR_S


async def _watch(row: Row, running: Running, others: set[int], told: int, since: float, limit_s: float) -> Row:
    job = running.job

    def first_steps() -> list[float]:
        return [event["at"] for event in job.events("first_step")[told:]]

    def seen() -> bool:
        if row.noticed_s is None:
            row.noticed_s = _noticed(running, others, since)
        return len(first_steps()) >= job.world_size or not job.alive()

    with contextlib.suppress(TimeoutError):
        await _until(seen, limit_s, job, "the next round")
    if len(first_steps()) >= job.world_size:
        row.first_step_s = round(max(first_steps()) - since, 3)
    elif not job.alive():
        row.note = f"the job was dead after {time.time() - since:.1f} s"
    else:
        row.note = f"not within {limit_s:.0f} s"
    return row


def _noticed(running: Running, others: set[int], since: float) -> float | None:
    if running.witness is not None:
        opened = [incident.opened_at for incident in running.witness.incidents(since)]
        return round(min(opened) - since, 3) if opened else None
    return None if all(is_trainer(pid) for pid in others) else round(time.time() - since, 3)


async def _until(found: Callable[[], bool], timeout_s: float, job: Job, what: str) -> None:
    deadline = time.monotonic() + timeout_s
    while not found():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {timeout_s:.0f} s for {what}\n{job.tail()}")
        await asyncio.sleep(0.05)


def _medians(rows: list[Row]) -> dict[str, dict[str, Any]]:
    """Per contestant and fault; None where at least half of the turns did not come back."""
    result: dict[str, dict[str, Any]] = {}
    for key in dict.fromkeys((row.contestant, row.fault) for row in rows):
        mine = [row for row in rows if (row.contestant, row.fault) == key]
        result.setdefault(key[0], {})[key[1]] = {
            "noticed_s": _median([row.noticed_s for row in mine]),
            "first_step_s": _median([row.first_step_s for row in mine]),
            "turns": len(mine),
            "recovered": len([row for row in mine if row.first_step_s is not None]),
        }
    return result


def _median(values: list[float | None]) -> float | None:
    """With what never came as infinitely late."""
    middle = statistics.median_high([float("inf") if value is None else value for value in values])
    return None if middle == float("inf") else round(middle, 3)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _line(row: Row) -> str:
    return f"{row.contestant}: {row.fault}: noticed {_s(row.noticed_s)}, first step {_s(row.first_step_s)} {row.note}"


def _s(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _show(report: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="from the fault, medians", title_justify="left")
    for column in ("", "fault", "noticed", "first step of the next round", "came back", "what else"):
        table.add_column(column)
    for name, faults in report["median"].items():
        for fault, figures in faults.items():
            notes = {r["note"] for r in report["rows"] if (r["contestant"], r["fault"]) == (name, fault) and r["note"]}
            came = f"{figures['recovered']} of {figures['turns']}"
            times = (_s(figures["noticed_s"]), _s(figures["first_step_s"]))
            table.add_row(name, fault, *times, came, "; ".join(sorted(notes)))
    console = Console()
    console.print(table)
    goals = ", ".join(f"{fault} {goal:.1f} s" for fault, goal in report["goal_s"].items())
    console.print(f"The bare job needs {report['reference_start_s']:.1f} s to its first step; goals here: {goals}.")
    for name, why in report["absent"].items():
        console.print(f"{name} did not take part: {why}.")
