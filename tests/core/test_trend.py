"""Is the rate constant: tests that speak as often as they may, and of a rate that changes."""

import random

import pytest

from rankpulse.core.trend import crow_amsaa, laplace, trend


def evenly(count: int, chance: random.Random, power: float = 1.0) -> list[float]:
    """A power-law process on 0..1: constant at 1, rising above."""
    return [chance.random() ** (1 / power) for _ in range(count)]


def test_a_constant_rate_is_called_so_19_times_in_20() -> None:
    chance = random.Random(5)
    verdicts = [trend(evenly(40, chance), 1.0).verdict for _ in range(1000)]
    assert verdicts.count("constant") / 1000 >= 0.92  # two tests, of which either may speak by chance


@pytest.mark.parametrize(("power", "verdict"), [(0.5, "falling"), (2.0, "rising")])
def test_a_rate_that_changes_is_seen(power: float, verdict: str) -> None:
    chance = random.Random(5)
    found = [trend(evenly(60, chance, power), 1.0) for _ in range(200)]
    assert [one.verdict for one in found].count(verdict) >= 190
    assert sum(one.beta_bounds.low <= power <= one.beta_bounds.high for one in found) >= 170


def test_bursts_are_no_trend() -> None:
    """Ten causes at random, each told of twenty times within minutes."""
    chance = random.Random(2)
    found = [trend([min(at + n * 1e-6, 1.0) for at in evenly(10, chance) for n in range(20)], 1.0) for _ in range(200)]
    trends = [one.verdict for one in found if one.verdict in ("rising", "falling")]
    assert len(trends) <= 30
    assert sum(one.laplace_p < 0.05 for one in found) > 80  # which Laplace's alone would have called trends


def test_few_failures_show_no_trend() -> None:
    assert trend([0.1, 0.2, 0.3, 0.4], 1.0).verdict == "too_few"
    assert trend([], 1.0).verdict == "too_few"


def test_a_failure_outside_of_the_time_watched_is_refused() -> None:
    with pytest.raises(ValueError, match="outside"):
        trend([0.5, 1.5], 1.0)


def test_failures_all_at_once_are_answered() -> None:
    assert trend([1.0] * 6, 1.0).verdict in ("bursts", "rising")
    assert trend([0.0] * 6, 1.0).verdict in ("bursts", "falling")


def test_the_figures_of_the_handbook() -> None:
    """By hand: three instants of 1, 2 and 6 in 8 hours."""
    assert laplace([1.0, 2.0, 6.0], 8.0) == pytest.approx((3.0 - 4.0) / (8 / 6))
    beta, bounds, p = crow_amsaa([1.0, 2.0, 6.0], 8.0)
    assert beta == pytest.approx(3 / (2.0794 + 1.3863 + 0.2877), rel=1e-3)
    assert bounds.low < 1 < bounds.high
    assert p > 0.5
    chi2 = pytest.importorskip("scipy.stats").chi2
    assert bounds.low == pytest.approx(chi2.ppf(0.05, 6) / (2 * 3 / beta), rel=1e-9)
