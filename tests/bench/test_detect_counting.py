"""Mistakes, restarts and intervals; what the trace draws; and figures from scores."""

import math

import numpy as np
import pytest

from rankpulse.bench.detect import counting, tally, trace
from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.senders import Beats, node_beats, rank_beats
from rankpulse.bench.detect.shift import Score, Shift


@pytest.mark.parametrize(
    ("count", "low", "high"), [(0, 0.0, 3.689), (1, 0.0253, 5.572), (5, 1.623, 11.668), (100, 81.36, 121.63)]
)
def test_exact_intervals(count: int, low: float, high: float) -> None:
    assert counting.garwood(count) == pytest.approx((low, high), abs=6e-3)


def test_the_approximation_joins_the_exact_interval() -> None:
    exact, near = counting._mean_with(999, 0.025), counting._wilson_hilferty(999, 0.025)
    assert near == pytest.approx(exact, rel=1e-4)


def test_a_restart_hides_what_happens_during_it() -> None:
    assert counting.restarts([0.0, 10.0, 599.0, 600.0, 1199.0, 1300.0], 600.0) == 3


def test_a_mistake_that_a_stale_beat_does_not_end_is_one() -> None:
    arrived = np.array([0.0, 1.0, 10.0, 11.0, 12.0])
    beats = Beats(np.array([0.0, 1.0, 2.0, 10.0, 12.0]), arrived, arrived, 0.0)
    found = counting.mistakes(beats, np.array([3.0, 4.0, 5.0, 13.0, 15.0]))
    assert found.start.tolist() == [4.0]
    assert found.length.tolist() == [7.0]


def test_the_same_seed_gives_the_same_beats() -> None:
    first, again, other = (node_beats(trace.make_day(s, 3, seconds=2000.0), 5) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.arrived, again.arrived)
    assert len(first) != len(other) or (first.arrived != other.arrived).any()


def test_beats_arrive_in_order_and_after_they_were_made() -> None:
    day = trace.make_day(3, 0, 50.0, seconds=4000.0)
    for beats in (node_beats(day, 9), rank_beats(day, 77)):
        assert (np.diff(beats.arrived) >= 0).all()
        assert (beats.arrived > beats.made).all()
        assert len(beats) > 3000


def test_rates_are_those_of_the_table() -> None:
    """Over 40 days, within five standard deviations."""
    days = [trace.make_day(11, n) for n in range(40)]
    for name, spans, population in (
        ("rack_pause", [d.racks for d in days], z.RACKS),
        ("nic_burst", [d.bursts for d in days], z.NODES),
        ("outage", [d.outages for d in days], 1),
    ):
        expected = z.TRACE_Z[name].rate * population * len(days)
        assert abs(sum(map(len, spans)) - expected) < 5 * math.sqrt(expected), name
    frozen = np.concatenate(
        [d.freezes.end - d.freezes.start for d in (*days, *(trace.make_day(12, n) for n in range(200)))]
    )
    share = z.TRACE_Z["freeze"].size.tail(6.0)
    assert abs((frozen > 6.0).mean() - share) < 5 * math.sqrt(share / len(frozen))


def test_what_no_timeout_escapes() -> None:
    least, at = tally.floor(1.0)
    assert (least, at) == (pytest.approx(20.5, abs=0.2), pytest.approx(16.8, abs=0.5))
    assert tally.floor(5.0)[0] > least > tally.floor(0.2)[0]


def test_figures_of_a_score() -> None:
    score = Score(128, 100.0, mistakes=8, restarts=5, detection_s=[5.0, 6.0, 7.0], racks_s=[11.0], rack_decisions=[1])
    row = tally.figures("x", score)
    assert row["rank_days"] == 102_400
    assert row["false_restarts_per_10k_gpu_days"] == pytest.approx(0.488, abs=1e-3)
    assert row["false_restarts_per_10k_gpu_days_95"] == pytest.approx((0.1585, 1.1395), abs=1e-3)
    assert row["mistakes_per_rank_day"] == pytest.approx(64 / 102_400)
    assert row["job_seconds_lost_per_day"] == pytest.approx(0.832 * 6.0 + 5 * 6.0)
    assert (row["detection_p99_s"], row["rack_p99_s"]) == (7.0, 11.0)


def test_the_order_in_which_days_end_does_not_matter() -> None:
    one = Shift(0, True, {"ours": {"x": Score(128, 1.0, 1, 2.0, 1, [5.0])}})
    two = Shift(1, True, {"ours": {"x": Score(128, 1.0, 3, 1.0, 2, [7.0])}})
    assert tally.added([one, two]) == tally.added([two, one])
    assert tally.added([one, two])["ours"]["x"].detection_s == [5.0, 7.0]
