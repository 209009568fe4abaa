"""Classic histograms, and which incident was the last in each of their buckets: what a metric alone does not tell."""

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.samples import Exemplar

FAST_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # of what runs every second
SLOW_S: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)  # of incidents
NAME_MAX: Final = 100  # OpenMetrics allows an exemplar 128 characters, the label's name included


@dataclass(slots=True)
class Histogram:
    """Seconds, counted by upper bounds. Grows only."""

    bounds: Sequence[float]
    sum: float = 0.0
    counts: list[int] = field(init=False)
    last: dict[int, tuple[str, float]] = field(default_factory=dict)  # by bucket: the incident, and its seconds

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def observe(self, seconds: float, incident: str = "") -> None:
        """A clock that was set back makes no time negative."""
        seconds = max(seconds, 0.0)
        place = bisect_left(self.bounds, seconds)
        self.counts[place] += 1
        self.sum += seconds
        if incident:
            self.last[place] = incident, seconds

    def buckets(self) -> Iterator[tuple[str, float] | tuple[str, float, Exemplar]]:
        """Upper bound and how many lie at or below it, with the incident of the last that lies in this very bucket."""
        below = 0
        for place, bound in enumerate((*self.bounds, math.inf)):
            below += self.counts[place]
            known = self.last.get(place)
            edge = "+Inf" if bound == math.inf else repr(bound)
            yield (edge, below, of_incident(known[0], known[1])) if known else (edge, below)


def of_incident(name: str, value: float) -> Exemplar:
    """What leads from a figure to `rankpulse explain`."""
    return Exemplar({"incident": name[:NAME_MAX]}, value)
