"""What `rankpulse bench checkpoint` makes of its rows, and that its processes really save and end."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rankpulse.bench.checkpoint import cached, medians
from rankpulse.bench.checkpoint_tables import show
from rankpulse.bench.crew import CrewFailed, crew

CLI = (sys.executable, "-m", "rankpulse.cli.main", "bench", "checkpoint")


def row(way: str, seconds: float, peak: int = 5, state: str = "s") -> dict[str, Any]:
    return {"state": state, "way": way, "turn": 1, "seconds": seconds, "bytes": 9, "peak_rank0": peak, "peak_others": 1}


def test_medians_and_ratios_are_within_one_state() -> None:
    rows = [row("b", 8.0), row("a", 1.0), row("a", 2.0), row("a", 9.0), row("b", 8.0), row("b", 7.0)]
    rows += [row("a", 4.0, state="t"), row("b", 4.0, state="t", peak=-1)]
    found = medians(rows, ["a", "b"], "a")
    assert list(found["s"]) == ["a", "b"]
    assert found["s"]["a"] == {
        "seconds": 2.0,
        "least": 1.0,
        "most": 9.0,
        "written": 9,
        "peak_rank0": 5,
        "peak_others": 1,
        "ratio": 1.0,
    }
    assert (found["s"]["b"]["ratio"], found["t"]["b"]["ratio"]) == (4.0, 1.0)
    assert found["t"]["b"]["peak_rank0"] is None


def test_what_a_save_adds_is_counted_from_the_stretch_without_one_in_the_same_turn() -> None:
    def stretch(kind: str, turn: int, *seconds: float, busy: int = 0) -> dict[str, Any]:
        return {"kind": kind, "turn": turn, "seconds": list(seconds), "busy": busy}

    figures = pytest.importorskip("rankpulse.bench.beside", reason="needs torch", exc_type=ImportError).figures
    kinds = ("no save", "beside the training", "training waits")
    rows = [stretch(kinds[0], turn, 1.0, 1.0) for turn in (1, 2, 3)]
    rows += [
        stretch(kinds[1], 1, 1.2, 1.0, busy=1),
        stretch(kinds[1], 2, 1.2, 9.0),
        stretch(kinds[1], 3, 1.2, 1.0, busy=2),
    ]
    rows += [stretch(kinds[2], turn, 3.0, 1.0) for turn in (1, 2, 3)]
    found = figures(rows)
    assert found["no save"]["added"] == 0.0
    assert found["beside the training"] == pytest.approx(
        {"step_s": 1.2, "first_s": 1.2, "added_s": 0.2, "added": 0.1, "least": 0.1, "most": 4.1, "busy": 1.0}
    ), "the nine seconds were something else's"
    assert (found["training waits"]["added"], found["training waits"]["added_s"]) == (1.0, 2.0)


@pytest.mark.parametrize("args", [("--ranks", "0"), ("--megabytes", "-1"), ("--repeat", "0"), ("--directory", "/nope")])
def test_bad_arguments_are_named(args: tuple[str, ...]) -> None:
    done = subprocess.run([*CLI, *args], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert args[0] in done.stderr


def test_without_torch_it_says_so() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; sys.argv = ['rankpulse', 'bench', 'checkpoint']\n"
        "from rankpulse.cli.main import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "needs torch" in done.stderr


def test_a_crew_tells_in_order_and_ends() -> None:
    def work(number: int, tell: Callable[[dict[str, Any]], None]) -> None:
        if number == 0:
            for value in range(100):
                tell({"value": value, "padding": "x" * 1000})

    assert [told["value"] for told in crew(3, work)] == list(range(100))


def test_a_crew_of_which_one_fails_is_ended(capfd: pytest.CaptureFixture[str]) -> None:
    pids: list[int] = []

    def work(number: int, tell: Callable[[dict[str, Any]], None]) -> None:
        if number == 0:
            tell({"pid": os.getpid()})
        if number == 1:
            raise RuntimeError("the disk is gone")
        signal.pause()

    def told() -> None:
        for said in crew(3, work):
            pids.append(said["pid"])

    with pytest.raises(CrewFailed, match=r"process 1 .* exit code 1"):
        told()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert "the disk is gone" in capfd.readouterr().err


def test_how_much_of_a_file_is_cached(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100_000)
    with open(path, "rb") as file:
        assert cached(file.fileno()) == 1.0
    path.write_bytes(b"")
    with open(path, "rb") as file:
        assert cached(file.fileno()) == 0.0


@pytest.mark.live
def test_a_small_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = [*CLI, "--ranks", "2", "--megabytes", "4", "--repeat", "1", "--directory", str(tmp_path), "--json"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert set(report["median"]) == {"replicated", "split"}
    for ways in report["median"].values():
        assert len(ways) == 6
        assert ways[report["ours"]]["ratio"] == 1.0
        assert all(figures["seconds"] > 0 for figures in ways.values())
        assert all(figures["written"] >= report["state_bytes"] for figures in ways.values())
    gathered = report["median"]["split"]["gather, then our writer"]["peak_rank0"]
    sharded = report["median"]["split"][report["ours"]]["peak_rank0"]
    assert gathered is None or gathered > report["state_bytes"] / 2 > sharded
    assert all(figures["gb_s"] > 0 for figures in report["verify"]["warm"].values())
    assert (report["verify"]["cold"] is None) == bool(report["verify"]["why_not_cold"])
    beside = report["beside"]["kinds"]
    assert list(beside) == ["no save", "beside the training", "training waits"]
    assert beside["no save"]["added"] == 0.0
    assert all(figures["step_s"] > 0 for figures in beside.values())
    assert list(tmp_path.iterdir()) == []
    show(report)
    out = capsys.readouterr().out
    assert "rank 0 memory" in out
    assert "steps around a save of 4 MiB" in out
