"""Time as the agent's shells see it; tests hand in their own."""

import time
from collections.abc import Callable
from typing import NamedTuple


class Clock(NamedTuple):
    """`monotonic`: seconds, for every decision. `utc`: seconds, for people only."""

    monotonic: Callable[[], float] = time.monotonic
    utc: Callable[[], float] = time.time
