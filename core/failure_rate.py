"""The failure rate of a run as it is now: learned failure by failure, and forgotten soon where it changes.

Bayesian online changepoint detection (Adams and MacKay, 2007) over a Poisson process. Each hypothesis says since when
the rate has been what it is, and holds the gamma posterior (failures, exposure) of that time. A window or a discount
forgets as slowly as it learns; here a rate that has held is known well, and one that jumped is followed within some
failures. Exposure without a failure counts as it passes, so a rate that fell is noticed before the next failure.

After a change the rate may be anything, most likely within some ten times of the old one: gammas of shape 1/2 about the
old rate, a tenth and ten times of it. Units of exposure are the caller's: hours, GPU hours.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from rankpulse.core.distributions import gamma_cdf, normal_quantile
from rankpulse.core.estimators import LEVEL, Bounds

CHANGE: Final = 0.001  # the chance that the rate changes with a failure: higher, and a steady rate is doubted too often
_BROAD: Final = 0.5
_MOST: Final = 40  # hypotheses kept
_SCALES: Final = ((1.0, 0.6), (0.1, 0.2), (10.0, 0.2))  # of the MTBF before a change, with their chances
# of a first guess: one that is too short is set right by time that passes, one that is too long by failures alone
_FIRST: Final = ((1.0, 0.5), (0.1, 0.35), (10.0, 0.15))
_LEAST: Final = 1e-6  # of the weight: who has less falls out
_COUNTS: Final = 1e-4  # of the weight: who has less makes no difference to a bound
_CLOSE: Final = 1e-4  # that a bound is found to, as a ratio


class Since(NamedTuple):
    """One hypothesis: the rate has held for this exposure, with these failures (both with their prior's share)."""

    weight: float
    failures: float
    exposure: float


@dataclass(frozen=True, slots=True)
class RateBelief:
    """All hypotheses; weights add up to 1. At most 40 triples, so it can be stored beside the run."""

    since: tuple[Since, ...]


def believing(mtbf: float, worth: float = _BROAD) -> RateBelief:
    """Before anything was seen of this run: `worth` is how many failures' evidence that guess stands for.

    A guess may be wrong by more than its worth admits, so the same at other scales stand beside it.
    """
    return _normal(_guess(mtbf, worth, 1.0, _FIRST))


def passed(belief: RateBelief, exposure: float) -> RateBelief:
    """That much exposure went by without a failure."""
    if exposure <= 0:
        return belief
    return _normal(
        [
            Since(weight * math.exp(-count * math.log1p(exposure / seen)), count, seen + exposure)
            for weight, count, seen in belief.since
        ]
    )


def failed(belief: RateBelief) -> RateBelief:
    """A failure, just now. With it the rate may have changed."""
    return failed_after(belief, 0.0)


def failed_after(belief: RateBelief, exposure: float) -> RateBelief:
    """That much exposure went by, then a failure: `passed` and `failed` in one, for histories of hundreds of them."""
    seen, total = [], 0.0
    for weight, count, before in belief.since:
        after = before + exposure
        weight *= math.exp(-count * math.log1p(exposure / before)) * count / after
        total += weight
        seen.append((weight, count + 1, after))
    least = _LEAST * total
    kept = [(weight / total, count, after) for weight, count, after in seen if weight > least]
    rate_then = sum(weight * count / after for weight, count, after in kept)
    kept.sort(reverse=True)
    guess = _guess(1 / rate_then, _BROAD, CHANGE / (1 - CHANGE))
    return _normal([*kept[: _MOST - len(guess)], *guess])


def rate(belief: RateBelief) -> float:
    """Expected failures per exposure. Lost time grows with the rate, so this mean is what an interval rests on."""
    return sum(one.weight * one.failures / one.exposure for one in belief.since)


def mtbf(belief: RateBelief) -> float:
    """The mean time between failures at that rate."""
    return 1 / rate(belief)


def mtbf_bounds(belief: RateBelief, level: float = LEVEL) -> Bounds:
    """The credible interval of the mean time between failures, equal tails."""
    tail = (1 - level) / 2
    return Bounds(1 / _quantile(belief, 1 - tail), 1 / _quantile(belief, tail))


def _quantile(belief: RateBelief, p: float) -> float:
    """Of the rate, by false position (Illinois) on its logarithm, from where a lognormal of that mean has it."""
    mean = rate(belief)
    square = sum(one.weight * one.failures * (one.failures + 1) / one.exposure**2 for one in belief.since)
    spread = math.sqrt(math.log(max(square / mean / mean, 1.0 + 1e-6)))
    low = high = mean * math.exp(spread * (normal_quantile(p) - spread / 2))
    off_low, off_high, step = (off := _below(belief, low) - p), off, math.exp(spread / 4)
    while off_low > 0:
        low, high, off_high = low / step, low, off_low
        off_low, step = _below(belief, low) - p, step * step
    while off_high < 0:
        low, off_low, high = high, off_high, high * step
        off_high, step = _below(belief, high) - p, step * step
    a, b, off_a, off_b = math.log(low), math.log(high), off_low, off_high
    for _ in range(60):
        if b - a < _CLOSE or off_a >= 0 or off_b <= 0:
            break
        middle = (a * off_b - b * off_a) / (off_b - off_a)
        off = _below(belief, math.exp(middle)) - p
        if abs(off) < _CLOSE * p:
            return math.exp(middle)
        a, off_a, b, off_b = (middle, off, b, off_b / 2) if off < 0 else (a, off_a / 2, middle, off)
    return math.exp((a + b) / 2)


def _below(belief: RateBelief, value: float) -> float:
    """What has hardly any weight is left out: it moves no bound by as much as is shown of it."""
    told = [one for one in belief.since if one.weight > _COUNTS]
    return sum(one.weight * _share_below(one, value) for one in told) / sum(one.weight for one in told)


def _share_below(one: Since, value: float) -> float:
    """Ten standard deviations from the mean nothing is left to sum up."""
    expected = value * one.exposure
    far = 10.0 * math.sqrt(one.failures) + 30.0
    if abs(expected - one.failures) > far:
        return 1.0 if expected > one.failures else 0.0
    return gamma_cdf(expected, one.failures)


def _guess(
    mtbf: float, worth: float, weight: float, scales: tuple[tuple[float, float], ...] = _SCALES
) -> list[tuple[float, float, float]]:
    return [(weight * chance, worth, worth * mtbf * scale) for scale, chance in scales]


def _normal(since: Iterable[tuple[float, float, float]]) -> RateBelief:
    since = tuple(since)
    total = sum(weight for weight, _, _ in since)
    return RateBelief(tuple(Since(weight / total, count, exposure) for weight, count, exposure in since))
