"""Asking a place that may never answer: a file server that is gone holds whoever asks, for ever."""

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def within(timeout_s: float, ask: Callable[[], T]) -> T:
    """What `ask` returns or raises; TimeoutError where it does neither in this time. Its thread then stays behind, for
    no thread can be ended that waits in the kernel."""
    came: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            came.append(ask())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="rankpulse-look", daemon=True)
    thread.start()
    thread.join(timeout_s)
    if failed:
        raise failed[0]
    if not came:
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    return came[0]
