"""To other sizes: what Meta's published figures allow to be said, and whether intervals hold the truth."""

import math
import random

import pytest

from rankpulse.core.projection import Measured, project

# Kokolis et al., 2024. They print mean times, no counts: 100 failures each are taken, or intervals would be a guess.
COUNT = 100
SMALL = Measured(8, COUNT, COUNT * 47.7 * 24)
LARGE = Measured(1024, COUNT, COUNT * 7.9)
NODE_DAYS = 6.50 / 1000  # failures of RSC-1, from all its jobs of more than 128 GPUs
CLUSTER = Measured(1024, COUNT, COUNT / (128 * NODE_DAYS) * 24)


def test_meta_projects_from_the_cluster_not_from_the_jobs_of_1024_gpus() -> None:
    """1.8 hours at 16,384 GPUs are 2,048 nodes at the cluster's rate. At 1,024 that rate says 28.8 hours, not 7.9."""
    assert pytest.approx(1.80, abs=0.01) == 24 / (2048 * NODE_DAYS)
    assert pytest.approx(28.8, abs=0.1) == 24 / (128 * NODE_DAYS)
    assert project([CLUSTER], 16_384).mtbf_h == pytest.approx(1.80, abs=0.01)


def test_the_jobs_of_1024_gpus_alone_allow_anything_from_half_an_hour_to_what_they_had() -> None:
    found = project([LARGE], 16_384)
    assert found.by_size_alone_h == pytest.approx(7.9 / 16)
    assert found.shared_part is None
    assert found.beyond == 16
    assert found.bounds_h.low < 7.9 / 16
    assert found.bounds_h.low < 1.8 < found.bounds_h.high
    assert found.bounds_h.high > 7.9


def test_jobs_of_8_and_of_1024_gpus_fail_by_their_size_and_exclude_the_published_projection() -> None:
    found = project([SMALL, LARGE], 16_384)
    assert found.shared_part == pytest.approx(0.0, abs=1e-6)
    assert found.mtbf_h == pytest.approx(0.526, abs=0.001)
    assert found.bounds_h.low < 7.9 / 16 < found.bounds_h.high < 0.65


def test_together_they_disagree_and_the_interval_says_so() -> None:
    found = project([SMALL, LARGE, CLUSTER], 16_384)
    assert found.spread > 50
    assert found.bounds_h.low < 7.9 / 16
    assert found.bounds_h.high > 1.8


def test_a_part_that_every_run_has_is_found() -> None:
    seen = [Measured(64, 164, 1000.0), Measured(1024, 1124, 1000.0)]  # 0.1 + 0.001 per GPU
    found = project(seen, 4096)
    assert found.mtbf_h == pytest.approx(1 / 4.196, rel=1e-3)
    assert found.shared_part == pytest.approx(0.1 / 4.196, rel=1e-2)
    assert found.spread == 1.0


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    chance, held = random.Random(6), 0
    for _ in range(60):
        seen = [
            Measured(size, _drawn(hours * (0.05 + 0.001 * size), chance), hours)
            for size, hours in ((64, 400.0), (256, 100.0), (1024, 50.0))
        ]
        bounds = project(seen, 4096).bounds_h
        held += bounds.low <= 1 / (0.05 + 4.096) <= bounds.high
    assert held / 60 >= 0.8


def test_without_failures_there_is_a_lower_bound() -> None:
    found = project([Measured(64, 0, 1000.0)], 128)
    assert found.mtbf_h == found.bounds_h.high == math.inf
    assert found.bounds_h.low == pytest.approx(500 / -math.log(0.05))


@pytest.mark.parametrize("seen", [[], [Measured(8, 0, 0.0)], [Measured(0, 1, 1.0)]])
def test_from_nothing_nothing_is_projected(seen: list[Measured]) -> None:
    with pytest.raises(ValueError, match="nothing to project from"):
        project(seen, 16)


def _drawn(mean: float, chance: random.Random) -> int:
    count, at = 0, chance.expovariate(1.0)
    while at < mean:
        count, at = count + 1, at + chance.expovariate(1.0)
    return count
