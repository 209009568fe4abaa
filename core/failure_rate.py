"""The failure rate of a run as it is now: learned failure by failure, and forgotten soon where it changes.

Bayesian online changepoint detection (Adams and MacKay, 2007) over a Poisson process. Each hypothesis says since when
the rate has been what it is, and holds the gamma posterior (failures, exposure) of that time. A window or a discount
forgets as slowly as it learns; here a rate that has held is known well, and one that jumped is followed within some
failures. Exposure without a failure counts as it passes, so a rate that fell is noticed before the next failure.

After a change the rate may be anything, most likely within some ten times of the old one: gammas of shape 1/2 about the
old rate, a tenth and ten times of it. Units of exposure are the caller's: hours, GPU hours.
"""

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from rankpulse.core.distributions import gamma_cdf
from rankpulse.core.estimators import LEVEL, Bounds

CHANGE: Final = 0.005  # the chance that the rate changes with a failure
_BROAD: Final = 0.5
_MOST: Final = 40  # hypotheses kept
_SCALES: Final = ((1.0, 0.6), (0.1, 0.2), (10.0, 0.2))  # of an MTBF that is guessed, with their chances
_LEAST: Final = 1e-6  # of the weight: who has less falls out


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
    return _normal(_guess(mtbf, worth, 1.0))


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
    seen = _normal([Since(weight * count / exposure, count + 1, exposure) for weight, count, exposure in belief.since])
    kept = sorted((one for one in seen.since if one.weight > _LEAST), reverse=True)[: _MOST - len(_SCALES)]
    return _normal([*kept, *_guess(1 / rate(seen), _BROAD, CHANGE / (1 - CHANGE))])


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
    low = high = rate(belief)
    while _below(belief, low) > p:
        low /= 2
    while _below(belief, high) < p:
        high *= 2
    for _ in range(26):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _below(belief, middle) < p else (low, middle)
    return math.sqrt(low * high)


def _below(belief: RateBelief, value: float) -> float:
    return sum(one.weight * gamma_cdf(value * one.exposure, one.failures) for one in belief.since)


def _guess(mtbf: float, worth: float, weight: float) -> list[Since]:
    return [Since(weight * chance, worth, worth * mtbf * scale) for scale, chance in _SCALES]


def _normal(since: list[Since]) -> RateBelief:
    total = sum(one.weight for one in since)
    return RateBelief(tuple(Since(weight / total, count, exposure) for weight, count, exposure in since))
