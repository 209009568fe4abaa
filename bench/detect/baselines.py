"""The usual detectors, over whole days of beats at once.

Each is a function from the beats of one sender to deadlines: `deadline[k]` is when it would suspect the sender if
nothing came after beat k. Scalar versions, written as their papers and sources describe them, stand in the tests.
"""

import math
from collections.abc import Callable
from statistics import NormalDist
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from rankpulse.bench.detect.parameters import INTERVAL_S
from rankpulse.bench.detect.senders import Beats
from rankpulse.bench.detect.trace import Floats

WINDOW: Final = 1000
Deadlines = Callable[[Beats], Floats]


class Baseline(NamedTuple):
    name: str
    deadlines: Deadlines
    source: str


def fixed(timeout_s: float) -> Deadlines:
    return lambda beats: beats.arrived + timeout_s


def _expected(beats: Beats, window: int) -> Floats:
    """Chen's EA of the next beat: the mean shift of the last `window` arrivals against the senders' schedule."""
    shift = beats.arrived - beats.number * INTERVAL_S
    return _window_mean(shift, window) + (beats.number + 1.0) * INTERVAL_S


def _window_mean(values: Floats, window: int) -> Floats:
    """Of the last `window` values up to each."""
    base = values[0] if len(values) else 0.0
    total = np.concatenate([[0.0], np.cumsum(values - base)])
    last = np.arange(1, len(values) + 1)
    first = np.maximum(last - window, 0)
    return np.asarray((total[last] - total[first]) / (last - first) + base)


def nfd_e(alpha_s: float, window: int = WINDOW) -> Deadlines:
    return lambda beats: _expected(beats, window) + alpha_s


def two_window(margin_s: float) -> Deadlines:
    return lambda beats: np.maximum(_expected(beats, 1), _expected(beats, WINDOW)) + margin_s


def bertier(gain: float = 0.1, beta: float = 1.0, phi: float = 4.0) -> Deadlines:
    """Jacobson's estimate of the error of EA."""

    def deadlines(beats: Beats) -> Floats:
        expected = _expected(beats, WINDOW)
        error = np.zeros(len(beats))
        error[1:] = beats.arrived[1:] - expected[:-1]
        delay = _smoothed(error, gain)
        miss = error - np.concatenate([[0.0], delay[:-1]])
        return np.asarray(expected + beta * delay + phi * _smoothed(np.abs(miss), gain))

    return deadlines


def _smoothed(values: Floats, gain: float) -> Floats:
    """y[k] = (1 - gain) y[k-1] + gain x[k], by doubling: exact to 1e-20 for gains that matter."""
    found, keep, shift = gain * values, 1.0 - gain, 1
    while keep > 1e-20 and shift < len(values):
        step = found.copy()
        step[shift:] += keep * found[:-shift]
        found, keep, shift = step, keep * keep, 2 * shift
    return found


def exponential(means: float, *, most_s: float = math.inf, first_s: float | None = None) -> Deadlines:
    """So many mean intervals. `most_s`: longer ones are not learned; `first_s`: an interval assumed at the start."""

    def deadlines(beats: Beats) -> Floats:
        gaps = np.diff(beats.arrived, prepend=beats.arrived[:1])
        keep = gaps <= most_s
        keep[:1] = False
        mean, _ = _history(gaps, keep, (first_s,) if first_s is not None else (INTERVAL_S,), forget=first_s is None)
        return np.asarray(beats.arrived + means * mean)

    return deadlines


def phi_normal(threshold: float, least_sd_s: float) -> Deadlines:
    """Hayashibara's: the normal tail of the last intervals."""
    sds = -NormalDist().inv_cdf(10.0**-threshold)

    def deadlines(beats: Beats) -> Floats:
        gaps = np.diff(beats.arrived, prepend=beats.arrived[:1])
        keep = np.ones(len(gaps), dtype=bool)
        keep[:1] = False
        mean, sd = _history(gaps, keep, (0.75, 1.25))
        return np.asarray(beats.arrived + mean + sds * np.maximum(sd, least_sd_s))

    return deadlines


