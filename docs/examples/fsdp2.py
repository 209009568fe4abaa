"""FSDP2 that resumes exactly: every rank saves the shards it holds, nothing is gathered.

    torchrun --nproc-per-node 2 docs/examples/fsdp2.py --steps 200
    rankpulse run --nproc-per-node 2 docs/examples/fsdp2.py --steps 200    # the same, watched and restarted together

Another number of ranks than the one that saved: `--reshard`, see `rankpulse ckpt reshard --help` for doing it ahead.
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from rankpulse.trainer import attach
from rankpulse.trainer.checkpoint import CheckpointManager


def batch(step: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """Your data. What comes at a step must follow from the step (and the rank), not from what was read before."""
    generator = torch.Generator().manual_seed(step * dist.get_world_size() + dist.get_rank())
    x = torch.randn(32, 16, generator=generator)
    return x.to(device), x.sum(1, keepdim=True).sin().to(device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", default="checkpoints/fsdp2", help="a directory that all nodes share")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20)
    parser.add_argument("--reshard", action="store_true", help="take a checkpoint of another number of ranks")
    args = parser.parse_args()

    pulse = attach()
    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    torch.manual_seed(0)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    model = nn.Sequential(*[nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4)], nn.Linear(16, 1)).to(device)
    for block in model[:-1]:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=1000)

    manager = CheckpointManager(
        args.checkpoints, model=model, optimizer=optimizer, scheduler=scheduler, every_steps=args.save_every,
        mode="sharded", allow_reshard=args.reshard,
    )  # fmt: skip
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
