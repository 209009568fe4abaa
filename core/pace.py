"""Is a job as a whole slower than it used to be? Its own past is the measure, for its ranks wait for each other."""

import statistics
from collections import deque

BLOCK = 50  # steps, or beats that show several, of which the median counts
PAST = 200  # blocks: hours; a pace that lasts for longer than half of them is the usual one
SETTLED = 4  # blocks that make a past
LASTING = 2  # blocks in a row: less is weather


class Pace:
    """Seconds per step, block by block."""

    __slots__ = ("_block", "_last", "_past")

    def __init__(self) -> None:
        self._block: list[float] = []
        self._last: deque[float] = deque(maxlen=LASTING)
        self._past: deque[float] = deque(maxlen=PAST)

    def add(self, step_s: float) -> None:
        """A step took so long."""
        self._block.append(step_s)
        if len(self._block) < BLOCK:
            return
        if len(self._last) == LASTING:
            self._past.append(self._last[0])
        self._last.append(statistics.median(self._block))
        self._block.clear()

    def resume(self, step_s: float) -> None:
        """What was usual before this monitor looked."""
        self._past.extendleft([step_s] * (SETTLED if len(self._past) < SETTLED else 0))

    def forget(self) -> None:
        """Another number of ranks has another pace."""
        self._block.clear()
        self._last.clear()
        self._past.clear()

    def usual_s(self) -> float | None:
        """Seconds per step as they used to be, None until there is a past."""
        return statistics.median(self._past) if len(self._past) >= SETTLED else None

    def slowdown(self) -> float | None:
        """How much slower than usual each of the newest blocks was, as a ratio; None while nothing can be said."""
        usual = self.usual_s()
        return min(self._last) / usual if usual and len(self._last) == LASTING else None
