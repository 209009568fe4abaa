"""Is the failure rate constant? Tests on the instants of failures within a time that was watched as a whole.

Instants are given on the axis of exposure (node hours, say), so a fleet that grew is no trend. Laplace's test: Cox
and Lewis, The Statistical Analysis of Series of Events (1966). MIL-HDBK-189C, and the Crow-AMSAA model, in which the
rate goes like time^(beta - 1): Crow (1974). Both take failures to be independent; where they come in bursts, that alone
makes them speak. Lewis and Robinson (1974) divide Laplace's by the variation of the gaps: a verdict needs theirs, too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rankpulse.core.distributions import gamma_cdf, gamma_quantile, gamma_sf, normal_two_sided
from rankpulse.core.estimators import LEVEL, Bounds

ALPHA: Final = 0.05
FEWEST: Final = 5
CONSTANT, FALLING, RISING, BURSTS, TOO_FEW = "constant", "falling", "rising", "bursts", "too_few"
VERDICTS: Final = (CONSTANT, FALLING, RISING, BURSTS, TOO_FEW)


@dataclass(frozen=True, slots=True)
class Trend:
    """laplace, lewis_robinson: standard normal if the rate is constant, above 0 where it grows. ps: two-sided.

    beta: of Crow-AMSAA, 1 for a constant rate, above where it grows; with its interval. verdict: constant, falling,
    rising, bursts (not constant, and gaps so uneven that no trend follows), or too_few.
    """

    failures: int
    laplace: float
    laplace_p: float
    lewis_robinson: float
    lewis_robinson_p: float
    beta: float
    beta_bounds: Bounds
    military_p: float
    verdict: str


def trend(instants: Sequence[float], watched: float, alpha: float = ALPHA) -> Trend:
    """instants: of the failures, each within 0..watched, in any order."""
    times = sorted(instants)
    if times and not 0 <= times[0] <= times[-1] <= watched:
        raise ValueError(f"failures lie outside the time watched, 0 to {watched}")
    if len(times) < FEWEST:
        return Trend(len(times), 0.0, 1.0, 0.0, 1.0, 1.0, Bounds(0.0, math.inf), 1.0, TOO_FEW)
    u = laplace(times, watched)
    robust = u / _variation(times)
    beta, bounds, p = crow_amsaa(times, watched)
    first, second = normal_two_sided(u), normal_two_sided(robust)
    return Trend(len(times), u, first, robust, second, beta, bounds, p, _verdict(u, min(first, p), second, alpha))


def laplace(times: Sequence[float], watched: float) -> float:
    """How far the middle of the failures lies from the middle of the time, in its standard deviations."""
    n = len(times)
    return (sum(times) / n - watched / 2) / (watched * math.sqrt(1 / (12 * n)))


def crow_amsaa(times: Sequence[float], watched: float, level: float = LEVEL) -> tuple[float, Bounds, float]:
    """The shape of the power law with its exact interval, and the two-sided p of MIL-HDBK-189C, watched by time."""
    n = len(times)
    logs = sum(math.log(watched / max(time, watched * 1e-12)) for time in times)
    if logs <= 0:
        return math.inf, Bounds(math.inf, math.inf), 0.0
    tail = (1 - level) / 2
    bounds = Bounds(gamma_quantile(tail, n) / logs, gamma_quantile(1 - tail, n) / logs)
    return n / logs, bounds, min(1.0, 2 * min(gamma_cdf(logs, n), gamma_sf(logs, n)))


def _variation(times: Sequence[float]) -> float:
    """The coefficient of variation of the gaps, the first from 0; 1 for independent failures."""
    gaps = [b - a for a, b in zip([0.0, *times], times, strict=False)]
    mean = sum(gaps) / len(gaps)
    if mean <= 0:
        return math.inf
    return max(math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / (len(gaps) - 1)) / mean, 1e-9)


def _verdict(u: float, p: float, robust_p: float, alpha: float) -> str:
    if p > alpha:
        return CONSTANT
    if robust_p > alpha:
        return BURSTS
    return RISING if u > 0 else FALLING
