"""A few forked processes that do one thing together, the first of which tells: for benchmarks on one machine."""

import ctypes
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final

_PR_SET_PDEATHSIG: Final = 1
Tell = Callable[[dict[str, Any]], None]
Work = Callable[[int, Tell], None]


class CrewFailed(Exception):
    """A member ended before its work was done."""


def crew(size: int, work: Work) -> Iterator[dict[str, Any]]:
    """What member 0 tells, as it tells it, while `size` forked processes run `work(member, tell)`.

    What is told travels as JSON. Raises `CrewFailed` once a member has ended badly; no member outlives this.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    members = [_member(number, work, reading, writing) for number in range(size)]
    os.close(writing)
    try:
        yield from _told(reading, members)
    finally:
        os.close(reading)
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _member(number: int, work: Work, reading: int, writing: int) -> int:
    """Fork; in the child this never returns."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        _die_with_parent()
        os.close(reading)
        work(number, lambda value: _write(writing, json.dumps(value).encode() + b"\n"))
        code = 0
    except KeyboardInterrupt:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _die_with_parent() -> None:
    """Where the system can: a benchmark that was killed leaves nobody behind."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _told(reading: int, members: list[int]) -> Iterator[dict[str, Any]]:
    waiting, rest = set(members), b""
    while waiting:
        ready, _, _ = select.select([reading], [], [], 0.1)
        if ready and (data := os.read(reading, 65536)):
            *lines, rest = (rest + data).split(b"\n")
            yield from map(json.loads, lines)
            continue
        for pid in list(waiting):
            if _ended(pid, members.index(pid)):
                waiting.remove(pid)


def _ended(pid: int, number: int) -> bool:
    """Whether it has ended well. It is only looked at: its number stays taken until the crew is done."""
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return False
    if found.si_code != os.CLD_EXITED or found.si_status:
        how = f"exit code {found.si_status}" if found.si_code == os.CLD_EXITED else f"signal {found.si_status}"
        raise CrewFailed(f"process {number} of the benchmark ended with {how}")
    return True
