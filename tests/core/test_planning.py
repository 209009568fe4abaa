"""Plans: the examples that circulate, with their figures, and runs that nothing helps."""

import math

import pytest

from rankpulse.core.effective_time import ettr, fleet_ettr, goodput
from rankpulse.core.planning import PRIOR_PER_GPU_HOUR, Plan, per_hour_by_afr, per_hour_by_chance, plan
from rankpulse.trainer.checkpoint.interval import RANK_MTBF_S


def planned(gpus: int, days: float, rate: float) -> Plan:
    return plan(gpus, days, rate, save_s=180.0, recover_s=300.0)


@pytest.mark.parametrize(
    ("chance", "days", "expected"),
    [(0.01, 7.0, 0.45), (0.02, 14.0, 0.91)],
    ids=["1 % in 30 days, for 7 days", "2 % in 30 days, for 14 days"],
)
def test_how_likely_one_of_256_gpus_fails(chance: float, days: float, expected: float) -> None:
    found = planned(256, days, per_hour_by_chance(chance, 30.0))
    assert found.chance == pytest.approx(expected, abs=0.005)
    assert found.chance == pytest.approx(1 - (1 - chance) ** (256 * days / 30), rel=1e-12)


def test_512_devices_that_fail_every_3_hours() -> None:
    found = planned(512, 7.0, 1 / 3 / 512)
    assert found.mtbf_h == pytest.approx(3.0)
    assert found.expected_failures == pytest.approx(56.0)
    assert found.interval_s / 60 == pytest.approx(31.0, abs=1.0)
    assert found.lost_share == pytest.approx(0.194, abs=0.001)
    assert found.lost_share < found.lost_hourly_share


def test_llama_3s_rate_gives_llama_3s_interruptions() -> None:
    assert planned(16_384, 54.0, 419 / (54 * 24 * 16_384)).expected_failures == pytest.approx(419)


def test_an_annual_rate_is_counted_as_disk_makers_do() -> None:
    assert planned(8760, 1.0, per_hour_by_afr(0.09)).mtbf_h == pytest.approx(1 / 0.09)


def test_the_trainers_guess_is_the_plans() -> None:
    assert pytest.approx(3600 / PRIOR_PER_GPU_HOUR) == RANK_MTBF_S


def test_without_failures_one_save_at_the_end_is_enough() -> None:
    found = planned(8, 7.0, 0.0)
    assert (found.mtbf_h, found.chance, found.expected_failures) == (math.inf, 0.0, 0.0)
    assert found.interval_s == 7 * 86_400


def test_a_run_that_never_gets_done_is_lost_as_a_whole() -> None:
    assert planned(10_000_000, 7.0, 1.0).lost_share == 1.0


def test_ettr_is_what_interruptions_leave_and_goodput_what_all_leave() -> None:
    lost = {"detection": 30.0, "load": 70.0, "recomputation": 100.0, "checkpoint": 50.0, "straggling": 50.0}
    assert ettr(1000.0, lost) == pytest.approx(0.8)
    assert goodput(1000.0, lost) == pytest.approx(0.7)
    assert ettr(0.0, {}) is None
    assert ettr(10.0, {"waiting": 20.0}) == 0.0


def test_in_a_fleet_large_runs_count_for_more() -> None:
    assert fleet_ettr([(9000.0, 0.9), (1000.0, 0.1)]) == pytest.approx(0.82)
    assert fleet_ettr([]) is None
