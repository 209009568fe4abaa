"""Processes of a drill: each with its own log, none outliving the drill."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

# Runs in the child, between fork and the program. Not a preexec_fn: that would run Python in a fork of a process whose
# other threads (grpc's) may hold any lock, and now and then hang there for ever.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit(1)
os.execvp(sys.argv[2], sys.argv[2:])
"""


def die_with_parent(argv: Sequence[str]) -> list[str]:
    """`argv`, wrapped so that the kernel kills it when this process ends, however it ends."""
    return [sys.executable, "-IS", "-c", _DIE_WITH_PARENT, str(os.getpid()), *argv]


class Child:
    """A subprocess in its own process group, logging to a file."""

    def __init__(self, name: str, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> None:
        self.name, self.argv, self.log = name, list(argv), log
        # what the caller exported for a cluster of theirs must not reach a drill
        own = {name: value for name, value in os.environ.items() if not name.startswith("RANKPULSE_")}
        self.env = {**own, **(env or {})}
        self.started_at = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Child":
        with open(self.log, "ab") as log:
            self.started_at = time.time()
            self._process = subprocess.Popen(
                die_with_parent(self.argv),
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def code(self) -> int | None:
        return self._process.poll() if self._process else None

    def signal(self, number: int, *, group: bool = False) -> None:
        """Send a signal to the process, or (as a terminal does) to its whole group."""
        if self.alive():
            os.killpg(self.pid, number) if group else os.kill(self.pid, number)

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended within `timeout_s`."""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def end(self, *, grace_s: float = 5.0) -> None:
        """SIGTERM, and SIGKILL for the whole group after the grace."""
        self.signal(signal.SIGTERM)
        if not self.wait(grace_s):
            self.signal(signal.SIGKILL, group=True)
            self.wait(5.0)

    def tail(self, lines: int = 15) -> str:
        """The end of its log, for error messages."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])


def rankpulse(*args: str) -> list[str]:
    """The argv of a rankpulse command, by this very interpreter."""
    return [sys.executable, "-m", "rankpulse.cli.main", *args]


def below(pid: int) -> list[int]:
    """The process and all that descend from it, the eldest first."""
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{name}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(name))
    found = [pid]
    for one in found:
        found += parents.get(one, [])
    return found
