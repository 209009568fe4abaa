"""Snapshots of jobs in trouble, as plain values: what a collector would write. Numbers and ranks are parameters."""

from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
LOOP = ["train.py:210 main", "train.py:140 train_step"]
IN_ALL_REDUCE = [*LOOP, "torch/distributed/distributed_c10d.py:2806 all_reduce"]
IN_LOADER = [
    "train.py:210 main",
    "torch/utils/data/dataloader.py:1327 _next_data",
    "multiprocessing/queues.py:113 get",
    "threading.py:331 wait",
]
IN_SAVE = ["train.py:210 main", "train.py:96 save_checkpoint", "torch/serialization.py:852 save"]
LOST = "DistBackendError: NCCL error: remote process exited or there was a network error"
TIMED_OUT = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=1)"


def name(rank: int, per_node: int = 8) -> str:
    return f"node-{rank // per_node:02d}"


def job(size: int, per_node: int = 8, **each: Any) -> Json:
    """A job of `size` ranks, everybody alike."""
    ranks = [{"rank": r, "node": name(r, per_node), "gpu": r % per_node, **each} for r in range(size)]
    return {"taken_at": 10_000.0, "job": {"world_size": size}, "ranks": ranks}


def nodes(snap: Json, **each: Any) -> list[Json]:
    """A report of every node, all alike; kept in the snapshot."""
    snap["nodes"] = [{"node": one, **each} for one in sorted({r["node"] for r in snap["ranks"]})]
    reports: list[Json] = snap["nodes"]
    return reports


def at(group: str = "world", enqueued: int = 0, completed: int = 0, **more: Any) -> Json:
    return {"group": group, "enqueued": enqueued, "completed": completed, **more}


def waiting(seq: int, op: str = "all_reduce", group: str = "world", sizes: tuple[int, ...] = ()) -> list[Json]:
    """In one collective, begun."""
    entry = {"seq": seq, "op": op, "sizes": list(sizes), "state": "started"}
    return [at(group, seq, seq - 1, started=seq, open=[entry])]


def came_not(seq: int, group: str = "world") -> list[Json]:
    """Has ended the one before, and called nothing since."""
    return [at(group, seq - 1, seq - 1, started=seq - 1)]
