"""How often somebody may do something before he is told to wait: a bucket for each that runs full again in a minute.

The eldest are forgotten first, so that many addresses cost a bounded memory.
"""

from typing import Final

KEPT_MAX: Final = 1000
MINUTE_S: Final = 60.0


class Buckets:
    """By any name: an address, a person."""

    def __init__(self, per_minute: int) -> None:
        self._size = float(per_minute)
        self._left: dict[str, tuple[float, float]] = {}  # what was left, and when

    def one_more(self, name: str, now: float) -> bool:
        """Whether there was one left for it. `now`: monotonic seconds."""
        left, at = self._left.pop(name, (self._size, now))
        left = min(self._size, left + (now - at) * self._size / MINUTE_S)
        if len(self._left) >= KEPT_MAX:
            del self._left[next(iter(self._left))]
        self._left[name] = (max(0.0, left - 1.0), now)
        return left >= 1.0
