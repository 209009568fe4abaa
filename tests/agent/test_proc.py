"""What the kernel says about processes, read right."""

import mmap
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support import eventually_sync

from rankpulse.agent import proc
from rankpulse.agent.facts import state_class
from rankpulse.agent.host import exit_codes


def test_a_process_name_may_hold_anything() -> None:
    tail = " ".join(["S", "7", *["0"] * 17, "4242", *["0"] * 29, "256"])
    assert proc.parse_stat(f"12 (a) b (c\n) {tail}") == proc.Stat(12, "S", 7, 4242, 256)
    assert proc.parse_stat("12 (cut") is None
    assert proc.parse_stat("") is None


def test_ourselves() -> None:
    seen, of = proc.stat(os.getpid()), proc.status(os.getpid())
    assert seen
    assert of
    assert (seen.pid, seen.ppid) == (os.getpid(), os.getppid())
    assert of.uids == os.getresuid()
    assert proc.stat(2**22 + 1) is None


def test_who_maps_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.slot"
    path.write_bytes(bytes(4096))
    info = path.stat()
    assert not proc.maps_file(os.getpid(), info.st_dev, info.st_ino, path.name)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        assert proc.maps_file(os.getpid(), info.st_dev, info.st_ino, path.name)
        assert not proc.maps_file(os.getpid(), info.st_dev, info.st_ino + 1, path.name)


@pytest.mark.parametrize(
    ("source", "expected"), [("exit 0", (0, None)), ("exit 3", (3, None)), ("kill -9 $$", (None, 9))]
)
@pytest.mark.parametrize("reaped", [False, True])
def test_how_a_process_ended(source: str, expected: tuple[int | None, int | None], reaped: bool) -> None:
    process = subprocess.Popen(["sh", "-c", f"read x; {source}"], stdin=subprocess.PIPE)
    pidfd, seen = os.pidfd_open(process.pid), proc.stat(process.pid)
    assert seen
    process.communicate(b"\n") if reaped else _let_go(process, pidfd)
    if reaped and exit_codes(os.uname().release):
        expected = (None, None)
    assert proc.exit_of(pidfd, process.pid, seen.start) == proc.Exit(*expected)
    os.close(pidfd)
    process.wait()


def _let_go(process: "subprocess.Popen[bytes]", pidfd: int) -> None:
    assert process.stdin
    process.stdin.close()
    eventually_sync(lambda: proc.has_exited(pidfd), 10, "the end of the process")


def test_a_pid_that_was_given_to_another_process_tells_nothing() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    pidfd = os.pidfd_open(process.pid)
    eventually_sync(lambda: proc.has_exited(pidfd), 10, "the end of the process")
    assert proc._zombie_status(process.pid, 1) is None
    process.wait()
    os.close(pidfd)


def test_killing_what_is_gone() -> None:
    process = subprocess.Popen(["sleep", "60"])
    pidfd = os.pidfd_open(process.pid)
    assert proc.kill(pidfd)
    assert process.wait() == -signal.SIGKILL
    assert not proc.kill(pidfd)
    os.close(pidfd)


@pytest.mark.parametrize(
    ("said", "state", "waiting_s", "expected"),
    [
        ("run", "R", 0, "run"), ("run", "S", 0, "run"), ("run", "T", 0, "T"), ("T", "S", 0, "run"),
        ("run", "t", 0, "t"), ("run", "D", 1, "run"), ("run", "D", 6, "D"), ("D", "D", 0, "D"), ("run", "Z", 0, "Z"),
    ],
)  # fmt: skip
def test_which_states_are_told(said: str, state: str, waiting_s: float, expected: str) -> None:
    assert state_class(said, state, waiting_s) == expected


def test_which_kernels_tell_exit_codes() -> None:
    assert exit_codes("6.15.0-1-generic") == exit_codes("7.0") == ""
    assert "6.1.0-9" in exit_codes("6.1.0-9")
