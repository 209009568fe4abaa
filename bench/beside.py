"""What a save adds to the step times around it: beside the training, against waiting for it, against no save.

Part of `rankpulse bench checkpoint`. A real net is trained by DDP over gloo (AdamW: the state is three times the
parameters), each rank on one thread, as many ranks as half of the CPUs: the other half is for the writer threads, as
hosts of GPUs have CPUs to spare. Stretches of so many steps follow one another, one in turn of each kind, and a save is
begun at the beginning of a stretch; its steps are compared with those of the stretch without one in the same turn.
"""

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import nn

from rankpulse.trainer.checkpoint import CheckpointManager

NO_SAVE, BESIDE, WAITING = "no save", "beside the training", "training waits"
KINDS: Final = (NO_SAVE, BESIDE, WAITING)
STEPS: Final = 24  # of a stretch: about two seconds around a save
WIDTH: Final = 1024
STEP_S: Final = 0.1 / 64  # of a step per MiB of state, at least: rows of a batch are doubled until it is so
MOST_ROWS: Final = 4096
Tell = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Plan:
    """`megabytes` (MiB): of parameters and optimizer state. `turns`: counted ones, after one that is not."""

    ranks: int
    megabytes: int
    turns: int
    directory: Path


def ranks_for(cpus: int) -> int:
    return max(1, min(4, cpus // 2))


class Training:
    """One rank's."""

    def __init__(self, plan: Plan) -> None:
        torch.manual_seed(0)
        layers = max(1, round(plan.megabytes * 2**20 / (3 * 4 * WIDTH * WIDTH)))
        net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(layers)))
        self.model = nn.parallel.DistributedDataParallel(net) if plan.ranks > 1 else net
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.batch = torch.rand(16, WIDTH)
        while self._step_s() < STEP_S * plan.megabytes and len(self.batch) < MOST_ROWS:
            self.batch = torch.rand(2 * len(self.batch), WIDTH)

    def _step_s(self) -> float:
        """Of this thread's own time: others may be at work on this machine, too. The same on all ranks."""
        self.step()
        began = time.thread_time()
        self.step()
        taken = torch.tensor([time.thread_time() - began])
        if dist.is_initialized():
            dist.all_reduce(taken, dist.ReduceOp.MAX)
        return float(taken)

    def step(self) -> None:
        self.model(self.batch).square().mean().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def rank_main(rank: int, plan: Plan, tell: Tell) -> None:
    """Everything one rank does; rank 0 tells of each stretch `kind`, `turn`, `seconds` of its steps, `busy` (during how
    many of them the save went on)."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    if plan.ranks > 1:
        meeting = f"file://{plan.directory}/meeting-beside"
        dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=plan.ranks)
    training = Training(plan)
    manager = CheckpointManager(
        plan.directory / "beside", model=training.model, optimizer=training.optimizer, keep_last=1, async_save=True,
        mode="sharded",
    )  # fmt: skip
    for turn in range(plan.turns + 1):
        first = turn % len(KINDS)
        for kind in KINDS[first:] + KINDS[:first]:
            seconds, busy = _stretch(training, manager, kind, turn)
            if rank == 0 and turn:
                tell({"kind": kind, "turn": turn, "seconds": seconds, "busy": busy})
    manager.close()
    if plan.ranks > 1:
        dist.destroy_process_group()


def _stretch(training: Training, manager: CheckpointManager, kind: str, turn: int) -> tuple[list[float], int]:
    seconds, busy = [], 0
    for number in range(STEPS):
        began = time.perf_counter()
        if number == 0 and kind == BESIDE:
            manager.save_async(turn)
        if number == 0 and kind == WAITING:
            manager.save(turn)
        training.step()
        seconds.append(time.perf_counter() - began)
        busy += manager.saving
    manager.wait()
    return seconds, busy


def figures(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """By kind: `step_s`, `first_s` (the median of all steps, of first steps); `added_s`, `added`: what a stretch takes
    more than one without a save, in seconds and as a share; `least`, `most`: that share in single turns; `busy`: during
    how many steps the save went on.

    A stretch is taken to last as long as its steps by the median over turns of each place in it, the first, the second
    and so on: what else the machine does hits single steps.
    """
    stretches = {kind: [row["seconds"] for row in rows if row["kind"] == kind] for kind in KINDS}
    lasts = {kind: sum(map(statistics.median, zip(*every, strict=True))) for kind, every in stretches.items()}
    plain = {row["turn"]: sum(row["seconds"]) for row in rows if row["kind"] == NO_SAVE}
    found = {}
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        single = [sum(row["seconds"]) / plain[row["turn"]] - 1 for row in mine]
        found[kind] = {
            "step_s": statistics.median(second for row in mine for second in row["seconds"]),
            "first_s": statistics.median(row["seconds"][0] for row in mine),
            "added_s": lasts[kind] - lasts[NO_SAVE],
            "added": lasts[kind] / lasts[NO_SAVE] - 1,
            "least": min(single),
            "most": max(single),
            "busy": statistics.median(row["busy"] for row in mine),
        }
    return found
