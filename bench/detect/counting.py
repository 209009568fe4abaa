"""From deadlines and arrivals to mistakes, restarts and intervals of confidence."""

import math
from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.senders import Beats
from rankpulse.bench.detect.trace import Floats

GPU_DAYS: Final = 10_000.0
_NORMAL_FROM: Final = 1_000  # counts from here on: the approximation is good to four digits


class Mistakes(NamedTuple):
    """When living senders were suspected, and for how long. Seconds."""

    start: Floats
    length: Floats


def mistakes(beats: Beats, deadline: Floats) -> Mistakes:
    """`deadline[k]`: when the sender is suspected if nothing came after beat k.

    Beats that were received in one instant count by the last of them. A beat that leaves its sender suspected, because
    it is an old one, does not end the mistake.
    """
    if len(beats) < 2:
        return Mistakes(np.empty(0), np.empty(0))
    last = np.append(beats.arrived[1:] > beats.arrived[:-1], True)
    came, limit = beats.arrived[last], deadline[last]
    start, end = np.maximum(limit[:-1], came[:-1]), came[1:]
    wrong = end > start
    goes_on = np.zeros(len(wrong), dtype=bool)
    goes_on[1:] = (limit[1:-1] <= came[1:-1]) & wrong[:-1]
    first = np.flatnonzero(wrong & ~goes_on)
    if not len(first):
        return Mistakes(np.empty(0), np.empty(0))
    lengths = np.add.reduceat(np.where(wrong, end - start, 0.0), first)
    return Mistakes(start[first], lengths)


def detected(beats: Beats, deadline: Floats, dead_at: float) -> float:
    """How long after its death a sender is suspected for good. 0: it was suspected already."""
    count = int(np.searchsorted(beats.made, dead_at))
    if not count:
        return 0.0
    return max(float(deadline[count - 1]) - dead_at, 0.0)


def restarts(starts: Iterable[float], blocked_s: float = z.BLOCKED_S) -> int:
    """Restarts of one job: whatever is suspected while it restarts is not counted again."""
    count, free_at = 0, -math.inf
    for start in sorted(starts):
        if start >= free_at:
            count, free_at = count + 1, start + blocked_s
    return count


def garwood(count: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a Poisson mean of which `count` events were seen."""
    tail = (1.0 - level) / 2.0
    low = _mean_with(count - 1, 1.0 - tail) if count else 0.0
    return low, _mean_with(count, tail)


def _mean_with(count: int, below: float) -> float:
    """The mean at which `count` or fewer events have this probability."""
    if count >= _NORMAL_FROM:
        return _wilson_hilferty(count, below)
    low, high = 0.0, count + 20.0 * math.sqrt(count + 1.0) + 20.0
    for _ in range(80):
        mean = (low + high) / 2.0
        low, high = (mean, high) if _at_most(count, mean) > below else (low, mean)
    return low


def _at_most(count: int, mean: float) -> float:
    if mean <= 0.0:
        return 1.0
    logs = [n * math.log(mean) - mean - math.lgamma(n + 1.0) for n in range(count + 1)]
    return math.fsum(math.exp(log) for log in logs)


def _wilson_hilferty(count: int, below: float) -> float:
    from statistics import NormalDist

    n = count + 1.0
    return float(n * (1.0 - 1.0 / (9.0 * n) + NormalDist().inv_cdf(1.0 - below) / (3.0 * math.sqrt(n))) ** 3)


class Rate(NamedTuple):
    """Events over an exposure, with the 95 % interval."""

    value: float
    low: float
    high: float


def rate(count: int, exposure: float, per: float = 1.0) -> Rate:
    low, high = garwood(count)
    return Rate(*(x * per / exposure for x in (count, low, high)))