def akka_sds(threshold: float) -> float:
    """How many deviations past the mean Akka's logistic approximation reaches the threshold."""
    low, high = 0.0, 40.0
    for _ in range(100):
        y = (low + high) / 2
        e = math.exp(-y * (1.5976 + 0.070566 * y * y))
        low, high = (y, high) if -math.log10(e / (1.0 + e)) < threshold else (low, y)
    return low


def akka(threshold: float = 8.0, least_sd_s: float = 0.1, pause_s: float = 3.0) -> Deadlines:
    """Intervals that end after the deadline are not recorded, so which are recorded depends on the deadlines."""
    sds = akka_sds(threshold)

    def deadlines(beats: Beats) -> Floats:
        gaps = np.diff(beats.arrived, prepend=beats.arrived[:1])
        keep = gaps <= pause_s
        for _ in range(50):
            keep[:1] = False
            mean, sd = _history(gaps, keep, (0.75, 1.25))
            found = beats.arrived + mean + pause_s + sds * np.maximum(sd, least_sd_s)
            again = np.concatenate([[False], beats.arrived[1:] <= found[:-1]])
            if np.array_equal(again, keep):
                break
            keep = again
        return np.asarray(found)

    return deadlines


def _history(
    gaps: Floats, keep: npt.NDArray[np.bool_], first: tuple[float, ...], *, forget: bool = False
) -> tuple[Floats, Floats]:
    """Mean and deviation of the last recorded intervals, after each beat. `first`: what is assumed at the start;
    `forget`: only until something is known."""
    values = np.concatenate([first, gaps[keep]])
    base = 1.0
    sums = np.concatenate([[0.0], np.cumsum(values - base)])
    squares = np.concatenate([[0.0], np.cumsum((values - base) ** 2)])
    last = np.cumsum(keep) + len(first)
    begin = np.maximum(last - WINDOW, 0)
    if forget:
        begin = np.where(last > len(first), np.maximum(begin, len(first)), begin)
    count = last - begin
    mean = (sums[last] - sums[begin]) / count
    variance = np.maximum((squares[last] - squares[begin]) / count - mean**2, 0.0)
    return mean + base, np.sqrt(variance)


_MEANS_OF_PHI_8: Final = 8.0 * math.log(10.0)
STUDY: Final = "facts"
BASELINES: Final[tuple[Baseline, ...]] = (
    *(Baseline(f"fixed {s} s", fixed(float(s)), "a constant") for s in (5, 10, 30, 45, 60)),
    *(Baseline(f"Chen NFD-E a={a} s", nfd_e(float(a)), "Chen, Toueg, Aguilera 2002; n=1000") for a in (1, 2, 4, 8)),
    Baseline("Bertier", bertier(), "Bertier, Marin, Sens 2002; gain 0.1, beta 1, phi 4"),
    Baseline("phi 8 (paper)", phi_normal(8.0, 0.1), "Hayashibara et al. 2004; window 1000, least deviation 0.1 s"),
    Baseline("phi 12 (paper)", phi_normal(12.0, 0.1), "the same"),
    Baseline("phi, Akka", akka(), "Akka's defaults: threshold 8, window 1000, pause 3 s, least deviation 0.1 s"),
    Baseline(
        "phi, Cassandra",
        exponential(_MEANS_OF_PHI_8, most_s=2.0, first_s=2.0),
        "Cassandra's defaults: threshold 8 of an exponential tail, window 1000, intervals over 2 s ignored",
    ),
    Baseline("ED-FD 0.999", exponential(math.log(1000.0)), "exponential tail at 0.999, window 1000"),
    *(
        Baseline(f"2W-FD d={d} s", two_window(d), "Tomsic et al. 2015; windows 1 and 1000")
        for d in (0.5, 1.0, 2.0, 4.0)
    ),
)
