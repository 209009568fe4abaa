"""Hugging Face's Trainer: its steps in the pulse, its state in verified checkpoints, resumed without being asked."""

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback

from rankpulse.trainer.callbacks.common import Companion


class RankpulseCallback(TrainerCallback):
    """`Trainer(..., callbacks=[RankpulseCallback("checkpoints", data=data, every_steps=100)])`

    Give the Trainer `max_steps` and `save_strategy="no"`, and no `resume_from_checkpoint`: what there is is loaded when
    training begins, and `state.global_step` goes on from it. data: a ReplayLoader; let `get_train_dataloader` of your
    Trainer return it. The other settings are those of `Companion`.
    """

    def __init__(
        self, directory: str, data: Any = None, guard: Callable[[Any], Any] | None = None, **settings: Any
    ) -> None:
        self._with = Companion(directory, data, guard, **settings)

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, optimizer: Any = None, lr_scheduler: Any = None,
        **more: Any,
    ) -> None:  # fmt: skip
        state.global_step = self._with.begin(model, _bare(optimizer, "optimizer"), _bare(lr_scheduler, "scheduler"))
        control.should_training_stop = 0 < state.max_steps <= state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._with.stepped(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        self._with.end(state.global_step)


def _bare(wrapped: Any, name: str) -> Any:
    """What accelerate has wrapped."""
    return getattr(wrapped, name, wrapped) if type(wrapped).__module__.startswith("accelerate") else wrapped
