"""Waiting for an outcome instead of for time. Tests say `from support import eventually`."""

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any

POLL_S = 0.02


async def eventually(
    cond: Callable[[], Any | Awaitable[Any]], timeout_s: float = 10.0, what: str = "the condition"
) -> Any:
    """The first true answer of `cond` (a function or coroutine function); fails with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = cond()
        if inspect.isawaitable(answer):
            answer = await answer
        if answer:
            return answer
        _check(deadline, timeout_s, what)
        await asyncio.sleep(POLL_S)


def eventually_sync(cond: Callable[[], Any], timeout_s: float = 10.0, what: str = "the condition") -> Any:
    """`eventually` for tests without a loop."""
    deadline = time.monotonic() + timeout_s
    while True:
        answer = cond()
        if answer:
            return answer
        _check(deadline, timeout_s, what)
        time.sleep(POLL_S)


def _check(deadline: float, timeout_s: float, what: str) -> None:
    if time.monotonic() > deadline:
        raise AssertionError(f"{what}: not within {timeout_s:g} s")
