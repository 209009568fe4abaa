"""A job for torchrun that counts its samples: DDP, dropout, loader workers that draw random numbers, checkpoints.

    replay_job.py DIRECTORY WORKERS STEPS SAVE_EVERY [STEP_S]

Into DIRECTORY it notes one line per step and rank (`steps`), and at its end what it has come to (`result`). How often
each sample was trained on is a tensor that is saved and loaded with the model: whatever a restart repeats or leaves out
would stand there.
"""

import ctypes
import json
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
import xxhash
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rankpulse.trainer.checkpoint import CheckpointManager
from rankpulse.trainer.data import ReplayLoader

SAMPLES, BATCH = 50, 12


class Noisy(torch.utils.data.Dataset):
    """A sample and its number; what is added to it is drawn anew each time."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, torch.Tensor]:
        return index, torch.full((8,), index / SAMPLES) + 0.1 * torch.rand(8)


def train(directory: Path, workers: int, steps: int, save_every: int, step_s: float) -> None:
    """One rank's life; torch.distributed is set up."""
    torch.manual_seed(7)
    rank = dist.get_rank()
    net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(torch.zeros(3, 8)).sum().backward()  # DDP sums in another order after its first backward
    model.zero_grad()
    torch.manual_seed(100 + rank)
    data = ReplayLoader(Noisy(), BATCH, seed=5, tail="over", num_workers=workers)
    data.follow(optimizer)
    seen = {"seen": torch.zeros(SAMPLES, dtype=torch.int64)}
    manager = CheckpointManager(
        directory / "checkpoints", model=model, optimizer=optimizer, extra={"data": data, "seen": seen},
        every_steps=save_every, mode="sharded", allow_reshard=True,
    )  # fmt: skip
    resumed = manager.load()
    for step in range(resumed.step + 1 if resumed else 1, steps + 1):
        began = time.monotonic()
        indices, x = data.next()
        loss = (model(x) - x.sum(1, keepdim=True).sin()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        counts = torch.bincount(indices, minlength=SAMPLES)
        dist.all_reduce(counts)
        seen["seen"] += counts
        note(directory, step=step, rank=rank, pid=os.getpid(), loss=loss.item().hex(), samples=indices.tolist())
        manager.step(step)
        time.sleep(max(step_s - (time.monotonic() - began), 0.0))
    digest = xxhash.xxh3_128()
    for parameter in net.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    if rank == 0:
        result = {"digest": digest.hexdigest(), "seen": seen["seen"].tolist(), "position": list(data.position)}
        (directory / "result").write_text(json.dumps(result))
    dist.barrier()
    manager.close()


def note(directory: Path, **what: object) -> None:
    """One write to a file opened for appending: a kill leaves whole lines."""
    fd = os.open(directory / "steps", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, json.dumps(what).encode() + b"\n")
    os.close(fd)


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: when torchrun is killed nobody trains on
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    where, *numbers = sys.argv[1:]
    train(Path(where), *(int(number) for number in numbers[:3]), float(numbers[3]) if len(numbers) > 3 else 0.0)
    dist.destroy_process_group()
