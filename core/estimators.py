"""Failure rates and mean times between failures from counts, with intervals that stay honest for few failures and none.

The model: failures of one class come as a Poisson process over the exposure (hours in which something could fail,
running time included). Exposure without a failure counts in full: that is how censoring is handled.

Exact: Garwood, "Fiducial limits for the Poisson distribution", Biometrika 28 (1936): covers with at least `level`.
Jeffreys: Brown, Cai, DasGupta, "Interval estimation in exponential families", Statistica Sinica 13 (2003): covers with
`level` on average, and is shorter. Shares: Clopper and Pearson, Biometrika 26 (1934).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from rankpulse.core.distributions import beta_quantile, gamma_quantile

LEVEL: Final = 0.9


class Bounds(NamedTuple):
    """An interval. `high` may be infinite."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Mtbf:
    """What was seen of one class. Times in the unit of `exposure`; best and highs are inf where none failed."""

    failures: int
    exposure: float
    best: float
    exact: Bounds
    jeffreys: Bounds


def rate_exact(failures: int, exposure: float, level: float = LEVEL) -> Bounds:
    """Garwood's interval of failures per unit of exposure: from 0 where none failed, without bound at no exposure."""
    _check(failures, exposure, level)
    tail = (1 - level) / 2
    low = gamma_quantile(tail, failures) if failures else 0.0
    return _per(exposure, low, gamma_quantile(1 - tail, failures + 1))


def rate_jeffreys(failures: int, exposure: float, level: float = LEVEL) -> Bounds:
    """The equal-tailed posterior interval by Jeffreys' prior; from 0 where none failed, as its authors advise."""
    _check(failures, exposure, level)
    tail = (1 - level) / 2
    low = gamma_quantile(tail, failures + 0.5) if failures else 0.0
    return _per(exposure, low, gamma_quantile(1 - tail, failures + 0.5))


def mtbf(failures: int, exposure: float, level: float = LEVEL) -> Mtbf:
    """Mean time between failures: exposure by failures, with both intervals."""
    exact, jeffreys = rate_exact(failures, exposure, level), rate_jeffreys(failures, exposure, level)
    best = exposure / failures if failures else math.inf
    return Mtbf(failures, exposure, best, _turned(exact), _turned(jeffreys))


def by_class(failures: Mapping[str, int], exposure: float, level: float = LEVEL) -> dict[str, Mtbf]:
    """Each class by itself, over the exposure that all share. Their rates add up, their mean times do not."""
    return {name: mtbf(count, exposure, level) for name, count in failures.items()}


def share(part: int, whole: int, level: float = LEVEL) -> Bounds:
    """Clopper and Pearson's interval of the share that a class has in all failures; (0, 1) of nothing."""
    if not 0 <= part <= whole:
        raise ValueError(f"{part} of {whole} is no share")
    tail = (1 - level) / 2
    low = beta_quantile(tail, part, whole - part + 1) if part else 0.0
    return Bounds(low, beta_quantile(1 - tail, part + 1, whole - part) if part < whole else 1.0)


def at_least_one(expected: float) -> float:
    """The chance of at least one failure where so many are expected."""
    return abs(math.expm1(-expected))


def _check(failures: int, exposure: float, level: float) -> None:
    if failures < 0 or not 0 <= exposure < math.inf or not 0 < level < 1:
        raise ValueError(
            f"{failures} failures in {exposure} at level {level}: none of them can be negative or unbounded"
        )
    if failures and not exposure:
        raise ValueError(f"{failures} failures without any exposure")


def _per(exposure: float, low: float, high: float) -> Bounds:
    return Bounds(low / exposure, high / exposure) if exposure else Bounds(0.0, math.inf)


def _turned(rate: Bounds) -> Bounds:
    return Bounds(1 / rate.high if rate.high else math.inf, 1 / rate.low if rate.low else math.inf)
