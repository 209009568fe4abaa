"""Looks at /proc and at disks that may hang, in a few threads: one that hangs is given up and costs nobody else."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, TypeVar

THREADS: Final = 4
T = TypeVar("T")


class TooSlow(Exception):
    """It has not come back in time, or too many have not; the text says which."""


class Aside:
    """`name`: of the threads."""

    def __init__(self, name: str, threads: int = THREADS) -> None:
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
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
        self._pool.shutdown(wait=False, cancel_futures=True)
