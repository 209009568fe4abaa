"""What a drill of the boards begins with: a ledger with a past, and GPUs that are well but for small things."""

import importlib.util
import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from rankpulse.core.ledger import day_of
from rankpulse.core.records import LedgerDay, LedgerEntry, NodeShare

DAYS, NODES, GPUS = 30, 20, 8
_BEGAN = time.time() // 86400 * 86400 - 60 * 86400.0
SOURCE = Path(__file__).parent / "agent" / "nvml_stub" / "nvml.c"


def _day(number: int) -> LedgerDay:
    nodes = {f"old-{node}": NodeShare(86400.0, GPUS * 86400.0) for node in range(NODES)}
    at = _BEGAN + (number + 1) * 86400 - 1
    node_s = NODES * 86400.0
    return LedgerDay(
        day=day_of(at), origin="past", at=at, node_s=node_s, gpu_s=GPUS * node_s, run_s=86400.0, nodes=nodes
    )


def _failure(number: int) -> LedgerEntry:
    """Two in three of one and the same node."""
    at = _BEGAN + (number + 0.5) * 2 * 86400
    node = "old-3" if number % 3 else f"old-{number}"
    return LedgerEntry(
        id=f"past-{number}", klass="gpu_fault", component="gpu", blame="machine", outcome="recovered",
        action="restart", opened_at=at, closed_at=at + 300, run_uid="past", run_id="past", ranks=160, node=node,
        nodes=(node,), gpu=number % 2, lost_s={"stop": 10.0, "start": 120.0},
    )  # fmt: skip


HISTORY = (*map(_day, range(DAYS)), *map(_failure, range(12)))

# as `nvml_stub/nvml.c` reads it: fields by NVML's numbers, of both GPUs unless one is named
_TOLD = {
    "gpus": 2, "field:3": 4, "field:4": 0, "field:5": 9, "field:6": 0, "field:31": 0, "field:74": 0, "field:82": 55,
    "field:91": 2, "field:94": 1, "field:161@0": 3, "field:161@1": 0, "field:165@0": 1, "field:165@1": 1,
    "field:269": 0, "field:270": 0, "field:271": 0, "fabric_state": 3, "fabric_clique": 0, "busy": 80,
    "1.banks_none": 1,
}  # fmt: skip


class Gpus:
    """A libnvidia-ml of the tests, for the process that is started with `env`."""

    def __init__(self, directory: Path) -> None:
        self._script, self._events = directory / "nvml.script", list[str]()
        before = os.environ.get("LD_LIBRARY_PATH")
        self.env = {
            "LD_LIBRARY_PATH": f"{directory}:{before}" if before else str(directory),
            "NVML_STUB": str(self._script),
        }
        self._write()

    def event(self, gpu: int, xid: int) -> None:
        """The driver tells of it."""
        self._events.append(f"event {len(self._events) + 1} {gpu} 8 {xid} {0xFFFFFFFF} {0xFFFFFFFF}")
        self._write()

    def _write(self) -> None:
        draft = self._script.with_suffix(".draft")
        draft.write_text("".join(f"{line}\n" for line in [*(f"{k} {v}" for k, v in _TOLD.items()), *self._events]))
        draft.rename(self._script)


def stub_of_gpus(directory: Path) -> Gpus:
    compiler = shutil.which("cc")
    if compiler is None or importlib.util.find_spec("pynvml") is None:
        assert "CI" not in os.environ, "CI must install gcc and nvidia-ml-py"
        pytest.skip("needs a C compiler (apt-get install gcc libc6-dev) and nvidia-ml-py (pip install -e '.[dev]')")
    library = directory / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(library), str(SOURCE)], check=True)
    return Gpus(directory)
