"""When is a node late? An adaptive deadline per node, learned from its own beats.

The deadline is `last beat + interval + margin`; the margin is an empirical quantile of the lateness seen so far, held
between a floor and a cap (a fixed margin is either jumpy or slow; a Gaussian tail underestimates bursts by orders of
magnitude). Until enough beats have been seen the margin is the cap: a stranger gets the benefit of the doubt.
"""

import bisect
import math
from collections import deque

from rankpulse.core.settings import DetectSettings

WINDOW = (
    500  # beats remembered: minutes at one hertz, so a lasting change of the path is learned, not suspected for ever
)


class Arrival:
    """The beats of one node, as they were received. Times are seconds on the observer's monotonic clock."""

    def __init__(self, settings: DetectSettings) -> None:
        self._settings = settings
        self._recent: deque[float] = deque()
        self._sorted: list[float] = []
        self._last: float | None = None
        self._not_before = -math.inf
        self._skip_next = True  # the first interval, and the first after an outage, say nothing about the path

    @property
    def last(self) -> float | None:
        """When the last beat was received."""
        return self._last

    @property
    def beats(self) -> int:
        """How many intervals have been learned from (at most the window)."""
        return len(self._sorted)

    def beat(self, now: float) -> None:
        """A beat was received at `now`. Late ones are learned, capped: a lasting slow-down must not flap for ever."""
        if self._last is not None and not self._skip_next:
            self._learn(min(max(now - self._last - self._settings.heartbeat_interval_s, 0.0), self._cap()))
        self._skip_next = False
        self._last = now

    def renew(self, now: float, grace_s: float) -> None:
        """Sight was lost or the sender restarted: no deadline before `now + interval + margin + grace_s`."""
        self._not_before = now + self._settings.heartbeat_interval_s + self.margin() + grace_s
        if self._last is not None:
            self._last = min(self._last, now)  # an observer's clock that went back must not postpone every deadline
        self._skip_next = True

    def forget_next(self) -> None:
        """The interval that ends with the next beat spans an outage we know of: do not learn from it."""
        self._skip_next = True

    def margin(self) -> float:
        """Seconds allowed beyond the interval."""
        if len(self._sorted) < self._settings.prior_beats:
            return self._cap()
        index = min(math.ceil(self._settings.quantile * len(self._sorted)), len(self._sorted)) - 1
        return min(max(2.0 * self._sorted[index], self._settings.margin_floor_s), self._cap())

    def deadline(self) -> float:
        """The moment after which silence is a suspicion; infinity before the first beat."""
        if self._last is None:
            return math.inf
        return max(self._last + self._settings.heartbeat_interval_s + self.margin(), self._not_before)

    def _cap(self) -> float:
        return self._settings.margin_cap_s

    def _learn(self, lateness: float) -> None:
        self._recent.append(lateness)
        bisect.insort(self._sorted, lateness)
        if len(self._recent) > WINDOW:
            del self._sorted[bisect.bisect_left(self._sorted, self._recent.popleft())]
