"""The job that `rankpulse bench asking` asks: DDP over gloo, a small transformer. Run it by torchrun.

Each rank notes when each of its steps ended, on the machine's monotonic clock, so that steps can be matched with
questions afterwards. SIGUSR1 makes a rank hold Python's lock for a while, as a bad extension does.
"""

import argparse
import ctypes
import signal
import struct
import time
from pathlib import Path
from types import FrameType
from typing import Final

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from rankpulse.drills.train import TinyTransformer, batch_of, die_with_torchrun, loss_of
from rankpulse.trainer import attach

HOLD_S: Final = 14
FORMAT: Final = struct.Struct("<d")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=Path, required=True, help="directory for one file of step ends per rank")
    parser.add_argument("--pause-s", type=float, default=0.0, help="stands in for a device: the CPU is idle meanwhile")
    args = parser.parse_args()
    die_with_torchrun()
    signal.signal(signal.SIGUSR1, _hold)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    pulse = attach()
    dist.init_process_group("gloo")
    with open(args.times / str(dist.get_rank()), "ab", buffering=0) as times:
        _train(pulse.step, args.pause_s, lambda: times.write(FORMAT.pack(time.monotonic())))


def _train(told, pause_s: float, ended) -> None:  # type: ignore[no-untyped-def]
    model = DistributedDataParallel(TinyTransformer())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    step = 0
    while True:
        step += 1
        loss = loss_of(model, batch_of(step, dist.get_rank()))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(pause_s)
        told(step)
        ended()


def _hold(number: int, frame: FrameType | None) -> None:
    ctypes.PyDLL(None).sleep(HOLD_S)


if __name__ == "__main__":
    main()
