"""Lightning: its steps in the pulse, its state in verified checkpoints, resumed without being asked."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch.callbacks import Callback

from rankpulse.trainer.callbacks.common import Companion


class RankpulseCallback(Callback):
    """`Trainer(callbacks=[RankpulseCallback("checkpoints", data=data, every_steps=100)], max_steps=...)`

    Give the Trainer `enable_checkpointing=False` and no `ckpt_path`: what there is is loaded when training begins, and
    training ends when the steps of all starts together are `max_steps`. Lightning itself counts from 0 at each start:
    `callback.step` is the step of the job. data: a ReplayLoader, given to `fit` as the loader, with
    `use_distributed_sampler=False`. The other settings are those of `Companion`.
    """

    def __init__(
        self, directory: str, data: Any = None, guard: Callable[[Any], Any] | None = None, **settings: Any
    ) -> None:
        self._with = Companion(directory, data, guard, **settings)
        self._base = self._updates = self._batches = 0

    @property
    def step(self) -> int:
        """Updates of the job, over all of its starts."""
        return self._base + self._updates

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        schedulers = [config.scheduler for config in trainer.lr_scheduler_configs]
        self._base = self._with.begin(pl_module, list(trainer.optimizers), schedulers)
        self._updates = self._batches = 0
        self._ends(trainer)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        self._batches += 1
        if trainer.global_step == self._updates:  # gradients are still added up
            return
        self._updates = trainer.global_step
        loss = outputs.get("loss") if isinstance(outputs, dict) else outputs
        self._with.stepped(self.step, loss=loss, batches=self._batches if self._with.data is not None else None)
        self._batches = 0
        self._ends(trainer)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        self._with.end(self.step)

    def _ends(self, trainer: Any) -> None:
        if 0 < trainer.max_steps <= self.step:
            trainer.should_stop = True
