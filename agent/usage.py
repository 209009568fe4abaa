"""The kernel's word on one worker: its state, where it waits, and whether it is at work between two looks."""

import os
from typing import Final, NamedTuple

from rankpulse.agent import proc
from rankpulse.agent.watch import Worker
from rankpulse.core.evidence import Row

LOOK_S: Final = 0.4  # between the two looks at a process
_BUSY_SHARE: Final = 0.15  # of one core: our own question costs less, and so do threads that wait for Python's lock
_RAN_SHARE: Final = 0.02
_STARVED_SHARE: Final = 0.6
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")


class Cpu(NamedTuple):
    """`ticks`: of all its threads; `waited`: of its main thread, how long it ran and how long it waited for a CPU."""

    ticks: int
    waited: tuple[int, int] | None


def row(worker: Worker, before: Cpu | None, seconds: float) -> Row:
    seen, after = proc.stat(worker.pid), cpu(worker)
    known = seen is not None and seen.start == worker.start
    moving = None if before is None or after is None else _moving(before, after, seconds)
    state = seen.state if seen and known else "X"
    return Row(worker.who.rank, worker.pid, worker.start, state, _wchan(worker.pid) if known else "", moving, "")


def _moving(before: Cpu, after: Cpu, seconds: float) -> bool:
    if is_busy(after.ticks - before.ticks, seconds):
        return True
    if before.waited is None or after.waited is None:
        return False
    return is_starved(after.waited[0] - before.waited[0], after.waited[1] - before.waited[1], seconds)


def is_starved(ran_ns: int, waited_ns: int, seconds: float) -> bool:
    """Whether its main thread would be at work if it were let: on a CPU, or waiting for one, nearly all the time. One
    that looks for Python's lock again and again may wait for a CPU as long, but hardly runs."""
    whole = seconds * 1e9
    return ran_ns >= _RAN_SHARE * whole and ran_ns + waited_ns >= _STARVED_SHARE * whole


def is_busy(ticks: int, seconds: float) -> bool:
    """Whether so much CPU in so much time is work of its own. One that waits uses a little, too: a full recorder takes
    tens of milliseconds to tell, and each thread that waits for Python's lock looks for it 200 times a second."""
    return ticks > busy_ticks(seconds)


def busy_ticks(seconds: float) -> float:
    return _BUSY_SHARE * seconds * _TICKS_PER_S


def cpu(worker: Worker) -> Cpu | None:
    """What it has used, None when it is gone."""
    ticks = proc.cpu_ticks(worker.pid, worker.start)
    return None if ticks is None else Cpu(ticks, proc.waited(worker.pid))


def _wchan(pid: int) -> str:
    """The kernel function its main thread waits in; "" when it runs, or when that is hidden from us."""
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii", errors="replace") as file:
            name = file.read(64).strip()
    except OSError:
        return ""
    return "" if name == "0" else name
