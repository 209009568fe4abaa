"""DDP that resumes exactly: kill it when you like and start it again, it ends as if nothing had been.

torchrun --nproc-per-node 2 docs/examples/ddp.py --steps 200
rankpulse run --nproc-per-node 2 docs/examples/ddp.py --steps 200      # the same, watched and restarted together
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from rankpulse.trainer import attach
from rankpulse.trainer.checkpoint import CheckpointManager


def batch(step: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Your data. What comes at a step must follow from the step (and the rank), not from what was read before."""
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    x = torch.randn(32, 16, generator=generator)
    return x.to(device), x.sum(1, keepdim=True).sin().to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", default="checkpoints/ddp", help="a directory that all nodes share")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20)
    args = parser.parse_args()

    pulse = attach()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(model, device_ids=[device] if cuda else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)

    # After its first backward DDP adds up in another order. One pass that is thrown away, before loading, puts that
    # behind us: a resumed run equals an undisturbed one to the last bit, whatever the number of ranks.
    model(batch(0, device)[0]).sum().backward()

    manager = CheckpointManager(
        args.checkpoints, model=model, optimizer=optimizer, scheduler=scheduler, every_steps=args.save_every
    )  # random number generators (dropout!) are saved and restored too
    resumed = manager.load()  # the newest checkpoint whose every byte is what was saved; None: a fresh start
    for step in range(resumed.step + 1 if resumed else 1, args.steps + 1):
        x, y = batch(step, device)
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        pulse.step(step, loss=loss)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item()}", flush=True)
        manager.step(step, metrics={"loss": loss.item()})
    manager.close()
    pulse.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
