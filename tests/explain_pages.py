"""Incidents with their findings, as a monitor would have written them, and the pages that they make.

python tests/explain_pages.py       writes the pages anew, for a person to read before they are committed
"""

import contextlib
import io
import re
from pathlib import Path

from rankpulse.core.records import Before, Counts, DumpRow, Finding, Incident, Member, Missing, Trail
from rankpulse.core.snapshot import Loaders, Operation, Position, Rank

LOOP = ("train.py:210 main", "train.py:140 train_step")
IN_ALL_REDUCE = (*LOOP, "torch/distributed/distributed_c10d.py:2806 all_reduce")
OPENED = 1_700_000_000.0


def incident(klass: str, summary: str, *reasons: str, confidence: float, **more: object) -> Incident:
    fields: dict[str, object] = {
        "state": "open",
        "run_uid": "llama-1f",
        "run_id": "llama",
        "round": 2,
        "action": "page",
        "action_reason": "this is left to a person",
        "time_to_detect_s": 6.2,
        "trail": (Trail(0.0, f"{klass}: {summary}"), Trail(1.5, "action page")),
    }
    return Incident(
        id="i0001-0003", klass=klass, opened_at=OPENED, summary=summary, reasons=reasons, confidence=confidence,
        **(fields | more),  # type: ignore[arg-type]
    )  # fmt: skip


