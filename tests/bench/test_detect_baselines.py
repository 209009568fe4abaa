"""The vectorised detectors say what scalar ones say that are written as their papers and sources describe them."""

import math
from collections.abc import Callable, Iterator
from statistics import NormalDist

import numpy as np
import pytest

from rankpulse.bench.detect import baselines as b
from rankpulse.bench.detect import counting, nvrx, trace
from rankpulse.bench.detect.senders import Beats, rank_beats

SECONDS = 1500.0


def streams() -> Iterator[Beats]:
    """A quiet one, a stormy one, one with a hole, and one with a burst of held-up beats."""
    for scale, number in ((1.0, 0), (200.0, 1)):
        day = trace.make_day(7, number, scale, nodes=8, seconds=SECONDS)
        yield rank_beats(day, 3)
    number = np.delete(np.arange(1400.0), slice(1150, 1180))
    yield Beats(number, number, number + 0.003, 0.0)
    late = np.arange(1400.0) + 0.003
    late[1200:1240] = 1240.5
    yield Beats(np.arange(1400.0), np.arange(1400.0), np.maximum.accumulate(late), 0.0)


def chen(beats: Beats, window: int) -> list[float]:
    """Expected arrival of the next beat, by the definition."""
    found, shifts = [], list[float]()
    for number, arrived in zip(beats.number, beats.arrived, strict=True):
        shifts.append(arrived - number)
        last = shifts[-window:]
        found.append(sum(last) / len(last) + number + 1.0)
    return found


def scalar_chen(alpha: float) -> Callable[[Beats], list[float]]:
    return lambda beats: [ea + alpha for ea in chen(beats, 1000)]


def scalar_two_window(margin: float) -> Callable[[Beats], list[float]]:
    return lambda beats: [
        max(short, long) + margin for short, long in zip(chen(beats, 1), chen(beats, 1000), strict=True)
    ]


def scalar_bertier(beats: Beats) -> list[float]:
    found, delay, var, expected = [], 0.0, 0.0, chen(beats, 1000)
    for k, ea in enumerate(expected):
        error = beats.arrived[k] - expected[k - 1] - delay if k else 0.0
        delay += 0.1 * error
        var += 0.1 * (abs(error) - var)
        found.append(ea + delay + 4.0 * var)
    return found


def scalar_akka(beats: Beats) -> list[float]:
    """Akka's PhiAccrualFailureDetector: phi is asked, not a deadline; here its root is found by bisection."""

    def phi(waited: float, mean: float, sd: float) -> float:
        y = (waited - mean) / sd
        e = math.exp(-y * (1.5976 + 0.070566 * y * y))
        return -math.log10(e / (1.0 + e)) if waited > mean else -math.log10(1.0 - 1.0 / (1.0 + e))

    found, history, last = [], [0.75, 1.25], None
    for arrived in beats.arrived:
        if last is not None and arrived <= found[-1]:
            history.append(arrived - last)
        last = arrived
        recent = history[-1000:]
        mean = sum(recent) / len(recent)
        sd = max(math.sqrt(max(sum(x * x for x in recent) / len(recent) - mean * mean, 0.0)), 0.1)
        low, high = mean + 3.0, mean + 3.0 + 20 * sd
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if phi(middle, mean + 3.0, sd) < 8.0 else (low, middle)
        found.append(arrived + low)
    return found


def scalar_cassandra(beats: Beats) -> list[float]:
    found, history, last = [], [2.0], None
    for arrived in beats.arrived:
        if last is not None and arrived - last <= 2.0:
            history.append(arrived - last)
        last = arrived
        recent = history[-1000:]
        found.append(arrived + 8.0 * math.log(10.0) * sum(recent) / len(recent))
    return found


def scalar_phi(beats: Beats) -> list[float]:
    found, history, last = [], [0.75, 1.25], None
    sds = -NormalDist().inv_cdf(1e-8)
    for arrived in beats.arrived:
        if last is not None:
            history.append(arrived - last)
        last = arrived
        recent = history[-1000:]
        mean = sum(recent) / len(recent)
        sd = math.sqrt(max(sum((x - mean) ** 2 for x in recent) / len(recent), 0.0))
        found.append(arrived + mean + sds * max(sd, 0.1))
    return found


def scalar_exponential(beats: Beats) -> list[float]:
    found, history, last = [], list[float](), None
    for arrived in beats.arrived:
        if last is not None:
            history.append(arrived - last)
        last = arrived
        recent = history[-1000:] or [1.0]
        found.append(arrived + math.log(1000.0) * sum(recent) / len(recent))
    return found


SCALAR: dict[str, tuple[b.Deadlines, Callable[[Beats], list[float]]]] = {
    "fixed": (b.fixed(5.0), lambda beats: [a + 5.0 for a in beats.arrived]),
    "NFD-E": (b.nfd_e(2.0), scalar_chen(2.0)),
    "2W-FD": (b.two_window(0.5), scalar_two_window(0.5)),
    "Bertier": (b.bertier(), scalar_bertier),
    "Akka": (b.akka(), scalar_akka),
    "Cassandra": (b.exponential(8.0 * math.log(10.0), most_s=2.0, first_s=2.0), scalar_cassandra),
    "phi": (b.phi_normal(8.0, 0.1), scalar_phi),
    "ED-FD": (b.exponential(math.log(1000.0)), scalar_exponential),
}


@pytest.mark.parametrize("name", SCALAR)
def test_vectorised_as_scalar(name: str) -> None:
    whole, single = SCALAR[name]
    for beats in streams():
        np.testing.assert_allclose(whole(beats), single(beats), rtol=0, atol=1e-6)


def test_mistakes_as_a_scalar_watch_counts_them() -> None:
    for beats in streams():
        for deadlines in (b.fixed(3.0), b.nfd_e(1.0), b.bertier()):
            found = counting.mistakes(beats, deadlines(beats))
            starts, total = watched(beats, deadlines(beats).tolist())
            np.testing.assert_allclose(found.start, starts, atol=1e-9)
            assert math.isclose(found.length.sum(), total, abs_tol=1e-6)


def watched(beats: Beats, deadline: list[float]) -> tuple[list[float], float]:
    """Beat after beat: suspected from the deadline on, trusted again by a beat whose own deadline lies ahead."""
    starts, total, suspected_since = [], 0.0, None
    arrived = beats.arrived.tolist()
    for k in range(len(arrived) - 1):
        if arrived[k + 1] == arrived[k]:
            continue
        if deadline[k] > arrived[k] and suspected_since is not None:
            total += arrived[k] - suspected_since
            suspected_since = None
        if suspected_since is None and max(deadline[k], arrived[k]) < arrived[k + 1]:
            suspected_since = max(deadline[k], arrived[k])
            starts.append(suspected_since)
    if suspected_since is not None:
        total += arrived[-1] - suspected_since
    return starts, total


def test_five_times_the_longest() -> None:
    number = np.delete(np.arange(7200.0), slice(600, 609))
    beats = Beats(number, number, number, 0.0)
    seen = nvrx.LongestSeen(7200.0)
    seen.add(beats)
    assert seen.timeouts()[:3] == [3600.0, 50.0, 50.0]  # ten seconds between beats, seen before the first checkpoint
    assert seen.suspected_at(2000.0, seen.timeouts()) == 2055.0  # the look after 2050 is the first that finds it over
    assert seen.mistakes() == []
