"""The monitor's clocks, handed in by whoever starts it."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`now`: monotonic seconds, which decisions read. `utc`: seconds since 1970, for people."""

    now: Callable[[], float]
    utc: Callable[[], float]


def system() -> Clock:
    """The machine's clocks. Time spent suspended counts: a monitor that slept must know that it slept."""
    boottime = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return Clock(now=lambda: time.clock_gettime(boottime), utc=time.time)
