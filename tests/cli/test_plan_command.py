"""`rankpulse plan`: its figures, its JSON, its plot, and what it says where nothing sensible was asked."""

import json
import re

import pytest
from typer.testing import CliRunner, Result

from rankpulse.cli.main import app


def plan(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["plan", *arguments])


def test_the_example_that_circulates() -> None:
    found = plan("--gpus", "256", "--days", "7", "--chance", "1%/30d", "--save-s", "180")
    assert found.exit_code == 0
    lines = {line.split("  ")[0]: line for line in found.stdout.splitlines()}
    assert "45.1%" in lines["at least one failure"]
    assert "5.3 h, at 180 s a save" in lines["save every"]
    assert {"half as often", "as said", "twice as often"} <= set(lines)


def test_json_is_json_and_has_what_was_asked() -> None:
    found = json.loads(plan("--gpus", "256", "--days", "14", "--chance", "2%/30d", "--json").stdout)
    assert found["chance"] == pytest.approx(0.9105, abs=1e-4)
    assert (found["gpus"], found["days"], found["save_s"]) == (256, 14.0, 60.0)


def test_without_failures_json_has_no_infinity() -> None:
    assert json.loads(plan("--gpus", "1", "--afr", "0", "--json").stdout)["mtbf_h"] is None


@pytest.mark.parametrize("afr", ["9%", "0.09", ".09", "9e-2", " 9 % "])
def test_a_rate_is_read_as_people_write_it(afr: str) -> None:
    found = json.loads(plan("--gpus", "8760", "--days", "1", "--afr", afr, "--json").stdout)
    assert found["mtbf_h"] == pytest.approx(1 / 0.09)


def test_what_was_counted_comes_with_its_interval() -> None:
    found = plan("--gpus", "256", "--days", "7", "--seen", "12/96000", "--save-s", "180")
    rows = {line.split("  ")[0]: line.split() for line in found.stdout.splitlines() if line.strip()}
    assert "5.4" in rows["as seen"]
    assert "3.1" in rows["at least, 90 %"]
    assert "8.7" in rows["at most, 90 %"]


def test_where_none_failed_the_plan_is_for_the_most_that_this_allows() -> None:
    found = json.loads(plan("--gpus", "1", "--seen", "0/1000", "--json").stdout)
    assert found["mtbf_h"] == pytest.approx(333.8, abs=0.1)
    assert "the most that this allows" in found["rate"]


def test_without_a_rate_it_says_whose_it_takes() -> None:
    assert "8,000 GPU hours, as Meta published" in plan("--gpus", "64").stdout


def test_the_plot_marks_the_best_interval() -> None:
    pytest.importorskip("plotext")
    found = plan("--gpus", "512", "--mtbf-h", "3", "--save-s", "300", "--plot")
    assert "% of the time lost" in found.stdout
    assert "39 min" in found.stdout.splitlines()[-2]
    assert "\x1b" not in found.stdout


def test_a_run_that_hardly_gets_anything_done_is_told_so() -> None:
    assert "hardly anything would get done" in plan("--gpus", "1000000", "--save-s", "600").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--afr", "often"), "for example --afr 9%"),
        (("--afr", "-1%"), "for example --afr 9%"),
        (("--afr", "9" * 400), "is no GPU"),
        (("--chance", "1%"), "for example --chance 1%/30d"),
        (("--chance", "100%/3d"), "below 100 %"),
        (("--chance", "1%/0d"), "for example --chance 1%/30d"),
        (("--chance", "1%/30d", "--afr", "1%"), "--afr and --chance say the same thing"),
        (("--seen", "12"), "--seen 12/96000"),
        (("--seen", "1/0"), "--seen 12/96000"),
        (("--mtbf-h", "nan"), "hours above 0"),
        (("--mtbf-h", "1e-300"), "from 0.001 to 1e+07"),
        (("--mtbf-h", "1e300"), "from 0.001 to 1e+07"),
        (("--days", "inf"), "--days inf: give a number above 0"),
        (("--save-s", "0"), "--save-s 0: give a number above 0"),
        (("--restart-s", "-1"), "--restart-s -1: give a number from 0"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_next_step(arguments: tuple[str, ...], said: str) -> None:
    found = plan("--gpus", "8", *arguments)
    assert found.exit_code == 2
    assert said in found.output
    assert "bug" not in found.output


EXTREMES = [
    ("--gpus", "10000000", "--afr", "1000", "--save-s", "9e6", "--restart-s", "9e6"),
    ("--gpus", "1", "--mtbf-h", "0.001"),
    ("--gpus", "1", "--mtbf-h", "1e7", "--save-s", "1e-9"),
    ("--gpus", "10000000", "--chance", "99.9999999%/0.001d"),
    ("--gpus", "1", "--days", "1e-9", "--afr", "1e-99"),
]


@pytest.mark.parametrize("arguments", EXTREMES)
@pytest.mark.parametrize("form", [(), ("--json",), ("--plot",)])
def test_extremes_are_answered(arguments: tuple[str, ...], form: tuple[str, ...]) -> None:
    found = plan(*arguments, *form)
    assert found.exit_code == 0, found.output
    assert "nan" not in found.stdout.lower()
    assert form == ("--json",) or not re.search(r"\d[\d,]{30}", found.stdout), "a figure of a hundred digits"
