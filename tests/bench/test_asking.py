"""The figures of `rankpulse bench asking`: what asking has cost, held against stretches in which nobody asked."""

from itertools import accumulate

import pytest

from rankpulse.bench import asking_tables
from rankpulse.bench.asking_figures import Stretch, compared, quantile, steps


def ends(*lengths: float) -> list[float]:
    return list(accumulate(lengths, initial=0.0))


def test_only_steps_that_lie_in_a_stretch_as_a_whole_count() -> None:
    told = steps(ends(1.0, 1.0, 4.0, 1.0, 1.0), Stretch(1.5, 7.5, True))
    assert (told.many, told.mean, told.median) == (2, 2500.0, 2500.0)
    assert steps([], Stretch(0.0, 1.0, False)).many == 0


def test_the_place_of_a_value_in_their_order() -> None:
    assert quantile(range(1, 101), 0.99) == 100
    assert quantile([3.0], 0.5) == 3.0


def in_turns(quiet_s: float, asked_s: float, turns: int) -> tuple[list[Stretch], list[float]]:
    """Steps of these lengths, while nobody asks and while somebody does; 100 s each time."""
    lengths: list[float] = []
    for number in range(2 * turns + 1):
        each = asked_s if number % 2 else quiet_s
        lengths += [each] * round(100 / each)
    stretches = [Stretch(100.0 * i, 100.0 * (i + 1), i % 2 == 1) for i in range(2 * turns + 1)]
    return stretches, ends(*lengths)


def test_a_job_that_asking_slows_down_stands_out_of_the_noise() -> None:
    told = compared(*in_turns(1.0, 1.25, 4))
    assert told["asked"]["median"] == {"median": 1.25, "low": 1.25, "high": 1.25}
    assert told["noise"]["median"] == {"median": 1.0, "low": 1.0, "high": 1.0}
    assert (told["before"]["median"], told["during"]["median"], told["after"]["median"]) == (1000.0, 1250.0, 1000.0)


def test_a_machine_that_grows_slower_all_the_time_is_not_laid_on_asking() -> None:
    stretches = [Stretch(100.0 * i, 100.0 * (i + 1), i % 2 == 1) for i in range(9)]
    slower = ends(*(length for i in range(9) for length in [1 + 0.25 * i] * round(100 / (1 + 0.25 * i))))
    told = compared(stretches, slower)
    assert told["asked"]["median"]["median"] == pytest.approx(1.0, abs=0.05)
    assert told["noise"]["median"]["median"] == pytest.approx(1.0, abs=0.05)


def test_steps_that_a_question_fell_into_are_held_against_the_others_of_their_stretch() -> None:
    lengths = [1.0] * 100 + [1.0, 1.0, 2.0, 2.0] * 17 + [1.0] * 98
    stretches = [Stretch(0.0, 100.0, False), Stretch(100.0, 202.0, True), Stretch(202.0, 300.0, False)]
    questions = [(102.5 + 6 * i, 105.5 + 6 * i) for i in range(17)]
    told = compared(stretches, ends(*lengths), questions)["meanwhile"]
    assert (told["mean"]["median"], told["median"]["median"]) == (2.0, 2.0)
    assert compared(stretches, ends(*lengths))["meanwhile"] == {"mean": {}, "median": {}}


def test_the_report_says_how_many_were_asked_and_what_they_told() -> None:
    case = {"case": "one is stopped", "questions": 2, "unanswered": 0, "seconds": [0.5, 0.7]}
    report = {
        "disturbance": {"busy": compared(*in_turns(1.0, 1.0, 2))},
        "cannot": [case | {"ranks": [4, 4], "positions": [3, 3], "stacks": [2, 3]}],
        **{"turns": 2, "seconds": 100.0, "every_s": 3.0, "date": "2026-01-02", "cpus": 2, "load": [0.5, 0.5, 0.5]},
        **{"machine": "Linux", "python": "3", "torch": "2"},
    }
    told = asking_tables.text(report).splitlines()
    assert "| one is stopped | 2 | 2 | 0.60 | 0.70 | 4 | 3 | 2 to 3 |" in told
    assert "| busy | asked | 1.000 (1.00 to 1.00) | 1.000 (1.00 to 1.00) | 1.000 (1.00 to 1.00) |" in told
