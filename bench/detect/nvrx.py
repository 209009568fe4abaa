"""The rule of nvidia-resiliency-ext: five times the longest interval any rank has shown, looked at every five seconds.

Its timeout is computed anew when the application asks for that, here at every checkpoint: half old, half new. Until the
first it is an hour, which was its default. Needs the gaps of all senders, so it is no `Baseline`.
"""

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.senders import Beats
from rankpulse.bench.detect.trace import Floats

NAME: Final = "5 x max (NVRx)"
FACTOR, FIRST_S, CHECK_S, KEEP = 5.0, 3600.0, 5.0, 0.5
_LEAST_S: Final = FACTOR * z.INTERVAL_S * 0.9  # no timeout is shorter, so no shorter gap can be a mistake


@dataclass
class LongestSeen:
    """Fed with every sender of a day, then asked."""

    seconds: float
    longest: Floats = field(init=False)
    gaps: list[tuple[float, float]] = field(default_factory=list)  # (last arrival, next), of the long ones

    def __post_init__(self) -> None:
        self.longest = np.zeros(int(self.seconds / z.CHECKPOINT_EVERY_S) + 1)

    def add(self, beats: Beats) -> None:
        gaps = np.diff(beats.arrived)
        period = np.minimum((beats.arrived[1:] / z.CHECKPOINT_EVERY_S).astype(np.int64), len(self.longest) - 1)
        np.maximum.at(self.longest, period, gaps)
        for k in np.flatnonzero(gaps > _LEAST_S):
            self.gaps.append((float(beats.arrived[k]), float(beats.arrived[k + 1])))

    def timeouts(self) -> list[float]:
        """In force from each checkpoint on, the first of them from the beginning."""
        found, seen = [FIRST_S], 0.0
        for longest in self.longest[:-1]:
            seen = max(seen, float(longest))
            new = FACTOR * seen
            found.append(new if len(found) == 1 else KEEP * new + (1 - KEEP) * found[-1])
        return found

    def suspected_at(self, last: float, timeouts: list[float]) -> float:
        """When a sender that was last heard then is suspected."""
        check = np.ceil(last / CHECK_S) * CHECK_S
        while True:
            at = timeouts[min(int(check / z.CHECKPOINT_EVERY_S), len(timeouts) - 1)]
            if check - last > at:
                return float(check)
            check = max(check + CHECK_S, np.ceil((last + min(timeouts)) / CHECK_S) * CHECK_S)

    def mistakes(self) -> list[tuple[float, float]]:
        """(start, length) in seconds."""
        timeouts = self.timeouts()
        least = min(timeouts)
        found = [
            (start, end - start)
            for last, end in self.gaps
            if end - last > least and (start := self.suspected_at(last, timeouts)) < end
        ]
        return sorted(found)
