"""What `rankpulse bench recovery` makes of its rows, and that a job really goes through it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rankpulse.bench.contestants import FtLauncher, Torchrun
from rankpulse.bench.recovery import Row, _medians

CLI = (sys.executable, "-m", "rankpulse.cli.main", "bench", "recovery")


def test_what_never_came_back_counts_as_infinitely_late() -> None:
    rows = [Row("x", "hang", 1.0, 5.0), Row("x", "hang", None, None), Row("x", "hang", 2.0, 9.0)]
    assert _medians(rows)["x"]["hang"] == {"noticed_s": 2.0, "first_step_s": 9.0, "turns": 3, "recovered": 2}
    assert _medians([*rows, Row("x", "hang")])["x"]["hang"]["first_step_s"] is None


def test_the_others_do_not_have_our_help(tmp_path: Path) -> None:
    job = Torchrun().job(tmp_path)
    assert "--bare" in job.launchers[0].argv
    assert job.launchers[0].env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "0"


def test_an_absent_contestant_says_why() -> None:
    missing = FtLauncher().missing()
    assert missing == "" or "nvidia-resiliency-ext" in missing


@pytest.mark.parametrize("args", [("--only", "nobody"), ("--repeat", "0"), ("--limit", "-1"), ("--limit", "nan")])
def test_bad_arguments_are_named(args: tuple[str, ...]) -> None:
    done = subprocess.run([*CLI, *args], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "torchrun, ft_launcher, rankpulse" in done.stderr or "must be positive" in done.stderr


@pytest.mark.drill
@pytest.mark.timeout(400)
def test_rankpulse_comes_back_from_both_faults() -> None:
    argv = [*CLI, "--only", "rankpulse", "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=380, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    figures = json.loads(done.stdout)["median"]["rankpulse"]
    assert {fault: figures[fault]["recovered"] for fault in figures} == {"hang": 1, "crash": 1}
