"""Hugging Face's Trainer that resumes by itself: stop it and start it again, every sample is trained on once.

python docs/examples/huggingface.py --steps 200
"""

import argparse

import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from rankpulse.trainer.callbacks.huggingface import RankpulseCallback
from rankpulse.trainer.data import ReplayLoader


class Samples(Dataset):
    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        x = torch.full((16,), index / 1000) + 0.05 * torch.randn(16)
        return {"x": x, "y": x.sum().sin().unsqueeze(0)}


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 1))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"loss": nn.functional.mse_loss(self.layers(x), y)}


class ReplayTrainer(Trainer):
    data: ReplayLoader

    def get_train_dataloader(self) -> ReplayLoader:
        return self.data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", default="checkpoints/huggingface")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-every", type=int, default=20)
    args = parser.parse_args()
    torch.manual_seed(0)
    data = ReplayLoader(Samples(), batch_size=32, seed=0)
    callback = RankpulseCallback(args.checkpoints, data=data, every_steps=args.save_every)
    how = TrainingArguments(
        output_dir=f"{args.checkpoints}-logs", max_steps=args.steps, save_strategy="no", report_to=[], disable_tqdm=True
    )
    trainer = ReplayTrainer(model=Model(), args=how, train_dataset=Samples(), callbacks=[callback])
    trainer.data = data
    trainer.train()
    weights = sum(float(parameter.detach().double().sum()) for parameter in trainer.model.parameters())
    print(f"ended at step {trainer.state.global_step}, weights {weights!r}, at sample {data.position.offset}")


if __name__ == "__main__":
    main()
