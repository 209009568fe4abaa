"""How long a diagnosis of one large job takes, and how much memory, in a process of its own."""

import json
import os
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
from rankpulse.core import snapshot_codec
from rankpulse.core.diagnosing import diagnose
from rankpulse.core.snapshot import Group, Job, Rank, Snapshot
from rankpulse.core.snapshot_nodes import Node

SHARES: Final = (0.0, 0.2)
TURNS: Final = 3  # the one that other processes disturbed least counts
PER_NODE: Final = 8
STACK: Final = (
    "train.py:210 main",
    "train.py:140 train_step",
    "megatron/core/pipeline_parallel/schedules.py:1327 forward_backward_pipelining_without_interleaving",
    "megatron/core/pipeline_parallel/p2p_communication.py:412 recv_forward",
    "torch/distributed/distributed_c10d.py:2806 all_reduce",
)


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
            Path(file.name).write_bytes(msgspec.json.encode(_whole(left, groups)))
            told.append({"fault": kind, "missing": share, **_best(file.name)})
    return told


def _whole(rows: list[Rank], groups: tuple[Group, ...]) -> Snapshot:
    """As agents tell it: where a rank runs, what kernel and Python say of it, and a report of every node."""
    ranks = tuple(
        msgspec.structs.replace(
            row, node=_node(row.rank), gpu=row.rank % PER_NODE, pid=1000 + row.rank, step=7, step_age_s=90.0,
            phase="step", state="S", wchan="futex_wait_queue", stack=STACK, cpu_moving=False, beat_age_s=0.4,
            alive=True, log=("step 7", "loss 2.31"),
        )
        for row in rows
    )  # fmt: skip
    nodes = tuple(
        Node(_node(rank), silent_s=0.4, probe="answered", kernel=("eth0: link up",), addresses=(f"10.0.0.{rank}",))
        for rank in range(0, len(rows), PER_NODE)
    )
    return Snapshot(10_000.0, Job("job", len(rows), still_s=90.0), ranks, groups, nodes=nodes)


def _node(rank: int) -> str:
    return f"node-{rank // PER_NODE:04d}"


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
    found = diagnose(snapshot)
    ended = time.perf_counter()
    return {
        "ranks": len(snapshot.ranks),
        "megabytes": round(len(data) / 1e6, 1),
        "read_s": round(read - began, 2),
        "judged_s": round(ended - read, 2),
        "cpu_s": round(time.process_time() - worked, 2),
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        "kind": found.klass,
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    print(json.dumps(_diagnose(sys.argv[1])))
