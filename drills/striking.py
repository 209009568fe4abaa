"""Signals to a worker at a moment that is drawn, and yet outside of its optimizer's update."""

import os
import signal
import time
from pathlib import Path

from rankpulse.core import slot

TRIES = 200
PAUSE_S = 0.007  # no divisor of what a step takes


def stop_outside_an_update(pid: int, run_dir: Path) -> bool:
    """SIGSTOP for a worker that is not within an update: one that was is let go on, and stopped again a moment later.

    An update that is broken off leaves a state that nobody may save: that is a matter of tests. False: it was stopped
    within one all the same, or its slot says nothing.
    """
    for _ in range(TRIES):
        os.kill(pid, signal.SIGSTOP)
        if not _stopped(pid):
            return False
        if updating(pid, run_dir) is False:
            return True
        os.kill(pid, signal.SIGCONT)
        time.sleep(PAUSE_S)
    os.kill(pid, signal.SIGSTOP)
    return False


def updating(pid: int, run_dir: Path) -> bool | None:
    """Whether the worker's slot says that it is within an update; None where none can be read."""
    for path in run_dir.glob(f"u*/{pid}-*.slot"):
        try:
            return slot.read(path.read_bytes).updating
        except (OSError, slot.SlotRefused):
            continue
    return None


def _stopped(pid: int, timeout_s: float = 2.0) -> bool:
    """Wait until the kernel has stopped all of its threads; False when it is gone."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        try:
            states = {_state(path) for path in Path(f"/proc/{pid}/task").glob("*/stat")}
        except OSError:
            return False
        if states <= {"T"}:
            return bool(states)
        time.sleep(0.0005)
    return True


def _state(path: Path) -> str:
    return path.read_text(encoding="utf-8").rpartition(")")[2].split()[0]
