"""A job whose step consists of several different collectives, and which does at once what a file asks for.

The file says in one JSON line which process is to fail, and how. It is looked at once per step by every rank: only the
one that it names does anything, so that the others learn of it as they would in life, by waiting.
"""

import argparse
import contextlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rankpulse.drills.hangs import faults
from rankpulse.drills.train import die_with_torchrun
from rankpulse.trainer import attach

WIDTH = 16
SAVES = ("save", "save_unsaid")


class Wanted:
    """What is asked for by the file `path`: each request once."""

    def __init__(self, path: Path) -> None:
        self._path, self._seen = path, 0

    def look(self) -> str:
        """What this process is to do in this step, "" nothing."""
        stamp = self._stamp()
        if stamp == self._seen:
            return ""
        self._seen = stamp
        asked = json.loads(self._path.read_text(encoding="utf-8"))
        return str(asked["fault"]) if asked["pid"] == os.getpid() else ""

    def _stamp(self) -> int:
        with contextlib.suppress(OSError):
            return os.stat(self._path).st_mtime_ns
        return 0


def exchange(loss: torch.Tensor, wanted: str) -> None:
    """The metrics of a step: every rank tells its loss to all."""
    if wanted == "skip":
        return
    if wanted == "operation":
        dist.all_reduce(loss)
        return
    mine = {"shape_more": torch.cat([loss, loss]), "shape_less": loss[:1]}.get(wanted, loss)
    dist.all_gather([torch.zeros_like(mine) for _ in range(dist.get_world_size())], mine)


def saved(wanted: str, path: Path) -> None:
    """Who is to save says so to all: they save together, and wait for the one that writes."""
    asked = torch.zeros(2, dtype=torch.int32)
    if wanted in SAVES:
        asked[0], asked[1] = dist.get_rank() + 1, SAVES.index(wanted)
    dist.all_reduce(asked, op=dist.ReduceOp.MAX)
    writer, how = (int(number) for number in asked)
    if writer:
        with attach().phase("checkpoint") if SAVES[how] == "save" else contextlib.nullcontext():
            if dist.get_rank() == writer - 1:
                save_checkpoint(path)
            dist.barrier()


def save_checkpoint(path: Path) -> None:
    faults.write_slowly(str(path), float(os.environ["SAVE_S"]))


def train(args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    pulse = attach()
    dist.init_process_group("gloo")
    rank, wanted = dist.get_rank(), Wanted(args.asked)
    model = DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    step = 0
    while True:
        began, asked = time.monotonic(), wanted.look()
        if asked in faults.FAULTS:
            faults.FAULTS[asked]()
        loss = model(torch.randn(8, WIDTH)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        exchange(loss.detach().expand(2).contiguous(), asked)
        rate = torch.full((1,), 1e-3)
        dist.broadcast(rate, 0)
        saved(asked, args.asked.parent / f"checkpoint-{rank}")
        step += 1
        pulse.step(step, loss=loss.item())
        time.sleep(max(args.step_s - (time.monotonic() - began), 0.0))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--asked", type=Path, required=True, help="the file that says who is to fail, and how")
    parser.add_argument("--step-s", type=float, default=0.05)
    args = parser.parse_args(argv)
    die_with_torchrun()
    train(args)


if __name__ == "__main__":
    main()
