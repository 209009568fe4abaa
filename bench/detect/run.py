"""`rankpulse bench detect`: this detector and the usual alternatives over the same days of trace Z.

Days are independent of each other and go to processes; the result depends on the plan alone. With `--out` each day is
kept as it ends, and a run that is started again goes on where it was.
"""

import datetime
import json as json_
import os
import platform
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import msgspec

from rankpulse.bench.detect import tally
from rankpulse.bench.detect.keeping import BadPlace, Keeper, code
from rankpulse.bench.detect.patrol import summed
from rankpulse.bench.detect.plan import SEED, Plan, full, quick
from rankpulse.bench.detect.shift import Shift, learn, work
from rankpulse.core.records import FleetLearned

SCALES: Final = (0.2, 1.0, 5.0)
MOST_DAYS: Final = 100_000


def run(
    *,
    is_quick: bool = False,
    days: int | None = None,
    seed: int | None = None,
    scale: float = 1.0,
    jobs: int | None = None,
    json: bool = False,
    out: str | None = None,
    straight: bool = False,
) -> int:
    """Measure and print. Returns 0; 1 when a straight run decided otherwise than stretches; 2 when asked wrongly."""
    wrong = _wrong(days, seed, scale, jobs)
    if wrong:
        print(wrong, file=sys.stderr)
        return 2
    plan = (quick if is_quick else full)(SEED if seed is None else seed, scale, days)
    workers = min(jobs or os.cpu_count() or 1, plan.all_days)
    if straight:
        from rankpulse.bench.detect.straight import compare

        return compare(plan.seed, json)
    place = Path(out) if out is not None else None
    try:
        keeper = Keeper(place, plan) if place is not None else None
    except BadPlace as error:
        print(error, file=sys.stderr)
        return 2
    started, measured = time.monotonic(), code()
    shifts = list(_shifts(plan, workers, keeper))
    report = {**_report(plan, shifts, time.monotonic() - started), "code": measured}
    _deliver(report, place, json)
    return 0


def _wrong(days: int | None, seed: int | None, scale: float, jobs: int | None) -> str:
    if scale not in SCALES:
        return f"--scale must be one of {', '.join(f'{s:g}' for s in SCALES)}, not {scale:g}"
    if days is not None and not 1 <= days <= MOST_DAYS:
        return f"--days must be between 1 and {MOST_DAYS}, not {days}"
    if jobs is not None and not 1 <= jobs <= 1024:
        return f"--jobs must be between 1 and 1024, not {jobs}"
    if seed is not None and seed < 0:
        return f"--seed must not be negative, and {seed} is"
    try:
        import numpy  # noqa: F401
    except ImportError:
        return "this needs numpy, which is not installed here: pip install 'rankpulse[demo]'"
    return ""


def _shifts(plan: Plan, workers: int, keeper: Keeper | None) -> Iterator[Shift]:
    """Every day of the plan, as it ends; those kept from before first."""
    kept = keeper.days() if keeper is not None else {}
    missing = [number for number in range(plan.all_days) if number not in kept]
    yield from kept.values()
    from rankpulse.bench.detect.screen import progress

    with ProcessPoolExecutor(workers) as pool:
        experience = _experience(plan, pool, keeper) if missing else None
        with progress(plan.all_days, len(kept)) as advance:
            asked = [pool.submit(work, plan, number, experience) for number in missing]
            for done in as_completed(asked):
                shift = done.result()
                if keeper is not None:
                    keeper.keep(shift)
                yield shift
                advance()


def _experience(plan: Plan, pool: Executor, keeper: Keeper | None) -> FleetLearned:
    """What the cost rule has learned before the first day."""
    kept = keeper.experience() if keeper is not None else None
    if kept is not None:
        return kept
    from rankpulse.bench.detect.screen import progress

    records = []
    with progress(plan.experience_days, 0, "learning") as advance:
        for record in pool.map(learn, [plan] * plan.experience_days, range(plan.experience_days)):
            records.append(record)
            advance()
    found = summed(records)
    if keeper is not None:
        keeper.keep_experience(found)
    return found


def _report(plan: Plan, shifts: list[Shift], took_s: float) -> dict[str, Any]:
    total = tally.added(shifts)
    pauses = [
        {"name": name, "pauses": score.trials, "convictions": score.restarts}
        for name, score in total.pop("pauses", {}).items()
    ]
    tables = {table: [tally.figures(name, score) for name, score in scores.items()] for table, scores in total.items()}
    least, at = tally.floor(plan.scale)
    return {
        "detectors": [*tables.get("ours", []), *tables.get("one sender per node", [])],
        "per_rank": tables.get("one sender per rank", []),
        "layers": tables.get("layers", []),
        "manners": tables.get("manners", []),
        "pauses": pauses,
        "floor": {"job_seconds_lost_per_day": least, "timeout_s": at},
        "scale": plan.scale,
        "seed": plan.seed,
        "days": plan.days,
        "plan": msgspec.to_builtins(plan),
        "version": _version(),
        "command": _command(plan),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()} {platform.release()}",
        "python": sys.version.split()[0],
        "took_s": round(took_s, 1),
    }


def _command(plan: Plan) -> str:
    how = " --quick" if plan == quick(plan.seed, plan.scale, plan.days) else ""
    return f"rankpulse bench detect{how} --days {plan.days} --seed {plan.seed} --scale {plan.scale:g}"


def _version() -> str:
    try:
        return version("rankpulse")
    except PackageNotFoundError:
        return "unknown"


def _deliver(report: dict[str, Any], place: Path | None, json: bool) -> None:
    if place is not None:
        from rankpulse.bench.detect.tables import markdown

        (place / "report.json").write_text(json_.dumps(report, indent=1))
        (place / "report.md").write_text(markdown(report))
    if json:
        print(json_.dumps(report))
    else:
        from rankpulse.bench.detect.screen import show

        show(report)
