"""A job of one process in a run directory of its own, and what its slots say."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rankpulse.core import slot

LAUNCHER_MARKS = ("TORCH", "RANK", "SLURM", "MASTER", "WORLD", "LOCAL_", "GROUP_", "NODE_RANK")


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Job:
    """Starts Python code that may use rankpulse.trainer, without any launcher's environment of ours."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.environ = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHER_MARKS)}
        self.environ["RANKPULSE_DIR"] = str(base)
        self._running: list[subprocess.Popen[str]] = []

    def start(self, code: str, *args: str, **environ: str) -> "subprocess.Popen[str]":
        started = subprocess.Popen(
            [sys.executable, "-c", code, *args],
            env={**self.environ, **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._running.append(started)
        return started

    def run(self, code: str, *args: str, **environ: str) -> Done:
        started = self.start(code, *args, **environ)
        out, err = started.communicate(timeout=90)
        return Done(started.returncode, out, err)

    def paths(self, suffix: str = ".slot") -> list[Path]:
        return sorted(self.base.glob(f"u*/*{suffix}"))

    def slots(self) -> list[slot.Slot]:
        return [slot.read(path.read_bytes) for path in self.paths()]

    def slot(self) -> slot.Slot:
        (only,) = self.slots()
        return only

    def stop(self) -> None:
        for started in self._running:
            if started.poll() is None:
                started.kill()
            started.communicate()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    made = Job(tmp_path / "run")
    yield made
    made.stop()
