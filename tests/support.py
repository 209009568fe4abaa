"""Waiting for an outcome instead of for time, and work counted instead of timed. `from support import eventually`."""

import asyncio
import gc
import inspect
import os
import sys
import time
from collections.abc import Awaitable, Callable
from types import FrameType
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


def work(call: Callable[[], object]) -> int:
    """Lines of Python run: what a clock would measure, without the machine that it depends on."""
    count = 0

    def trace(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


def fork() -> int:
    """As `os.fork`, for a child that runs on in this interpreter.

    What other tests of this process left behind is not the child's to collect: a gRPC channel, for one, would wait for
    its thread, which no child has.
    """
    gc.disable()
    try:
        child = os.fork()
        if not child:
            gc.freeze()
    finally:
        gc.enable()
    return child
