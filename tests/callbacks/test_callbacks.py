"""The callbacks in the real trainers, on a CPU, without any hub: stopped in the middle, they go on to the same end."""

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rankpulse.trainer.callbacks.common import Companion  # noqa: E402
from rankpulse.trainer.data import ReplayLoader  # noqa: E402

STEPS, STOP_AT, SAVE_EVERY, SAMPLES, BATCH = 12, 8, 4, 24, 4


class Dataset(torch.utils.data.Dataset):
    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"index": index, "x": torch.full((4,), index / SAMPLES) + 0.1 * torch.rand(4)}


class Stopped(Exception):
    pass


class Net(torch.nn.Module):
    """Counts what it was trained on, and dies at a step."""

    def __init__(self, dies_at: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
        self.register_buffer("seen", torch.zeros(SAMPLES, dtype=torch.int64))
        self.dies_at, self.calls = dies_at, 0

    def forward(self, x: Any, index: Any, **more: Any) -> dict[str, Any]:
        self.calls += 1
        if self.calls == self.dies_at:
            raise Stopped
        self.seen += torch.bincount(index, minlength=SAMPLES)
        return {"loss": (self.layers(x) - x.sum(1, keepdim=True)).square().mean()}


def loader() -> ReplayLoader:
    return ReplayLoader(Dataset(), BATCH, seed=2, rank=0, world_size=1)


def by_huggingface(directory: Path, dies_at: int = 0, accumulate: int = 1) -> Any:
    transformers = pytest.importorskip("transformers")
    from rankpulse.trainer.callbacks.huggingface import RankpulseCallback

    data = loader()

    class Trainer(transformers.Trainer):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            return data

    torch.manual_seed(1)
    net = Net(dies_at)
    args = transformers.TrainingArguments(
        output_dir=str(directory / "hf"), max_steps=STEPS, save_strategy="no", report_to=[], use_cpu=True, seed=1,
        disable_tqdm=True, gradient_accumulation_steps=accumulate, logging_strategy="no", remove_unused_columns=False,
    )  # fmt: skip
    callback = RankpulseCallback(str(directory / "checkpoints"), data=data, every_steps=SAVE_EVERY)
    trainer = Trainer(model=net, args=args, train_dataset=Dataset(), callbacks=[callback])
    trainer.train()
    assert trainer.state.global_step == STEPS
    return net, data


def by_lightning(directory: Path, dies_at: int = 0, accumulate: int = 1) -> Any:
    lightning = pytest.importorskip("lightning.pytorch")
    from rankpulse.trainer.callbacks.lightning import RankpulseCallback

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Net(dies_at)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.net(**batch)["loss"]

        def configure_optimizers(self) -> Any:
            optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5)
            return [optimizer], [{"scheduler": scheduler, "interval": "step"}]

    data = loader()
    torch.manual_seed(1)
    module = Module()
    callback = RankpulseCallback(str(directory / "checkpoints"), data=data, every_steps=SAVE_EVERY)
    trainer = lightning.Trainer(
        max_steps=STEPS, accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[callback], accumulate_grad_batches=accumulate,
        use_distributed_sampler=False, default_root_dir=str(directory),
    )  # fmt: skip
    trainer.fit(module, data)
    assert callback.step == STEPS
    return module.net, data


@pytest.mark.live
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("trained", [by_huggingface, by_lightning])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_stopped_in_the_middle_it_ends_as_if_nothing_had_been(
    trained: Any, accumulate: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANKPULSE_DIR", str(tmp_path / "run"))
    whole, _ = trained(tmp_path / "undisturbed", accumulate=accumulate)
    with pytest.raises(Stopped):
        trained(tmp_path / "disturbed", dies_at=STOP_AT * accumulate, accumulate=accumulate)
    net, data = trained(tmp_path / "disturbed", accumulate=accumulate)
    assert net.calls == (STEPS - (STOP_AT - 1) // SAVE_EVERY * SAVE_EVERY) * accumulate, "it went on, not anew"
    assert torch.equal(net.seen, whole.seen)
    assert int(net.seen.sum()) == STEPS * BATCH * accumulate
    assert data.position.epoch * SAMPLES + data.position.offset == STEPS * BATCH * accumulate
    for one, other in zip(net.parameters(), whole.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_else_is_saved_is_saved_when_training_begins_once_more(tmp_path: Path) -> None:
    """A trainer that fits twice has one callback for both."""
    counts = {"seen": 3}
    companion = Companion(str(tmp_path), extra={"counts": counts}, every_steps=1)
    net = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    assert companion.begin(net, optimizer, None) == 0
    companion.stepped(1)
    companion.end(1)
    counts["seen"] = 0
    assert companion.begin(net, optimizer, None) == 1
    assert counts["seen"] == 3
    companion.end(1)
