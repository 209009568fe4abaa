"""Saves that go on beside the training: one at a time, in a thread of this rank's own, over ranks of its own.

The thread is there only while a save goes on. A process that ends meanwhile leaves an attempt without a manifest, which
is no checkpoint; one that ends in order waits for it, for a while.
"""

import atexit
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from torch.optim.optimizer import register_optimizer_step_pre_hook

from rankpulse.trainer.checkpoint.errors import SaveFailed
from rankpulse.trainer.checkpoint.saving import Begun, How, Save, Saved, second_part
from rankpulse.trainer.checkpoint.staging import Stage
from rankpulse.trainer.checkpoint.together import Together
from rankpulse.trainer.interfaces import untraced

EXIT_S: Final = 60.0  # at the end of the interpreter, for a program that has not called close()


class Background:
    """Everything but `_run` is called by the training's own thread.

    together: of all ranks, and used by nothing else. done, failed: told in the writer thread how a save ended.
    """

    def __init__(
        self,
        stage: Stage,
        together: Callable[[], Together],
        done: Callable[[Saved], None],
        failed: Callable[[int, SaveFailed], None],
    ) -> None:
        self._stage, self._make, self._done, self._failed = stage, together, done, failed
        self._together: Together | None = None
        self._thread: threading.Thread | None = None
        self._hook: Any = None
        self._saved: Saved | None = None
        self._error: Exception | None = None

    @property
    def busy(self) -> bool:
        """Whether a save is going on here. Ranks may differ in it."""
        return self._thread is not None and self._thread.is_alive()

    def open(self) -> None:
        """Called by all ranks, before the first save; later calls do nothing."""
        if self._together is None:
            self._together = self._make()
            self._hook = _before_steps(self._stage)
            atexit.register(self._at_exit)

    def start(self, directory: str, begun: Begun, how: How, stood_s: Callable[[], float]) -> None:
        """Copy, and write what was copied; none is going on. stood_s: what this takes of the training's time is in
        it. An error of the copying is told to all ranks by the writer thread, like any other."""
        trouble: list[Exception] = []

        def ready() -> None:
            self._stage.finish()
            if trouble:
                raise trouble[0]

        try:
            try:
                begun = begun.moved(self._stage.begin(begun.slices()))
            except Exception as error:
                trouble.append(error)
            self._write(directory, begun, how, ready, stood_s)
        except BaseException:  # a person's Ctrl-C: no writer will let the next step of an optimizer go on
            if not self.busy:
                self._stage.give_up()
            raise

    def _write(
        self, directory: str, begun: Begun, how: How, ready: Callable[[], None], stood_s: Callable[[], float]
    ) -> None:
        assert self._together is not None
        save, stood = second_part(how)(directory, begun, self._together, how), stood_s()
        self._saved, self._error = None, None
        about = (save, ready, begun.step, stood)
        self._thread = threading.Thread(target=self._run, args=about, name="rankpulse-checkpoint", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no thread is to be had: the other ranks speak all the same, so training waits for once
            self._thread = None
            self._run(*about)

    def join(self, timeout_s: float | None = None) -> bool:
        """Wait for the one that is going on; whether it is over."""
        if self._thread is not None:
            with suppress(RuntimeError):  # it was never started: somebody has broken that off
                self._thread.join(timeout_s)
        return not self.busy

    def surface(self, *, failures: bool = False) -> Saved | None:
        """Raises what a save that is over has met, once: what a person must know or do something about, and with
        `failures` also that it was not saved, which was said already. Else what was saved, or None."""
        if self.busy or (isinstance(self._error, SaveFailed) and not failures):
            return None
        error, self._error = self._error, None
        if error is not None:
            raise error
        return self._saved

    def forgive(self) -> None:
        """A later save has succeeded: that this one failed is no news any more."""
        if isinstance(self._error, SaveFailed):
            self._error = None

    def close(self) -> None:
        """Called by all ranks."""
        self.join()
        atexit.unregister(self._at_exit)
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        together, self._together = self._together, None
        if together is not None and hasattr(together, "close"):
            together.close()

    def _run(self, save: Save, ready: Callable[[], None], step: int, stood_s: float) -> None:
        try:
            saved = save.run(ready)
            self._saved = replace(saved, stood_s=stood_s)
            self._done(self._saved)
        except SaveFailed as error:
            self._error = error
            self._failed(step, error)
        except Exception as error:
            self._error = error

    def _at_exit(self) -> None:
        self.join(EXIT_S)


def _before_steps(stage: Stage) -> Any:
    """Have every optimizer of this process wait, before a step, for copies that it could tear."""

    @untraced
    def wait(optimizer: object, args: object, kwargs: object) -> None:
        stage.before_update()

    return register_optimizer_step_pre_hook(wait)
