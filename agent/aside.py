"""Looks at /proc and at disks that may hang, in a few threads: one that hangs is given up and costs nobody else."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, Final, TypeAlias, TypeVar

THREADS: Final = 4
T = TypeVar("T")
_Job: TypeAlias = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class TooSlow(Exception):
    """It has not come back in time, or too many have not; the text says which."""


class Aside:
    """`name`: of the threads."""

    def __init__(self, name: str, threads: int = THREADS) -> None:
        self._threads = threads
        self._pool = _Pool(name, threads)
        self._hanging: dict[Future[Any], object] = {}  # and what they look at

    async def call(self, within_s: float, function: Callable[..., T], *args: Any, at: object = None) -> T:
        """What `function` returns. Raises `TooSlow`, and whatever it raises.

        `at`: what is looked at; while a look at it hangs no other one is begun.
        """
        if self.hanging >= self._threads or (at is not None and at in self._hanging.values()):
            raise TooSlow("earlier looks still hang")
        future = self._pool.submit(function, *args)
        try:
            async with asyncio.timeout(max(within_s, 0.0)):
                return await asyncio.wrap_future(future)
        except TimeoutError:
            raise TooSlow("it did not come back in time") from None
        finally:
            if not future.cancel() and not future.done():
                self._hanging[future] = at
                future.add_done_callback(lambda done: self._hanging.pop(done, None))

    @property
    def hanging(self) -> int:
        """How many have been given up and have not come back."""
        return len(self._hanging)

    def close(self) -> None:
        self._pool.close()


class _Pool:
    """Threads that nobody waits for, not even when the process ends: the library's own would be."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most, self._started = name, most, 0
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()

    def submit(self, function: Callable[..., T], *args: Any) -> "Future[T]":
        future: Future[T] = Future()
        self._jobs.put((future, function, args))
        if self._started < self._most:
            self._started += 1
            threading.Thread(target=self._serve, name=f"{self._name}-{self._started}", daemon=True).start()
        return future

    def close(self) -> None:
        for _ in range(self._started):
            self._jobs.put(None)

    def _serve(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, function, args = job
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(function(*args))
                except BaseException as error:  # it is for whoever waits for it
                    future.set_exception(error)
