"""From measured runs of some sizes to the mean time between failures at another size.

Not plainly by 1/N. A run's rate is taken as a part that every run has, whatever its size (shared storage, scheduler,
fabric, the program), and a part for each GPU: rate(N) = shared + per_gpu · N, both at least 0. Runs of one size cannot
tell the two apart, and then the interval says so: it reaches from "all by GPU" to "all shared". Where runs disagree by
more than chance, the interval widens by that much (quasi-likelihood: McCullagh and Nelder, Generalized Linear Models).
The interval is that of the profile likelihood; without failures, the exact one for none.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rankpulse.core.distributions import gamma_quantile
from rankpulse.core.estimators import LEVEL, Bounds


@dataclass(frozen=True, slots=True)
class Measured:
    """Runs of so many GPUs (or nodes; one unit throughout): failures in so many hours of running."""

    size: float
    failures: int
    hours: float


@dataclass(frozen=True, slots=True)
class Projection:
    """At `size`. shared_part: of the rate there, what does not grow with the size; None where no data tells.

    spread: by how much runs disagree, 1 where chance explains it. beyond: by which factor `size` is above all measured.
    """

    size: float
    mtbf_h: float
    bounds_h: Bounds
    by_size_alone_h: float
    shared_part: float | None
    spread: float
    beyond: float


def project(measured: Sequence[Measured], size: float, level: float = LEVEL) -> Projection:
    """Raises where nothing was measured."""
    seen = [one for one in measured if one.hours > 0]
    if not seen or size <= 0 or any(one.size <= 0 or one.failures < 0 for one in seen):
        raise ValueError("nothing to project from: give sizes above 0 and hours that were measured")
    model = _Model(seen, size)
    part = model.likeliest()
    best = model.count / model.weighted(part)
    spread = model.spread(best, part)
    bounds = model.bounds(best, part, spread, level)
    return Projection(
        size=size,
        mtbf_h=_turn(best),
        bounds_h=Bounds(_turn(bounds.high), _turn(bounds.low)),
        by_size_alone_h=_turn(size * model.count / sum(one.size * one.hours for one in seen)),
        shared_part=1 - part if len({one.size for one in seen}) > 1 and model.count else None,
        spread=spread,
        beyond=max(1.0, size / max(one.size for one in seen)),
    )


class _Model:
    """The rate at the size asked for, and `part`: how much of it grows with the size."""

    def __init__(self, seen: Sequence[Measured], size: float) -> None:
        self._seen, self._size = seen, size
        self.count = sum(one.failures for one in seen)

    def _scale(self, one: Measured, part: float) -> float:
        return 1 - part + part * one.size / self._size

    def weighted(self, part: float) -> float:
        return sum(one.hours * self._scale(one, part) for one in self._seen)

    def likelihood(self, rate: float, part: float) -> float:
        gained = sum(one.failures * math.log(rate * self._scale(one, part)) for one in self._seen if one.failures)
        return gained - rate * self.weighted(part)

    def likeliest(self) -> float:
        """All by size where the data does not tell."""
        if not self.count:
            return 1.0
        return _highest(lambda part: self.likelihood(self.count / self.weighted(part), part))

    def profile(self, rate: float) -> float:
        return self.likelihood(rate, _highest(lambda part: self.likelihood(rate, part)))

    def spread(self, rate: float, part: float) -> float:
        """Pearson's chi-square by its degrees of freedom; parameters at the edge are none."""
        free = len(self._seen) - (2 if 1e-6 < part < 1 - 1e-6 else 1)
        if free < 1 or not self.count:
            return 1.0
        expected = [rate * one.hours * self._scale(one, part) for one in self._seen]
        squares = (
            (one.failures - mean) ** 2 / mean for one, mean in zip(self._seen, expected, strict=True) if mean > 0
        )
        return max(1.0, sum(squares) / free)

    def bounds(self, best: float, part: float, spread: float, level: float) -> Bounds:
        """Of the rate: where the profile has fallen by what chance and spread explain."""
        if not self.count:
            least = min(self.weighted(0.0), self.weighted(1.0))
            return Bounds(0.0, gamma_quantile((1 + level) / 2, 1.0) / least)
        floor = self.likelihood(best, part) - spread * gamma_quantile(level, 0.5)
        return Bounds(self._edge(best, 0.5, floor), self._edge(best, 2.0, floor))

    def _edge(self, inside: float, factor: float, floor: float) -> float:
        outside = inside
        while self.profile(outside) >= floor and 1e-300 < outside < 1e300:
            outside *= factor
        for _ in range(30):
            middle = math.sqrt(inside * outside)
            inside, outside = (middle, outside) if self.profile(middle) >= floor else (inside, middle)
        return inside


def _highest(of: Callable[[float], float]) -> float:
    """Where a quasi-concave function of 0..1 is highest, by golden section; 1 where it is flat."""
    low, high, cut = 0.0, 1.0, (math.sqrt(5) - 1) / 2
    for _ in range(36):
        left, right = high - cut * (high - low), low + cut * (high - low)
        low, high = (low, right) if of(left) > of(right) else (left, high)
    middle = (low + high) / 2
    return max((1.0, middle, 0.0), key=of)


def _turn(rate: float) -> float:
    return 1 / rate if rate > 0 else math.inf
