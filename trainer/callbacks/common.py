"""What both callbacks do, in the words of neither: pulse, checkpoints, data and guard of a loop that is not ours."""

from collections.abc import Callable
from typing import Any

from rankpulse.trainer import attach
from rankpulse.trainer.checkpoint import CheckpointManager, Resumed


class Companion:
    """Beside a training loop. `data`: a ReplayLoader that the loop reads. `guard`: makes a ReplicaGuard of the model.

    settings: those of CheckpointManager, beside what it saves.
    """

    def __init__(
        self, directory: str, data: Any = None, guard: Callable[[Any], Any] | None = None, **settings: Any
    ) -> None:
        self.data = data
        self.resumed: Resumed | None = None
        self._directory, self._settings, self._guard_of = directory, settings, guard
        self._manager: CheckpointManager | None = None
        self._guard: Any = None
        self._saved_step = -1

    def begin(self, model: Any, optimizer: Any, scheduler: Any) -> int:
        """All is built and nothing trained: load. The step that the job goes on from, 0: a fresh start."""
        self._pulse = attach()
        extra = dict(self._settings.get("extra") or {})
        extra |= {"data": self.data} if self.data is not None else {}
        settings = self._settings | {"extra": extra}
        self._manager = CheckpointManager(
            self._directory, model=model, optimizer=optimizer, scheduler=scheduler, **settings
        )
        self._guard = self._guard_of(model) if self._guard_of is not None else None
        self.resumed = self._manager.load()
        self._saved_step = self.resumed.step if self.resumed else 0
        return self._saved_step

    def stepped(self, step: int, loss: Any = float("nan"), batches: int | None = None) -> None:
        """The update of step `step` is made, with so many of the batches that were taken (None: all of them)."""
        assert self._manager is not None
        if self.data is not None:
            self.data.consumed(batches)
        if self._guard is not None:
            self._guard.step(step)
        self._pulse.step(step, loss=loss)
        if self._manager.step(step) is not None:
            self._saved_step = step

    def end(self, step: int) -> None:
        """Training is over: save what is not saved yet, and say that all is well."""
        if self._manager is None:
            return
        if step > self._saved_step:
            self._manager.save(step)
        self._manager.close()
        self._pulse.close()
        self._manager = None
