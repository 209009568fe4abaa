"""Saving and verifying a checkpoint, side by side: ours, gather-then-write, torch.distributed.checkpoint.

`rankpulse bench checkpoint [--ranks N] [--megabytes M] [--repeat R] [--json]`. The ranks are processes of this machine
over gloo, every way saves the same bytes in every turn and waits for the disk; the median is taken, one warm-up turn
is not counted. Peak memory is what rank 0 had resident at most above what it had before the save (VmHWM, put back
before each). Then what a save adds to the steps around it (`beside`), and the speed of verification beside that of a
plain read of the same files, page cache warm and, where the file system lets it be emptied, cold.
"""

import ctypes
import itertools
import json as json_
import mmap
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rankpulse.bench.crew import CrewFailed, crew

if TYPE_CHECKING:
    from rankpulse.bench.savers import Plan

BLOCK: Final = 1 << 20
MOST_RANKS, MOST_MEGABYTES, MOST_TURNS = 64, 65536, 1000
BESIDE_MEGABYTES: Final = 64
READ, FAST, FULL = "plain read", "verify, fast (xxh3)", "verify, full (sha256)"


def run(ranks: int = 8, megabytes: int = 256, repeat: int = 3, directory: str | None = None, json: bool = False) -> int:
    """Measure and print. Returns 0, 1 when it could not be measured, 2 when it was asked wrongly."""
    wrong = _wrong(ranks, megabytes, repeat, directory)
    if wrong:
        print(wrong, file=sys.stderr)
        return 2
    try:
        with tempfile.TemporaryDirectory(prefix="rankpulse-bench-", dir=directory) as place:
            report = _measure(ranks, megabytes, repeat, Path(place))
    except (CrewFailed, OSError) as error:
        print(f"could not be measured: {error}", file=sys.stderr)
        return 1
    if json:
        print(json_.dumps(report))
    else:
        from rankpulse.bench.checkpoint_tables import show

        show(report)
    return 0


def _wrong(ranks: int, megabytes: int, repeat: int, directory: str | None) -> str:
    for name, value, most in (
        ("--ranks", ranks, MOST_RANKS),
        ("--megabytes", megabytes, MOST_MEGABYTES),
        ("--repeat", repeat, MOST_TURNS),
    ):
        if not 1 <= value <= most:
            return f"{name} must be between 1 and {most}, not {value}"
    if directory is not None and not Path(directory).is_dir():
        return f"--directory: {directory} is no directory"
    try:
        import torch.distributed  # noqa: F401
    except ImportError:
        return "this needs torch, which is not installed here: pip install 'rankpulse[torch]'"
    return ""


def _measure(ranks: int, megabytes: int, repeat: int, place: Path) -> dict[str, Any]:
    from rankpulse.bench import savers

    plan = savers.Plan(ranks, megabytes, repeat, place)
    rows = _saves(plan)
    size = savers.rows_of(plan) * savers.LAYERS * len(savers.PARTS) * savers.WIDTH * 4
    return {
        "ours": savers.OURS,
        "states": dict(savers.STATES),
        "rows": rows,
        "median": medians(rows, list(savers.WAYS), savers.OURS),
        "verify": _reads(place / "kept", repeat),
        "beside": _beside(ranks, megabytes, repeat, place),
        "state_bytes": size,
        "ranks": ranks,
        "repeat": repeat,
        "directory": str(place.parent),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "python": sys.version.split()[0],
    }


def _saves(plan: "Plan") -> list[dict[str, Any]]:
    from rankpulse.bench import savers

    rows = []
    for row in crew(plan.ranks, lambda rank, tell: savers.rank_main(rank, plan, tell)):
        rows.append(row)
        counted = f"turn {row['turn']} of {plan.repeat}" if row["turn"] else "warm-up"
        print(f"{row['state']}, {counted}: {row['way']}: {row['seconds']:.2f} s", file=sys.stderr, flush=True)
    return [row for row in rows if row["turn"]]


