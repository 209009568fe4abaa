"""Whether this process is between two updates, and the door that keeps it there while last words are written.

Optimizers pass the gate before and after each step. Between the first of these and the program's next word that a step
is done, what the process holds is of no step. Nothing here raises; while nobody holds the gate, it costs a lock.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition, Lock
from typing import Any, Final

from rankpulse.trainer.interfaces import untraced

NO_STEP: Final = -1


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the process is. `clean`: nothing was updated since the end of `step`; else it is on the way to the next.
    `moment`: what was kept of the end of that step."""

    step: int
    clean: bool
    moment: Any = None


class Gate:
    """`update_begins`, `update_ends` and `passed` are the training's; `hold`, `let_up_to` and `release` are those of
    who writes last words.

    tell: told when an optimizer's step begins (True) and is over (False).
    """

    def __init__(
        self, tell: Callable[[bool], object] = lambda begun: None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell, self._clock = tell, clock
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._standing = Standing(NO_STEP, clean=False)
        self._depth = 0  # optimizers whose steps call those of others
        self._updated = False  # since the program's last word that a step is done
        self._holder: object = None
        self._until = float("-inf")
        self._target = NO_STEP
        self._hooks: list[Any] = []

    def open(self) -> None:
        """Have every optimizer of this process pass here."""
        from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        @untraced
        def before(optimizer: object, args: object, kwargs: object) -> None:
            self.update_begins()

        @untraced
        def after(optimizer: object, args: object, kwargs: object) -> None:
            self.update_ends()

        if not self._hooks:
            self._hooks = [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        self.release()

    @property
    def standing(self) -> Standing:
        return self._standing

    def update_begins(self) -> None:
        """An optimizer's step: it waits while the gate is held, and no step further is wanted."""
        with self._lock:
            if self._holder is not None:
                self._wait()
            self._depth += 1
            self._updated = True
            self._tell(True)
            if self._standing.clean:
                self._standing = Standing(self._standing.step, clean=False)

    def update_ends(self) -> None:
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._tell(False)

    def by_hand(self) -> None:
        """The program changes parameters without an optimizer, in the same way; nobody says when it is done."""
        with self._lock:
            if self._holder is not None:
                self._wait()
            self._updated = True
            self._standing = Standing(self._standing.step, clean=False)

    def counted(self, step: int) -> bool:
        """Whether the program has said already that this step is done, and has made an update since."""
        with self._lock:
            return self._updated and self._standing.step == step

    def passed(self, step: int, moment: Any = None) -> None:
        """The program says that a step is done."""
        with self._lock:
            self._standing = Standing(step, clean=True, moment=moment)
            self._updated = False
            self._depth = 0  # a step that raised, and went on all the same
            self._tell(False)
            self._changed.notify_all()

    def lost(self) -> None:
        """What the process holds is of no step, until the program says of the next that it is done."""
        with self._lock:
            self._standing, self._updated = Standing(self._standing.step, clean=False), False

    def hold(self, holder: object, until: float) -> Standing:
        """From now on no update begins, until `until` at the longest. Where the process stands."""
        with self._lock:
            self._holder, self._until, self._target = holder, until, self._standing.step
            return self._standing

    def let_up_to(self, step: int) -> None:
        """Updates may go on until this step is done."""
        with self._lock:
            if step > self._target:
                self._target = step
                self._changed.notify_all()

    def held(self, holder: object, step: int) -> bool:
        """Whether nothing was updated since the end of this step, and nothing can be."""
        with self._lock:
            return self._holder is holder and self._standing.clean and self._standing.step == step

    def release(self) -> None:
        with self._lock:
            self._holder = None
            self._changed.notify_all()

    def _wait(self) -> None:
        """With the lock. An update that is under way (one optimizer's step within another's) does not wait."""
        while self._holder is not None and self._standing.clean and self._standing.step >= self._target:
            left_s = self._until - self._clock()
            if left_s <= 0:
                self._holder = None  # too late: who holds it finds that it does not any more
                return
            self._changed.wait(left_s)
