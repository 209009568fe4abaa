"""How fast a counter grows, over minutes: one that went down was reset, and begins anew."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

WINDOW_S: Final = 300.0
ENOUGH_S: Final = 60.0  # nothing is said of a shorter time
_POINTS: Final = 64  # readings that are too close to one another are not all kept
_AGAIN: Final = 0.25  # what was too fast is so until it is this much slower


@dataclass(slots=True)
class Rate:
    """Growth of one counter over the last minutes."""

    window_s: float = WINDOW_S
    resets: int = 0
    _points: deque[tuple[float, float]] = field(default_factory=deque)

    def add(self, value: float, now: float) -> None:
        points = self._points
        if points and value < points[-1][1]:
            self.resets += 1
            points.clear()
        while len(points) > 1 and points[1][0] <= now - self.window_s:
            points.popleft()
        if len(points) >= 2 and now - points[-2][0] < self.window_s / _POINTS:
            points.pop()
        points.append((now, value))

    @property
    def per_s(self) -> float | None:
        """None: it has not been watched for long enough."""
        if len(self._points) < 2:
            return None
        (began, first), (ended, last) = self._points[0], self._points[-1]
        enough = min(ENOUGH_S, self.window_s / 2)
        return (last - first) / (ended - began) if ended - began >= enough else None

    def too_fast(self, limit: float, *, before: bool) -> bool | None:
        """`before`: whether it was so up to now. None: not known."""
        rate = self.per_s
        return None if rate is None else rate > (limit * _AGAIN if before else limit)


class Rates:
    """Many counters, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, Rate] = {}

    def add(self, name: str, value: float | None, now: float, window_s: float = WINDOW_S) -> Rate:
        rate = self._by_name.setdefault(name, Rate(window_s))
        if value is not None:
            rate.add(value, now)
        return rate

    def clear(self) -> None:
        self._by_name.clear()
