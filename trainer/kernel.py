"""What the worker holder asks of Linux and Python does not offer: prctl and signalfd."""

import contextlib
import ctypes
import os
import signal
import struct
from collections.abc import Iterable
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_SFD_FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
_INFO = struct.Struct("<IiiI")  # of struct signalfd_siginfo: signal, errno, code, pid of the sender
_INFO_SIZE = 128
_SIGSET_SIZE = 128

_libc = ctypes.CDLL(None, use_errno=True)


class Arrived(NamedTuple):
    """A signal and the pid of its sender, 0 when that is the kernel or in another pid namespace."""

    number: int
    sender: int


def die_with_parent(number: int) -> None:
    """Get this signal when the parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


def leave_no_core() -> None:
    """No core dump of this process, also where a program collects them."""
    _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def signal_fd(numbers: Iterable[int]) -> int:
    """A descriptor that is readable when one of these signals waits; they must be blocked. Raises OSError."""
    chosen = ctypes.create_string_buffer(_SIGSET_SIZE)
    _libc.sigemptyset(chosen)
    for number in numbers:
        _libc.sigaddset(chosen, number)
    fd = _libc.signalfd(-1, chosen, _SFD_FLAGS)
    if fd < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(fd)


def read_signals(fd: int) -> list[Arrived]:
    """The signals that wait, without waiting."""
    found: list[Arrived] = []
    while True:
        try:
            data = os.read(fd, _INFO_SIZE)
        except BlockingIOError:
            return found
        number, _errno, _code, sender = _INFO.unpack_from(data)
        found.append(Arrived(number, sender))


def reached_the_group(sender: int) -> bool:
    """Whether a signal of this sender went to our whole process group: torchrun stops its workers so.

    It is the parent of the leader of our session, because it gives each worker a session of its own.
    """
    try:
        with open(f"/proc/{os.getsid(0)}/stat", encoding="utf-8", errors="replace") as file:
            return sender != 0 and int(file.read().rpartition(")")[2].split()[1]) == sender
    except (OSError, ValueError, IndexError):
        return False


def end_like(wait_status: int) -> None:
    """End this process as another one did: by the same signal, or with the same code."""
    code = os.waitstatus_to_exitcode(wait_status)
    if code >= 0:
        os._exit(code)
    leave_no_core()
    number = -code
    with contextlib.suppress(OSError, ValueError):  # SIGKILL has no other disposition; some numbers Python denies
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    os.kill(os.getpid(), number)
    os._exit(128 + number)  # not reached, unless the kernel shields us: we are process 1 of a container
