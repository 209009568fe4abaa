"""What is handed out for Slurm: the look around a job drains a node for what is broken, and for nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankpulse.core.preflight import FAIL, OK, WARN, Finding

DEPLOY = Path(__file__).resolve().parents[2] / "deploy" / "slurm"
STORE = Finding("store", FAIL, "nothing listens", "start etcd")
RUN_DIR = Finding("run directory", FAIL, "No such file or directory", "mount it")
GPU = Finding("gpu", FAIL, 'GPU 3 "asks" for a reset', "reset it")


def look(folder: Path, text: str, code: int, **more: str) -> subprocess.CompletedProcess[str]:
    """The script with a rankpulse that says `text` and ends with `code`."""
    program = folder / "rankpulse"
    program.write_text(f"#!{sys.executable}\nimport sys, time\n{text}\nsys.exit({code})\n")
    program.chmod(0o755)
    environ = {**os.environ, "RANKPULSE": str(program), **more}
    return subprocess.run(
        [str(DEPLOY / "rankpulse-look.sh")], env=environ, capture_output=True, text=True, timeout=60, check=False
    )


def told(*findings: Finding) -> str:
    """As `rankpulse preflight --json` prints them."""
    return f"print({json.dumps(json.dumps([one._asdict() for one in findings], indent=2))})"


@pytest.mark.parametrize("check", ["gpu", "checkpoint directory", "collective"])
def test_what_is_broken_drains_the_node(tmp_path: Path, check: str) -> None:
    done = look(tmp_path, told(Finding("clock", OK, "fine", ""), STORE, GPU._replace(check=check)), 1)
    assert done.returncode == 1
    assert done.stderr.startswith(f"rankpulse: {check}: GPU 3 ")
    assert "nothing listens" not in done.stderr


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (told(Finding("gpu", OK, "fine", "")), 0),
        (told(Finding("gpu", WARN, "drain it some day", ""), STORE, RUN_DIR), 1),
        (told(GPU), 2),
        (told(GPU), 70),
        ("print('Traceback')", 1),
        ("", 1),
        ("time.sleep(600)", 1),
    ],
)
def test_nothing_else_does(tmp_path: Path, text: str, code: int) -> None:
    assert look(tmp_path, text, code, RANKPULSE_LOOK_S="3").returncode == 0


def test_nor_a_rankpulse_that_is_not_there(tmp_path: Path) -> None:
    assert look(tmp_path, "", 1, RANKPULSE=str(tmp_path / "none")).returncode == 0


def test_the_batch_script_is_one(tmp_path: Path) -> None:
    done = subprocess.run(["bash", "-n", str(DEPLOY / "train.sbatch")], capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
