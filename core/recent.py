"""A bounded memory of durations: the newest of them, and what share of them was longer than what."""

import math
from collections import deque
from collections.abc import Sequence

MARKS = 101  # quantiles told of more durations than that: every hundredth
_STRIDE = 37  # prime: restored durations are forgotten in no order of their length


class Recent:
    """The newest `size` durations, seconds. Adding costs next to nothing: they are sorted when somebody asks."""

    __slots__ = ("_kept", "_sorted", "count")

    def __init__(self, size: int) -> None:
        self._kept: deque[float] = deque(maxlen=size)
        self._sorted: list[float] | None = None
        self.count = 0  # events seen in all, also before a restart of the monitor

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, seconds: float, events: int = 1) -> None:
        """So many events took `seconds` each."""
        self._kept.append(seconds)
        self._sorted = None
        self.count += events

    def newest(self) -> float:
        """The newest of them, 0 when there are none."""
        return self._kept[-1] if self._kept else 0.0

    def prolong(self, seconds: float) -> None:
        """The newest of them has turned out to be at least so long."""
        if self._kept and seconds > self._kept[-1]:
            self._kept[-1] = seconds
            self._sorted = None

    def quantile(self, share: float) -> float:
        """The shortest of them that `share` of them do not exceed. ValueError when there are none."""
        ordered = self._ordered()
        if not ordered:
            raise ValueError("no durations yet")
        return ordered[min(max(math.ceil(share * len(ordered)), 1), len(ordered)) - 1]

    def high(self, share: float, apart: float, enough: int) -> float:
        """The same, unless that is the longest of all, alone, and `apart` times longer than the next: one day's mishap.

        It must not set the measure; when it comes again it does. Of fewer than `enough` the longest counts always.
        """
        ordered, found = self._ordered(), self.quantile(share)
        alone = len(ordered) >= enough and found == ordered[-1] and found > apart * ordered[-2]
        return ordered[-2] if alone else found

    def marks(self) -> tuple[float, ...]:
        """Quantiles at equal distances, from the shortest to the longest; all durations where they are few."""
        ordered = self._ordered()
        if len(ordered) > MARKS:
            ordered = [ordered[round(i * (len(ordered) - 1) / (MARKS - 1))] for i in range(MARKS)]
        return tuple(round(seconds, 3) for seconds in ordered)

    def restore(self, count: int, marks: Sequence[float]) -> None:
        """Go on from what `marks` tell of `count` durations; those added here so far are the newest of them."""
        mine = list(self._kept)
        before = sorted(mark for mark in marks if 0 <= mark < math.inf)
        n = len(before)
        stride = _STRIDE if n % _STRIDE else 1
        self._kept.clear()
        self._kept.extend(before[i * stride % n] for i in range(n))
        self._kept.extend(mine)
        self._sorted = None
        self.count = count

    def _ordered(self) -> list[float]:
        if self._sorted is None:
            self._sorted = sorted(self._kept)
        return self._sorted
