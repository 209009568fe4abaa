"""How long a diagnosis of one large job takes, and how much memory, in a process of its own."""

import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec

from rankpulse.bench.hang import dumps, faults
from rankpulse.bench.hang.layout import Layout
from rankpulse.bench.hang.program import Style
from rankpulse.bench.hang.trials import hang
from rankpulse.core import culprit, snapshot_codec
from rankpulse.core.snapshot import Snapshot

SHARES: Final = (0.0, 0.2)
TURNS: Final = 3  # the one that other processes disturbed least counts


def measured(layout: Layout, style: Style) -> list[dict[str, Any]]:
    """Of a rank that left out a call, and of a stuck one: with all dumps and with a fifth of them missing."""
    return [told for kind in (faults.SKIP, faults.HOST) for told in _measured(kind, layout, style)]


def _measured(kind: str, layout: Layout, style: Style) -> list[dict[str, Any]]:
    random = Random(f"speed/{kind}")  # noqa: S311
    rows = dumps.ranks(hang(kind, layout, random, style).machine, dumps.TIMED)
    groups = dumps.groups(layout)
    told = []
    for share in SHARES:
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            left = dumps.without(rows, share, random)
            Path(file.name).write_bytes(msgspec.json.encode(Snapshot(ranks=tuple(left), groups=groups)))
            told.append({"fault": kind, "missing": share, **_best(file.name)})
    return told


def _best(file: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "rankpulse.bench.hang.speed", file]
    turns = [json.loads(subprocess.check_output(command)) for _ in range(TURNS)]
    return min(turns, key=lambda turn: float(turn["read_s"] + turn["judged_s"]))


def _diagnose(file: str) -> dict[str, Any]:
    """Read and judge; what it took."""
    began, worked = time.perf_counter(), time.process_time()
    data = Path(file).read_bytes()
    snapshot = snapshot_codec.decode(data)
    read = time.perf_counter()
    found = culprit.find(snapshot.ranks, snapshot.groups)
    ended = time.perf_counter()
    return {
        "ranks": len(snapshot.ranks),
        "megabytes": round(len(data) / 1e6, 1),
        "read_s": round(read - began, 2),
        "judged_s": round(ended - read, 2),
        "cpu_s": round(time.process_time() - worked, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "kind": found.kind,
    }


if __name__ == "__main__":
    print(json.dumps(_diagnose(sys.argv[1])))
