"""DDP over a dataset that is read by worker processes: killed at any step, every sample is still trained on once.

torchrun --nproc-per-node 2 docs/examples/data.py --steps 200
torchrun --nproc-per-node 4 docs/examples/data.py --steps 200 --reshard    # goes on with other ranks
"""

import argparse
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

from rankpulse.trainer import attach
from rankpulse.trainer.checkpoint import CheckpointManager
from rankpulse.trainer.data import ReplayLoader


class Samples(Dataset):
    """Yours. What it draws at random (augmentation) comes again when the sample comes again."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.full((16,), index / 1000) + 0.05 * torch.randn(16)
        return x, x.sum().sin().unsqueeze(0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", default="checkpoints/data", help="a directory that all nodes share")
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
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 1)).to(device)
    model = DistributedDataParallel(model, device_ids=[device] if cuda else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model(torch.zeros(1, 16, device=device)).sum().backward()  # see ddp.py: a pass that is thrown away

    data = ReplayLoader(Samples(), batch_size=64, seed=0, num_workers=1)  # 64 for the whole job
    data.follow(optimizer)  # what an update was made of is consumed
    manager = CheckpointManager(
        args.checkpoints, model=model, optimizer=optimizer, extra={"data": data}, every_steps=args.save_every,
        allow_reshard=args.reshard,
    )  # fmt: skip
    resumed = manager.load()
    for step in range(resumed.step + 1 if resumed else 1, args.steps + 1):
        x, y = (part.to(device) for part in data.next())  # goes on over the ends of epochs
        loss = nn.functional.mse_loss(model(x), y) * data.weight  # 1.0 but where ranks have unequal parts
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        pulse.step(step, loss=loss)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item()}", flush=True)
        manager.step(step, metrics={"loss": loss.item()})
    manager.close()
    pulse.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
