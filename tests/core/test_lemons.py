"""Lemons: named where they are, and hardly ever where there are none."""

import random

import pytest

from rankpulse.core.lemons import Quiet, benjamini_hochberg, scores


def poisson(mean: float, chance: random.Random) -> int:
    count, at = 0, chance.expovariate(1.0)
    while at < mean:
        count, at = count + 1, at + chance.expovariate(1.0)
    return count


def test_three_of_63_nodes_that_make_half_of_the_failures_are_named() -> None:
    seen = {f"n{n}": (1 if n % 3 else 0, 1000.0) for n in range(60)} | {f"bad{n}": (13, 1000.0) for n in range(3)}
    found = scores(seen)
    assert {score.name for score in found if score.lemon} == {"bad0", "bad1", "bad2"}
    assert found[0].ratio > 10
    assert found[0].bounds.low > 5


def test_in_a_fleet_of_equals_hardly_one_fleet_in_twenty_has_a_lemon() -> None:
    chance = random.Random(3)
    fleets = [{f"n{n}": (poisson(2.0, chance), 1000.0) for n in range(100)} for _ in range(200)]
    assert sum(any(score.lemon for score in scores(fleet)) for fleet in fleets) / 200 <= 0.05


def test_of_those_named_few_are_named_wrongly() -> None:
    """Ten of a hundred fail ten times as often: the share of false names, over many fleets."""
    chance, false, found = random.Random(4), 0.0, 0
    for _ in range(100):
        fleet = {f"n{n}": (poisson(10.0 if n < 10 else 1.0, chance), 1000.0) for n in range(100)}
        named = [int(score.name[1:]) for score in scores(fleet) if score.lemon]
        false += sum(n >= 10 for n in named) / max(len(named), 1) / 100
        found += sum(n < 10 for n in named)
    assert false <= 0.05
    assert found >= 600


def test_who_ran_longer_may_fail_more_often() -> None:
    seen = {f"n{n}": (1, 100.0) for n in range(20)} | {"old": (20, 2000.0)}
    assert not any(score.lemon for score in scores(seen))


def test_two_failures_make_no_lemon_and_the_reason_is_told() -> None:
    seen = {f"n{n}": (0, 1000.0) for n in range(2000)} | {"new": (2, 10.0)}
    worst = scores(seen)[0]
    assert worst.name == "new"
    assert worst.q < 0.01
    assert not worst.lemon
    assert "none is called a lemon" in worst.why


def test_a_little_worse_than_the_others_may_be_no_matter() -> None:
    seen = {f"n{n}": (100, 1000.0) for n in range(10)} | {"bad": (160, 1000.0)}
    assert scores(seen)[0].lemon
    assert not scores(seen, times=2.0)[0].lemon


@pytest.mark.parametrize("seen", [{}, {"a": (0, 0.0)}, {"a": (3, 10.0)}, {"a": (0, 1.0), "b": (0, 1.0)}])
def test_fleets_that_tell_nothing_have_no_lemons(seen: dict[str, tuple[int, float]]) -> None:
    assert not any(score.lemon for score in scores(seen))


def test_q_values_by_hand() -> None:
    assert benjamini_hochberg([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.16 / 3, 0.16 / 3, 0.5])


def test_tests_agree_with_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    found = {score.name: score for score in scores({"a": (7, 30.0), "b": (9, 100.0), "c": (4, 70.0)})}
    assert found["a"].p == pytest.approx(stats.binomtest(7, 20, 0.15, alternative="greater").pvalue, rel=1e-9)
    qs = stats.false_discovery_control([found[name].p for name in "abc"])
    assert [found[name].q for name in "abc"] == pytest.approx(list(qs), rel=1e-9)


def test_those_that_never_failed_count_the_same_one_by_one_and_together() -> None:
    failed = {"a": (5, 900.0), "b": (1, 1000.0), "c": (2, 400.0)}
    well = {f"n{n}": (0, 500.0 + n) for n in range(300)}
    together = scores(failed, quiet=Quiet(len(well), sum(hours for _, hours in well.values())))
    for one, other in zip(scores({**failed, **well}), together, strict=False):
        assert (one.name, one.lemon) == (other.name, other.lemon)
        assert (one.p, one.q, one.ratio, one.expected) == pytest.approx((other.p, other.q, other.ratio, other.expected))
