"""The receiver's clocks, handed in by whoever starts it."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """`now`: monotonic seconds, for deadlines. `utc`: seconds since 1970, by which signatures are dated."""

    now: Callable[[], float]
    utc: Callable[[], float]


def system() -> Clock:
    return Clock(now=time.monotonic, utc=time.time)
