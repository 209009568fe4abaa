"""How sure so many trials make: exact one-sided bounds of a share (Clopper and Pearson)."""

import math
from typing import Final

SURE: Final = 0.95


def at_least(count: int, trials: int, sure: float = SURE) -> float:
    """The share that is exceeded with this certainty when `count` of `trials` succeeded."""
    if count <= 0:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(60):
        share = (low + high) / 2.0
        as_good = 1.0 - _up_to(count - 1, trials, share)
        low, high = (share, high) if as_good <= 1.0 - sure else (low, share)
    return low


def at_most(count: int, trials: int, sure: float = SURE) -> float:
    """The share that is not reached with this certainty when `count` of `trials` failed."""
    return 1.0 - at_least(trials - count, trials, sure)


def _up_to(count: int, trials: int, share: float) -> float:
    """The probability of at most `count` successes."""
    if share >= 1.0:
        return float(count >= trials)
    logs = (
        math.lgamma(trials + 1) - math.lgamma(n + 1) - math.lgamma(trials - n + 1)
        + n * math.log(share) + (trials - n) * math.log1p(-share)
        for n in range(count + 1)
    )  # fmt: skip
    return math.fsum(math.exp(log) for log in logs)