def finding(of: Incident, **more: object) -> Finding:
    return Finding(
        id=of.id, at=OPENED, order_id="i0001-0003-e1", klass=of.klass, confidence=of.confidence, summary=of.summary,
        reasons=of.reasons, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def lock() -> tuple[Incident, Finding]:
    why = "waiting for a lock in the program (metrics.py:88 publish)"
    told = incident(
        "collective_hang",
        f"rank 7 is {why}; the others wait",
        f"rank 7 on gpu00 is {why}",
        "rank 7 is in no collective; 31 ranks wait for it in collective 42 of group world",
        confidence=0.9,
        nodes=("gpu00",),
        culprits=(Member(7, "gpu00", 7, 4711, 99),),
        cascade=tuple(r for r in range(32) if r != 7),
        action="observe",
        action_reason="not armed",
        signature="collective_hang:lock",
        evidence=("/rankpulse/c/nodes/gpu00/obs/00000001/0000000007",),
    )
    row = Rank(
        7, "gpu00", 7, 4711, 810, phase="train", state="S", wchan="futex_wait_queue", cpu_moving=False,
        stack=(*LOOP, "metrics.py:88 publish", "locks.py:31 acquire"),
        positions=(Position("world", 41, 41, 41),),
    )  # fmt: skip
    waits = "group world (data parallel), collective 42: ranks 0-6, 8-31 wait in all_reduce 1024 float32; rank 7 has "
    return told, finding(
        told,
        kind="app_bug",
        seen=Before(2, ("gpu00", "gpu07"), "restart"),
        waits=(f"{waits}not come",),
        machines=("gpu00: nothing telling in its last 12 kernel lines",),
        stacks=(
            "rank 7: waiting for a lock (metrics.py:88 publish)",
            "ranks 0-6, 8-31: in a collective (torch/distributed/distributed_c10d.py:2806 all_reduce)",
        ),
        culprits=(row,),
        dumps=tuple(DumpRow(f"gpu0{r // 8}", r, f"i0001-0003-e1_rank_{r}.json.gz", 40_000) for r in range(32)),
        asked=("gpu00", "gpu01", "gpu02", "gpu03"),
        answered=("gpu00", "gpu01", "gpu02", "gpu03"),
    )


def mismatch() -> tuple[Incident, Finding]:
    what = "collective 42 of group world: 31 ranks call all_reduce 1024 float32, rank 3 calls broadcast 7 float32"
    told = incident(
        "collective_mismatch",
        "ranks call different collectives at the same place: rank 3",
        what,
        "this is the program's fault: no machine is to blame, and a restart alone may not help",
        confidence=0.95,
        culprits=(Member(3, "gpu00", 3, 4703, 99),),
        cascade=tuple(r for r in range(32) if r != 3),
    )
    call = Operation(42, "broadcast", (7,), "float32", state="started", site="train.py:99 log_norms")
    at = Position("world", 42, 42, 41, (call,))
    row = Rank(3, "gpu00", 3, 4703, 810, state="S", stack=IN_ALL_REDUCE, positions=(at,))
    return told, finding(
        told,
        kind="desync",
        waits=(
            "group world (data parallel), collective 42: ranks 0-2, 4-31 wait in all_reduce 1024 float32; rank 3 waits "
            "in broadcast 7 float32; all have come",
        ),
        hints=("look for branches that differ between ranks: uneven data, a condition on the rank, an early exit",),
        culprits=(row,),
        asked=("gpu00", "gpu01"),
        answered=("gpu00", "gpu01"),
    )


def network_pair() -> tuple[Incident, Finding]:
    told = incident(
        "network_stall",
        "no laggard: all ranks have entered the collective of group pp_3, and nothing moves",
        "between ranks 3, 11",
        "no rank is behind: it is the network, NVLink or the communicator, not one rank",
        confidence=0.68,
        nodes=("gpu00", "gpu01"),
        culprits=(Member(3, "gpu00", 3, 4703, 99), Member(11, "gpu01", 3, 4811, 99)),
        cascade=tuple(r for r in range(32) if r not in (3, 11)),
    )
    rows = tuple(
        Rank(rank, node, 3, pid, 810, state="S", wchan="poll_schedule_timeout", unacked=(address,), stack=IN_ALL_REDUCE)
        for rank, node, pid, address in ((3, "gpu00", 4703, "10.0.1.2:41000"), (11, "gpu01", 4811, "10.0.0.2:39000"))
    )
    return told, finding(
        told,
        kind="network",
        waits=(
            "group pp_3 (pipeline), from rank 3 to rank 11: rank 11 waits in recv 4096 bfloat16; all have come",
            "30 more wait for those in turn: ranks 0-2, 4-10, 12-31",
        ),
        machines=("gpu01: port mlx5_0 active, 1812 errors, nothing moves",),
        culprits=rows,
        asked=("gpu00", "gpu01", "gpu02", "gpu03"),
        answered=("gpu00", "gpu01", "gpu03"),
        missing=tuple(Missing(r, "gpu02", "no answer within 4 s") for r in range(16, 24)),
    )


def data_stall() -> tuple[Incident, Finding]:
    why = "waiting for its data loader, 1 of whose workers are dead"
    told = incident(
        "data_stall",
        f"rank 5 is {why}; the others wait",
        f"rank 5 on gpu00 is {why}",
        confidence=0.9,
        nodes=("gpu00",),
        culprits=(Member(5, "gpu00", 5, 4705, 99),),
        cascade=(0, 1, 2, 3, 4, 6, 7),
        action="restart",
        action_reason="armed, and sure enough",
        order_id="i0001-0003",
    )
    stack = (LOOP[0], "torch/utils/data/dataloader.py:1327 _next_data", "multiprocessing/queues.py:113 get")
    row = Rank(5, "gpu00", 5, 4705, 12, state="S", cpu_moving=False, stack=stack, loaders=Loaders(alive=3, dead=1))
    return told, finding(
        told,
        kind="data_stall",
        culprits=(row,),
        stacks=("rank 5: waiting for its data loader (torch/utils/data/dataloader.py:1327 _next_data)",),
        asked=("gpu00",),
        answered=("gpu00",),
    )


def unknown() -> tuple[Incident, Finding]:
    told = incident(
        "unknown", "the job stands still: no laggard", "no rule fits what is known", confidence=0.2, cascade=()
    )
    return told, finding(
        told,
        kind="unknown",
        outliers=(Rank(9, "gpu01", 1, 4809, 810, state="R", cpu_moving=True, phase="train"),),
        asked=("gpu00", "gpu01"),
        missing=tuple(Missing(r, f"gpu0{r // 8}", "no address for direct looks") for r in range(16) if r != 9),
    )


def death() -> tuple[Incident, None]:
    told = incident(
        "worker_dead",
        "rank 0 on gpu07 (pid 13736) killed by SIGKILL",
        "rank 0 on gpu07 (pid 13736) killed by SIGKILL",
        confidence=0.99,
        state="closed",
        outcome="recovered",
        closed_at=OPENED + 60,
        nodes=("gpu07",),
        culprits=(Member(0, "gpu07", 0, 13736, 1),),
        cascade=(1, 2, 3),
        action="restart",
        action_reason="armed",
        time_to_recover_s=41.0,
        lost_s={"recomputation": 5.0, "start": 39.0, "stop": 2.0},
        resumed_from_step=800,
        lost_steps=10,
        restarts=1,
    )
    return told, None


def huge() -> tuple[Incident, Finding]:
    ranks = 16_384
    stuck = tuple(range(4096, 4112))
    told = incident(
        "collective_hang",
        "ranks 4096-4111 are stopped by a signal (SIGSTOP); the others wait",
        *(f"rank {r} on n0512 is stopped by a signal (SIGSTOP)" for r in stuck[:4]),
        confidence=0.97,
        nodes=tuple(f"n{i:04d}" for i in range(512, 514)),
        culprits=tuple(Member(r, f"n{r // 8:04d}", r % 8, 9000 + r, 1) for r in stuck),
        cascade=tuple(r for r in range(ranks) if r not in stuck),
    )
    rows = tuple(Rank(r, f"n{r // 8:04d}", r % 8, 9000 + r, 77, state="T") for r in stuck)
    return told, finding(
        told,
        kind="host_fault",
        culprits=rows,
        waits=tuple(
            f"group tp_{g} (tensor parallel), collective 42: ranks {8 * g}-{8 * g + 3} wait in all_gather 512 bfloat16"
            for g in range(6)
        ),
        missing=tuple(Missing(r, f"n{r // 8:04d}", "no answer within 4 s") for r in range(0, 64)),
        asked=tuple(f"n{i:04d}" for i in range(64)),
        answered=tuple(f"n{i:04d}" for i in range(8, 72)),
        dumps=tuple(DumpRow(f"n{r // 8:04d}", r, f"x_rank_{r}.json.gz", 90_000) for r in (*stuck, *range(64, 112))),
        counts=Counts(asked=2048, answered=1946, missing=816, dumps=15_568),
    )


STORIES = {
    "lock": lock,
    "mismatch": mismatch,
    "network_pair": network_pair,
    "data_stall": data_stall,
    "unknown": unknown,
    "death": death,
    "huge": huge,
}


def printed(name: str) -> str:
    """The page of a story. How long ago it was is not of the page."""
    from rankpulse.cli import explain

    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        explain.page(*STORIES[name]())
    lines = (line.rstrip() for line in re.sub(r"\(\d+ d ago\)", "(… ago)", text.getvalue()).splitlines())
    return "\n".join(lines) + "\n"


def kept(name: str) -> Path:
    return Path(__file__).parent / "cli" / "pages" / f"{name}.txt"


if __name__ == "__main__":
    kept("").parent.mkdir(exist_ok=True)
    for story in STORIES:
        kept(story).write_text(printed(story), encoding="utf-8")
