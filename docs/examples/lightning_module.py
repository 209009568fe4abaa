"""Lightning that resumes by itself: stop it and start it again, every sample is trained on once.

python docs/examples/lightning_module.py --steps 200
"""

import argparse

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import Dataset

from rankpulse.trainer.callbacks.lightning import RankpulseCallback
from rankpulse.trainer.data import ReplayLoader


class Samples(Dataset):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.full((16,), index / 1000) + 0.05 * torch.randn(16)
        return x, x.sum().sin().unsqueeze(0)


class Module(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return nn.functional.mse_loss(self.layers(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", default="checkpoints/lightning")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = ReplayLoader(Samples(), batch_size=32, seed=0)
    callback = RankpulseCallback(args.checkpoints, data=data, every_steps=args.save_every)
    trainer = Trainer(
        max_steps=args.steps, devices=1, enable_checkpointing=False, logger=False, enable_progress_bar=False,
        use_distributed_sampler=False, callbacks=[callback],
    )  # fmt: skip
    module = Module()
    trainer.fit(module, data)
    weights = sum(float(parameter.detach().double().sum()) for parameter in module.parameters())
    print(f"ended at step {callback.step}, weights {weights!r}, at sample {data.position.offset}")


if __name__ == "__main__":
    main()
