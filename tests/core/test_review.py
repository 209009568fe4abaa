"""What a review says of a stretch of the ledger: figures that can be worked out by hand."""

import math

import pytest

from rankpulse.core.estimators import mtbf
from rankpulse.core.ledger import day_of
from rankpulse.core.records import LedgerDay, LedgerEntry, NodeShare, RunShare
from rankpulse.core.review import Review, Told, middle, review
from rankpulse.core.review_days import COLUMNS_MAX, DAY_S, midnight

T0 = 1_900_000_000.0 // DAY_S * DAY_S
NODES = 16


def day(number: int, gpus: int = 8, at: float = 0.0, **change: object) -> LedgerDay:
    """A full day of 16 nodes with one run on all of them."""
    begin = T0 + number * DAY_S
    fields: dict = {
        "day": day_of(begin), "origin": "o", "at": at or begin + DAY_S, "node_s": NODES * DAY_S,
        "gpu_s": NODES * gpus * DAY_S, "run_s": DAY_S,
        "nodes": {f"n{i:02}": NodeShare(DAY_S, gpus * DAY_S) for i in range(NODES)},
        "runs": {"u1": RunShare("llama", DAY_S, NODES * gpus * DAY_S, 864.0, 0.0)},
    }  # fmt: skip
    return LedgerDay(**{**fields, **change})


def failure(days: float, node: str = "n03", gpu: int = 2, **change: object) -> LedgerEntry:
    """After so many days of `T0`."""
    at = T0 + days * DAY_S
    fields: dict = {
        "id": f"i{round(days * 1e4)}", "klass": "gpu_fault", "component": "gpu", "blame": "machine",
        "outcome": "recovered", "action": "restart", "opened_at": at, "closed_at": at + 60, "fault_at": at,
        "run_uid": "u1", "run_id": "llama", "ranks": 128, "nodes": (node,), "node": node, "gpu": gpu,
        "time_to_detect_s": 4.0, "time_to_recover_s": 100.0, "lost_s": {"stop": 360.0, "going_on": 9.0},
    }  # fmt: skip
    return LedgerEntry(**{**fields, **change})


def week(*entries: LedgerEntry, **told: object) -> Review:
    return review(Told(entries, [day(number) for number in range(7)], **told), T0, T0 + 7 * DAY_S - 1)


def test_figures_of_a_week() -> None:
    found = week(failure(1.5), failure(2.5, "n05"), failure(4.0, "n07", klass="oom", component="program"))
    assert (found.node_h, found.gpu_h, found.run_h) == (16 * 168, 128 * 168, 168)
    assert found.all.between == mtbf(3, 128 * 168)
    assert [(one.name, one.failures) for one in found.components] == [("gpu", 2), ("program", 1)]
    lost = {one.cause: (round(one.run_h, 6), round(one.gpu_h, 3)) for one in found.lost}
    assert lost == {"checkpoint": (1.68, 215.04), "stop": (0.3, 38.4)}, "what went on lost nothing"
    (run,) = found.runs
    assert (run.label, run.of.failures) == ("llama", 3)
    assert run.of.ettr() == pytest.approx(1 - 1080 / (7 * DAY_S))
    assert run.of.goodput() == pytest.approx(1 - (1080 + 7 * 864) / (7 * DAY_S))
    assert found.ettr == pytest.approx(run.of.ettr())
    assert (middle(found.detect_s), middle(found.recover_s), middle(())) == (4.0, 100.0, None)


def test_what_is_no_failure_of_a_run_is_none_here() -> None:
    found = week(failure(1, outcome="passed"), failure(2, klass="drain"), failure(3, run_uid=""))
    assert (found.all.failures, found.classes, found.nodes) == (0, (), ())
    assert found.all.between is not None
    assert (found.all.between.best, found.all.between.exact.high) == (math.inf, math.inf)
    assert len(found.incidents) == 3, "they are told of all the same"


def test_an_empty_ledger_says_nothing_and_breaks_nothing() -> None:
    for begin in (0.0, T0):
        found = review(Told((), ()), begin, T0 + DAY_S)
        assert (found.all.between, found.trend, found.ettr, found.before) == (None, None, None, None)
    only_entries = review(Told([failure(0.2)], ()), 0.0, T0 + DAY_S)
    assert (only_entries.all.failures, only_entries.all.between, only_entries.begin) == (1, None, T0 + 0.2 * DAY_S)


