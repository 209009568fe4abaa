"""What is believed of a run's failure rate, and the interval that is advised from it."""

import math
import random

import pytest

from rankpulse.bench import interval_regret
from rankpulse.bench.interval_regret import Story
from rankpulse.core import checkpoint_cost as cost
from rankpulse.core.failure_rate import RateBelief, believing, failed, mtbf, mtbf_bounds, passed
from rankpulse.core.interval_advice import WORTH_MOVING, advise

PAIRS = [(3600.0, 480.0), (10_800.0, 10.0), (28_800.0, 60.0), (86_400.0, 300.0)]  # MTBF at first, save cost
HOUR = 3600.0


def lived(belief: RateBelief, failures: int, every: float, chance: random.Random) -> RateBelief:
    for _ in range(failures):
        belief = failed(passed(belief, chance.expovariate(1 / every)))
    return belief


def test_with_many_failures_the_guess_counts_no_more() -> None:
    found = lived(believing(1000.0), 200, 3.0, random.Random(1))
    assert mtbf(found) == pytest.approx(3.0, rel=0.25)
    bounds = mtbf_bounds(found)
    assert bounds.low < 3.0 < bounds.high < 4.0


def test_intervals_hold_the_mean_time_as_often_as_they_say() -> None:
    chance = random.Random(2)
    held = 0
    for _ in range(60):
        bounds = mtbf_bounds(lived(believing(3.0), 20, 3.0, chance))
        held += bounds.low <= 3.0 <= bounds.high
    assert held / 60 >= 0.83


def test_time_without_a_failure_is_news() -> None:
    found = lived(believing(3.0), 50, 3.0, random.Random(1))
    assert mtbf(passed(found, 60.0)) > 3 * mtbf(found)


def test_it_makes_no_difference_in_how_many_parts_time_passes() -> None:
    found = lived(believing(3.0), 10, 3.0, random.Random(1))
    at_once, in_parts = passed(found, 20.0), found
    for _ in range(200):
        in_parts = passed(in_parts, 0.1)
    assert mtbf(in_parts) == pytest.approx(mtbf(at_once), rel=1e-9)


def test_a_rate_ten_times_as_high_is_followed_within_eight_failures() -> None:
    chance = random.Random(4)
    found = lived(lived(believing(3.0), 100, 3.0, chance), 8, 0.3, chance)
    assert mtbf(found) < 0.6


def test_it_stays_small_and_finite() -> None:
    found = lived(believing(1e-3), 3000, 1e4, random.Random(5))
    assert len(found.since) <= 40
    assert math.isclose(sum(one.weight for one in found.since), 1.0)
    assert math.isfinite(mtbf(passed(found, 1e12)))


@pytest.mark.parametrize(
    "story",
    [
        Story("steady"),
        Story("more failures", change=10.0, worth=20.0),
        Story("fewer failures", change=0.1, worth=20.0),
        Story("too long", guess=10.0),
    ],
    ids=[
        "steady",
        "ten times as many from the middle on",
        "ten times fewer from the middle on",
        "first guess ten times too long",
    ],
)
def test_the_advice_loses_at_most_one_percent_more_than_the_best(story: Story) -> None:
    for cell in interval_regret.tell(story, [1], [pair for pair in PAIRS if pair in interval_regret.pairs(story)]):
        assert cell.regret <= 0.01, cell


def test_without_forgetting_a_change_would_cost_much_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the measure above can fail: the same run with all that was ever seen weighed alike."""
    monkeypatch.setattr("rankpulse.core.failure_rate.CHANGE", 1e-300)
    cells = interval_regret.tell(Story("fewer failures", change=0.1, worth=20.0), [1], PAIRS)
    assert max(cell.regret for cell in cells) > 0.05


def test_the_advice_says_what_it_rests_on() -> None:
    belief = lived(believing(8 * HOUR, 20.0), 20, 8 * HOUR, random.Random(3))
    found = advise(belief, save_s=60.0, recover_s=300.0)
    assert found.interval_s == cost.exact(60.0, found.mtbf_s)
    assert found.bounds_s.low < found.interval_s < found.bounds_s.high
    assert found.mtbf_bounds_s.low < found.mtbf_s < found.mtbf_bounds_s.high
    assert found.moved
    assert f"{found.interval_s:.0f} s loses least" in found.why


def test_a_word_in_force_stays_until_another_is_worth_it() -> None:
    belief = believing(8 * HOUR, 20.0)
    best = advise(belief, save_s=60.0, recover_s=300.0).interval_s
    near = advise(belief, save_s=60.0, recover_s=300.0, in_force_s=best * 1.04)
    assert (near.interval_s, near.moved) == (best * 1.04, False)
    assert "stays" in near.why
    far = advise(belief, save_s=60.0, recover_s=300.0, in_force_s=best * 1.3)
    assert (far.interval_s, far.moved) == (best, True)
    assert cost.overhead(best * 1.04, 60.0, 0.0, far.mtbf_s) < cost.overhead(best, 60.0, 0.0, far.mtbf_s) * (
        1 + WORTH_MOVING
    )


def test_a_steady_run_is_told_a_new_interval_seldom() -> None:
    (cell,) = interval_regret.tell(Story("steady"), [1], PAIRS[2:3])
    assert cell.changes < 100  # of some 1,200 looks, with 200 failures among them


def test_a_save_that_costs_nothing_is_advised_all_the_same() -> None:
    found = advise(believing(8 * HOUR), save_s=0.0, recover_s=0.0, in_force_s=10.0)
    assert 0 < found.interval_s < 60
