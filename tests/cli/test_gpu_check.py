"""`deploy/gpu_check.sh`, over a library of ours: on a real GPU it asks the same."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from gpu_bench import library

SCRIPT = Path(__file__).parents[2] / "deploy" / "gpu_check.sh"
pytestmark = pytest.mark.live


def check(*args: str) -> tuple[int, str]:
    env = {**os.environ, "PYTHON": sys.executable, "RANKPULSE": f"{sys.executable} -m rankpulse.cli.entry"}
    done = subprocess.run(["bash", str(SCRIPT), *args], env=env, capture_output=True, text=True, timeout=120)
    return done.returncode, done.stdout + done.stderr


def test_it_says_what_each_gpu_tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tmp_path, monkeypatch).say({"field:3": 1, "1.error": 15})
    _, said = check()
    assert "00000000:0f:00.0 NVIDIA Stub: a poll takes" in said
    assert "ecc_corrected_volatile=1" in said
    assert "ecc_l1_corrected_volatile (3)" in said


def test_a_machine_whose_driver_does_not_start_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library(tmp_path, monkeypatch).say({"error:nvmlInitWithFlags": 999})
    code, said = check()
    assert code == 1
    assert "BAD: the process that asks NVML" in said


def test_it_says_how_it_is_used() -> None:
    code, said = check("--help")
    assert (code, "--provoke" in said) == (0, True)
    assert check("--what")[0] == 2