def _beside(ranks: int, megabytes: int, repeat: int, place: Path) -> dict[str, Any]:
    from rankpulse.bench import beside

    ranks = min(ranks, beside.ranks_for(os.cpu_count() or 1))
    plan = beside.Plan(ranks, min(megabytes, BESIDE_MEGABYTES), max(1, 4 * (repeat - 1)), place)
    rows = []
    for row in crew(ranks, lambda rank, tell: beside.rank_main(rank, plan, tell)):
        rows.append(row)
        print(f"{beside.STEPS} steps, {row['kind']}: {sum(row['seconds']):.2f} s", file=sys.stderr, flush=True)
    about = {"ranks": ranks, "megabytes": plan.megabytes, "turns": plan.turns, "steps": beside.STEPS}
    return {**about, "kinds": beside.figures(rows)}


def medians(rows: list[dict[str, Any]], ways: list[str], ours: str) -> dict[str, dict[str, Any]]:
    """By state and way: `seconds` (the median), `least`, `most`, `ratio` (over `ours` of the same state), and bytes:
    `written`, `peak_rank0`, `peak_others` (the highest of the other ranks); peaks are None where not measured."""
    result: dict[str, dict[str, Any]] = {}
    for state, way in itertools.product(dict.fromkeys(row["state"] for row in rows), ways):
        mine = [row for row in rows if (row["state"], row["way"]) == (state, way)]
        seconds = [row["seconds"] for row in mine]
        result.setdefault(state, {})[way] = {
            "seconds": statistics.median(seconds),
            "least": min(seconds),
            "most": max(seconds),
            "written": mine[-1]["bytes"],
            "peak_rank0": _peak(mine, "peak_rank0"),
            "peak_others": _peak(mine, "peak_others"),
        }
    for found in result.values():
        for figures in found.values():
            figures["ratio"] = figures["seconds"] / found[ours]["seconds"]
    return result


def _peak(rows: list[dict[str, Any]], name: str) -> int | None:
    values = [row[name] for row in rows]
    return None if min(values) < 0 else round(statistics.median(values))


def _reads(directory: Path, repeat: int) -> dict[str, Any]:
    """GB/s (1e9 bytes) of reading and verifying one checkpoint, by one process; in turns."""
    from rankpulse.trainer.checkpoint import reader

    path = reader.scan(str(directory)).committed[0].path
    files = sorted(Path(path).glob("shard-*"))
    size = sum(file.stat().st_size for file in files)
    subjects: dict[str, Callable[[], object]] = {
        READ: lambda: _read(files),
        FAST: lambda: reader.verify(path, "fast"),
        FULL: lambda: reader.verify(path, "full"),
    }
    _read(files)
    found = {"bytes": size, "warm": _speeds(subjects, size, repeat, lambda: None), "cold": None, "why_not_cold": ""}
    if _emptied(files):
        found["cold"] = _speeds(subjects, size, repeat, lambda: _emptied(files))
    else:
        found["why_not_cold"] = f"the page cache of {directory.parent.parent} cannot be emptied"
    return found


def _speeds(
    subjects: dict[str, Callable[[], object]], size: int, repeat: int, before: Callable[[], object]
) -> dict[str, Any]:
    taken: dict[str, list[float]] = {name: [] for name in subjects}
    for _ in range(repeat):
        for name, subject in subjects.items():
            before()
            start = time.perf_counter()
            subject()
            taken[name].append(time.perf_counter() - start)
    middle = {name: statistics.median(seconds) for name, seconds in taken.items()}
    return {name: {"gb_s": size / s / 1e9, "ratio": s / middle[READ]} for name, s in middle.items()}


def _read(files: list[Path]) -> None:
    room = memoryview(bytearray(BLOCK))
    for file in files:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while os.readv(fd, [room]):
                pass
        finally:
            os.close(fd)


def _emptied(files: list[Path]) -> bool:
    """Drop these files from the page cache; whether they are out of it now."""
    out = True
    for file in files:
        fd = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            out &= cached(fd) < 0.01
        finally:
            os.close(fd)
    return out


def cached(fd: int) -> float:
    """Which share of a file is in the page cache, by mincore(2): a read that asks would fetch it. 1.0: cannot tell."""
    size = os.fstat(fd).st_size
    if not size:
        return 0.0
    pages = (ctypes.c_ubyte * -(-size // mmap.PAGESIZE))()
    with mmap.mmap(fd, size, access=mmap.ACCESS_COPY) as mapped:
        start = ctypes.c_char.from_buffer(mapped)
        failed = ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(start)), ctypes.c_size_t(size), pages)
        del start  # or the mapping could not be closed
    return 1.0 if failed else sum(page & 1 for page in pages) / len(pages)
