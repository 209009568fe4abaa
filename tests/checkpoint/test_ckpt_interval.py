"""When to save: pure, so that time is only numbers here."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core.checkpoint_cost import daly
from rankpulse.trainer.checkpoint.interval import LONGEST_S, SHORTEST_S, Damped, auto_s, check


@pytest.mark.parametrize(
    ("save_s", "mtbf_s", "expected_s"),
    [(10.0, 86400.0, 1308.0), (60.0, 3600.0, 617.9), (1.0, 1e6, 1413.5), (100.0, 40.0, 40.0)],
)
def test_the_interval_of_daly(save_s: float, mtbf_s: float, expected_s: float) -> None:
    assert daly(save_s, mtbf_s) == pytest.approx(expected_s, rel=0.01)


def test_the_interval_loses_the_least_time() -> None:
    def lost(interval_s: float, save_s: float = 30.0, mtbf_s: float = 7200.0) -> float:
        return save_s / interval_s + (interval_s + save_s) / 2 / mtbf_s

    best = daly(30.0, 7200.0)
    assert lost(best) < lost(best * 0.7)
    assert lost(best) < lost(best * 1.4)


@given(st.floats(0, 1e5) | st.none(), st.floats(1, 1e9) | st.none(), st.integers(1, 100_000))
def test_an_automatic_interval_is_what_people_expect(save_s: float | None, mtbf_s: float | None, world: int) -> None:
    found = auto_s(save_s, mtbf_s, world)
    cost = 10.0 if save_s is None else max(save_s, 1e-3)
    assert math.isfinite(found)
    assert SHORTEST_S <= found <= max(LONGEST_S, cost * 10)
    assert cost / found <= 0.1 + 1e-9, "no more than a tenth of the time goes into saving"


def test_a_larger_job_saves_more_often() -> None:
    assert auto_s(20.0, None, 16384) < auto_s(20.0, None, 1024) < auto_s(20.0, None, 64)


def run(step_s: float, interval_s: float, total_s: float) -> tuple[list[float], int]:
    """A job of equal steps: when it saved, and how often it looked."""
    now = saved_at = checked_at = 0.0
    checked_step, next_check, step, saves, checks = None, -1, 0, [], 0
    while now < total_s:
        step, now = step + 1, now + step_s
        if step >= next_check:
            steps = 0 if checked_step is None else step - checked_step
            checks += 1
            found = check(
                interval_s=interval_s, since_save_s=now - saved_at, since_check_s=now - checked_at, steps=steps
            )
            if found.due:
                saves.append(now - saved_at)
                saved_at = now
            checked_at, checked_step, next_check = now, step, step + found.next_in
    return saves, checks


@given(st.floats(1e-3, 100.0), st.floats(30.0, 3600.0))
def test_saves_come_at_their_interval_and_looks_are_few(step_s: float, interval_s: float) -> None:
    total_s = min(interval_s * 4, step_s * 20_000)
    saves, checks = run(step_s, interval_s, total_s)
    for since_s in saves:
        assert interval_s - 1e-6 <= since_s <= interval_s + interval_s / 8 + 2 * step_s
    assert len(saves) >= math.floor(total_s / (interval_s + interval_s / 8 + 2 * step_s)) - 1
    assert checks <= 20 + 16 * (total_s / interval_s + 1) + 2 * math.log2(total_s / step_s + 2) + 2 * total_s / 30


def test_a_clock_that_stands_still_is_no_error() -> None:
    assert check(interval_s=30, since_save_s=0, since_check_s=0, steps=5) == check(
        interval_s=30, since_save_s=0, since_check_s=1, steps=0
    )


# --- damping


def followed(costs: list[float], *, wanted_of: float = 100.0) -> list[float]:
    """The interval after each of these saves; what is right is so many times the cost."""
    damped, found = Damped(), []
    for save_s in costs:
        cost_s = damped.cost_s(save_s)
        found.append(damped.followed_s(cost_s * wanted_of, cost_s, advised=True))
    return found


def test_one_slow_save_changes_nothing() -> None:
    assert followed([2.0] * 5 + [60.0] + [2.0] * 5) == [200.0] * 11


def test_a_lasting_change_is_followed_within_a_few_saves_and_never_overshot() -> None:
    for before, after in ((2.0, 20.0), (20.0, 2.0)):
        found = followed([before] * 6 + [after] * 12)
        low, high = sorted((before * 100, after * 100))
        assert all(low <= one <= high for one in found)
        moves = found[6:]
        assert moves == sorted(moves, reverse=after < before)
        assert abs(math.log(moves[-1] / (after * 100))) <= math.log(1.11)
        assert all(abs(math.log(one / other)) <= math.log(10) / 2 + 1e-9 for one, other in pairwise(found))


def test_what_goes_up_and_down_is_left_where_it_is() -> None:
    damped = Damped()
    damped.cost_s(1.0)
    assert damped.followed_s(300.0, 1.0, advised=True) == 300.0
    for wanted_s in (320.0, 285.0, 329.0, 275.0):
        damped.cost_s(1.0)
        assert damped.followed_s(wanted_s, 1.0, advised=True) == 300.0


def test_it_moves_once_for_each_save_and_at_once_for_another_source() -> None:
    damped = Damped()
    assert damped.followed_s(3600.0, None, advised=False) == 3600.0
    assert damped.followed_s(900.0, None, advised=False) == 3600.0, "a check point between saves"
    assert damped.followed_s(120.0, None, advised=True) == 120.0, "the monitor knows more"
    damped.cost_s(1.0)
    damped.followed_s(120.0, 1.0, advised=True)
    damped.cost_s(1.0)
    assert damped.followed_s(480.0, 1.0, advised=True) == pytest.approx(240.0)
    assert damped.followed_s(480.0, 1.0, advised=True) == pytest.approx(240.0)
    assert damped.followed_s(3600.0, 1.0, advised=False) == 3600.0, "and when it falls silent"


@given(st.lists(st.tuples(st.floats(1e-3, 1e5), st.floats(30.0, 1e6), st.booleans()), min_size=1, max_size=30))
def test_saving_never_takes_more_than_its_part_and_the_interval_stays_within_what_was_asked(
    saves: list[tuple[float, float, bool]],
) -> None:
    damped, asked = Damped(), []
    for save_s, best_s, advised in saves:
        cost_s = damped.cost_s(save_s)
        asked.append(auto_s(cost_s, None, 64, best_s))
        found = damped.followed_s(asked[-1], cost_s, advised=advised)
        assert cost_s / found <= 0.1 + 1e-9
        assert min(asked) * (1 - 1e-9) <= found <= max(*asked, cost_s * 10) * (1 + 1e-9)
