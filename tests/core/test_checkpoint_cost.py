"""What an interval between saves costs: the formulas against a run that is played, and against each other."""

import math
import random

import pytest

from rankpulse.core import checkpoint_cost as cost
from rankpulse.trainer.checkpoint import interval as trainers


def played(interval: float, save: float, recover: float, mtbf: float, segments: int) -> float:
    """Time lost per time of work, failure by failure: they strike at work, at saves and at recoveries."""
    chance, spent = random.Random(3), 0.0
    until = chance.expovariate(1 / mtbf)
    for _ in range(segments):
        need = interval + save
        while until < need:
            spent += until
            until, need = chance.expovariate(1 / mtbf), recover + interval + save
        spent, until = spent + need, until - need
    return spent / (interval * segments) - 1


@pytest.mark.parametrize(
    ("save", "recover", "mtbf"), [(60.0, 300.0, 7200.0), (480.0, 300.0, 7200.0), (10.0, 60.0, 600.0)]
)
def test_a_played_run_loses_what_the_model_says(save: float, recover: float, mtbf: float) -> None:
    best = cost.exact(save, mtbf)
    for interval in (best / 3, best, best * 3):
        assert played(interval, save, recover, mtbf, 40_000) == pytest.approx(
            cost.overhead(interval, save, recover, mtbf), rel=0.03
        )


@pytest.mark.parametrize("save", [1e-3, 1.0, 60.0, 480.0, 3600.0, 1e5])
@pytest.mark.parametrize("mtbf", [600.0, 11_124.0, 1e6, 1e9])
def test_no_interval_beats_the_exact_one(save: float, mtbf: float) -> None:
    best = cost.exact(save, mtbf)
    least = cost.overhead(best, save, 0.0, mtbf)
    for other in (0.5, 0.9, 0.99, 1.01, 1.1, 2.0):
        assert cost.overhead(best * other, save, 0.0, mtbf) >= least * (1 - 1e-9)


def test_recovery_does_not_change_the_best_interval() -> None:
    best = cost.exact(60.0, 7200.0)
    for other in (0.97, 1.03):
        assert cost.overhead(best, 60.0, 3000.0, 7200.0) < cost.overhead(best * other, 60.0, 3000.0, 7200.0)


def test_young_is_the_optimum_of_the_first_order() -> None:
    best = cost.young(60.0, 7200.0)
    for other in (0.99, 1.01):
        assert cost.first_order_loss(best, 60.0, 300.0, 7200.0) < cost.first_order_loss(
            best * other, 60.0, 300.0, 7200.0
        )


def test_the_three_meet_where_saves_are_short() -> None:
    assert cost.young(1.0, 1e8) == pytest.approx(cost.exact(1.0, 1e8), rel=1e-4)
    for save in (1.0, 60.0, 600.0):
        assert cost.daly(save, 7200.0) == pytest.approx(cost.exact(save, 7200.0), rel=1e-3)


def test_the_trainers_interval_is_dalys() -> None:
    for save in (1.0, 10.0, 60.0):
        assert trainers.auto_s(save, 7200.0, world_size=8) == cost.daly(save, 7200.0)
    assert cost.daly(20_000.0, 7200.0) == 7200.0


def test_extremes_are_answered() -> None:
    assert cost.exact(60.0, math.inf) == math.inf
    assert cost.exact(0.0, 60.0) == 0.0
    assert cost.lost_share(60.0, 60.0, 0.0, math.inf) == pytest.approx(0.5)
    assert cost.lost_share(60.0, 1e6, 0.0, 1.0) == 1.0
    assert cost.exact(1e6, 1.0) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("save_min", "mtbf_h", "interval_min", "lost"),
    [(3, 2, 25, 0.240), (3, 4, 36, 0.167), (8, 2, 39, 0.350), (8, 4, 57, 0.252)],
)
def test_a_checkpoint_of_130_gb_where_512_devices_fail_every_2_to_4_hours(
    save_min: float, mtbf_h: float, interval_min: float, lost: float
) -> None:
    """It takes 3 to 8 minutes to write; five minutes pass until training goes on."""
    best = cost.exact(save_min * 60, mtbf_h * 3600)
    assert best / 60 == pytest.approx(interval_min, abs=0.6)
    assert cost.lost_share(best, save_min * 60, 300.0, mtbf_h * 3600) == pytest.approx(lost, abs=0.001)