def test_a_node_and_a_gpu_that_fail_again_and_again_are_lemons_and_programs_blame_none() -> None:
    bad = [failure(number * 0.7) for number in range(1, 7)]
    noise = [failure(0.3 + number, f"n{number + 8:02}", gpu=0) for number in range(4)]
    found = week(*bad, *noise, *(failure(0.1 * n, "n09", component="program") for n in range(1, 9)))
    assert [(one.name, one.failures) for one in found.nodes if one.lemon] == [("n03", 6)]
    assert [(one.name, one.failures) for one in found.gpus if one.lemon] == [("n03/2", 6)]
    assert {one.name for one in found.nodes} == {"n03", "n08", "n09", "n10", "n11"}
    assert found.gpus[0].expected == pytest.approx(10 / 128), "of 128 GPUs that ran equally long"


def test_the_trend_is_on_the_axis_of_what_ran() -> None:
    """Twice as many GPUs from the fourth day on, and twice as many failures a day: a constant rate."""
    days = [day(number, 8 if number < 4 else 16) for number in range(8)]
    even = [failure(0.25 + 0.5 * n) for n in range(8)] + [failure(4.125 + 0.25 * n) for n in range(16)]
    found = review(Told(even, days), T0, T0 + 8 * DAY_S - 1)
    assert found.trend is not None
    assert found.trend.verdict == "constant"
    assert abs(found.trend.laplace) < 0.1
    late = review(Told([failure(7.9 * ((n + 1) / 41) ** 0.4) for n in range(40)], days), T0, T0 + 8 * DAY_S - 1)
    assert late.trend is not None
    assert late.trend.verdict == "rising"


def test_failures_of_today_lie_within_what_has_run_of_today() -> None:
    late = [failure(0.2 + 0.01 * n) for n in range(5)]

    def laplace(today: LedgerDay) -> float:
        found = review(Told(late, [today]), T0, today.at)
        assert found.trend is not None
        return found.trend.laplace

    assert laplace(day(0, at=T0 + DAY_S / 4)) > 2, "all came in the last part of what has run"
    assert laplace(day(0)) < -2, "of the whole day, in its first"


def test_a_week_is_held_against_the_one_before() -> None:
    days = [day(number) for number in range(14)]
    told = Told([failure(1), failure(2), failure(8)], days)
    found = review(told, T0 + 7 * DAY_S, T0 + 14 * DAY_S - 1)
    assert found.before is not None
    assert (found.all.failures, found.before.failures) == (1, 2)
    assert found.before.between == mtbf(2, 128 * 168)
    assert review(told, 0.0, T0 + 14 * DAY_S - 1).before is None
    assert review(told, T0, T0 + 14 * DAY_S - 1).before is None


def test_whole_days_count_so_that_failures_and_running_time_are_of_the_same_time() -> None:
    told = Told([failure(1.1), failure(0.9)], [day(0), day(1)])
    found = review(told, T0 + 1.5 * DAY_S, T0 + 2 * DAY_S - 1)
    assert (found.begin, found.gpu_h, found.all.failures) == (T0 + DAY_S, 128 * 24, 1)


def test_open_incidents_cost_already_and_are_no_failures_yet() -> None:
    still = failure(6.9, closed_at=0.0, outcome="", ranks=0)
    found = week(failure(1), open_=[still], summaries={still.id: "GPU 2 fell off the bus"})
    assert found.all.failures == 1
    assert {one.entry.id: one.summary for one in found.incidents}[still.id] == "GPU 2 fell off the bus"
    assert found.runs[0].of.lost_s["stop"] == 720.0


def test_days_that_only_sums_hold_are_missed() -> None:
    assert week(let_go=day_of(T0 + DAY_S)).let_go == day_of(T0 + DAY_S)
    assert week(let_go=day_of(T0 - DAY_S)).let_go == ""


def test_columns_are_never_many_and_hold_every_failure() -> None:
    days = [day(number) for number in range(400)]
    entries = [failure(number * 2.3) for number in range(100)]
    found = review(Told(entries, days), 0.0, T0 + 400 * DAY_S - 1)
    assert len(found.columns) <= COLUMNS_MAX
    assert sum(sum(one.counts.values()) for one in found.columns) == 100
    assert [one.day for one in week(failure(1)).columns] == [day_of(T0 + n * DAY_S) for n in range(7)]


def test_days_that_no_calendar_has_break_nothing() -> None:
    assert (midnight("2026-99-99"), midnight("1970-01-02"), midnight(DAY_S + 5)) == (0.0, DAY_S, DAY_S)
    odd = LedgerDay(day="9999-99-99", origin="o", at=T0, gpu_s=1e13, nodes={"n": NodeShare(1e-9, 1e13)})
    assert review(Told([failure(1, "n")], [odd, day(1)]), 0.0, T0 + 9 * DAY_S).all.failures == 1
    assert review(Told([failure(1, "n")], [odd]), 0.0, 1e15).all.failures == 1
