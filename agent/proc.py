"""What the kernel says about processes: /proc and pidfds. Nothing here believes a number that a job wrote."""

import contextlib
import fcntl
import os
import select
import signal
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

# struct pidfd_info, version 0: mask, cgroupid, pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid, exit
_INFO: Final = struct.Struct("QQ12i")
_PIDFD_GET_INFO: Final = 0xC040FF0B
_INFO_EXIT: Final = 1 << 3
_WRAPPERS_MAX = 16
_ENVIRON_MAX = 1 << 20
_PIECE: Final = 1 << 16


class Stat(NamedTuple):
    """Of /proc/PID/stat. `start`: clock ticks since boot. `exit_status`: wait status, meaningful in state Z only."""

    pid: int
    state: str
    ppid: int
    start: int
    exit_status: int


class Status(NamedTuple):
    """Of /proc/PID/status. `uids`: real, effective, saved. `inner_pid`: its pid in its own pid namespace."""

    uids: tuple[int, int, int]
    inner_pid: int


class Exit(NamedTuple):
    """How a process ended: `code` or `signal`, or neither when nobody could tell."""

    code: int | None = None
    signal: int | None = None


def _read(path: str) -> str | None:
    """Without a file object: the agent does this some thirty times a second, and `open` costs three times as much."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = list(iter(lambda: os.read(fd, _PIECE), b""))
        finally:
            os.close(fd)
    except OSError:
        return None
    return b"".join(parts).decode(errors="replace")


def stat(pid: int) -> Stat | None:
    """None when there is no such process (or /proc hides it)."""
    content = _read(f"/proc/{pid}/stat")
    return parse_stat(content) if content else None


def parse_stat(content: str) -> Stat | None:
    """The name in parentheses may hold anything, also parentheses and newlines: fields are counted after the last."""
    head, _, tail = content.rpartition(")")
    fields = tail.split()
    try:
        return Stat(int(head.split()[0]), fields[0], int(fields[1]), int(fields[19]), int(fields[-1]))
    except (ValueError, IndexError):
        return None


def cpu_ticks(pid: int, start: int) -> int | None:
    """Clock ticks of CPU that all threads of that very process have used; None when it is gone."""
    content = _read(f"/proc/{pid}/stat")
    fields = content.rpartition(")")[2].split() if content else []
    try:
        return int(fields[11]) + int(fields[12]) if int(fields[19]) == start else None
    except (ValueError, IndexError):
        return None


def waited(pid: int) -> tuple[int, int] | None:
    """For how long its main thread has run, and has waited for a CPU, in nanoseconds; None where nobody tells."""
    fields = (_read(f"/proc/{pid}/schedstat") or "").split()
    try:
        return int(fields[0]), int(fields[1])
    except (ValueError, IndexError):
        return None


def launcher_of(parent: int) -> Stat | None:
    """The process that launched a worker: its parent, or the first ancestor that was not given a rank itself.

    A wrapper between torchrun and the worker (a shell script, `uv run`, a profiler) has torchrun's environment for it.
    """
    for _ in range(_WRAPPERS_MAX):
        found = stat(parent) if parent else None
        if found is None or not _has_rank(parent):
            return found
        parent = found.ppid
    return None


def _has_rank(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return any(entry.startswith(b"TORCHELASTIC_RUN_ID=") for entry in file.read(_ENVIRON_MAX).split(b"\0"))
    except OSError:
        return False  # not ours to look at: then the parent is the best that is known


def status(pid: int) -> Status | None:
    content = _read(f"/proc/{pid}/status")
    if content is None:
        return None
    fields = dict(line.split(":", 1) for line in content.splitlines() if ":" in line)
    try:
        real, effective, saved = (int(word) for word in fields["Uid"].split()[:3])
        inner = int(fields["NSpid"].split()[-1]) if "NSpid" in fields else pid
    except (KeyError, ValueError, IndexError):
        return None
    return Status((real, effective, saved), inner)


def maps_file(pid: int, dev: int, inode: int, name: str) -> bool:
    """Whether the process maps that very file. Raises PermissionError when we may not look.

    Some file systems (overlay, btrfs) show another device in maps than in stat; there the name must agree as well.
    """
    wanted = f"{os.major(dev):02x}:{os.minor(dev):02x}"
    try:
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
            for line in file:
                fields = line.split(None, 5)
                if len(fields) == 6 and fields[4] == str(inode):
                    path = fields[5].rstrip("\n").removesuffix(" (deleted)")
                    if fields[3] == wanted or path.rpartition("/")[2] == name:
                        return True
    except PermissionError:
        raise
    except OSError:
        return False
    return False


def pids() -> Iterator[int]:
    with os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdigit():
                yield int(entry.name)


def inner_pids(inner_pid: int, uid: int) -> Iterator[int]:
    """Processes of `uid` in other pid namespaces that are called `inner_pid` there."""
    for pid in pids():
        if pid != inner_pid:
            found = status(pid)
            if found and found.inner_pid == inner_pid and found.uids[0] == uid:
                yield pid


def sees_all_processes() -> bool:
    """Whether we are in the first pid namespace: only there "no such process" means that there is none anywhere."""
    try:
        return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"
    except OSError:
        return False


def started_at(start: int) -> float:
    """UTC seconds at which a process with that start time was made (for comparison with file times of this host)."""
    content = _read("/proc/stat") or ""
    for line in content.splitlines():
        if line.startswith("btime "):
            return int(line.split()[1]) + start / os.sysconf("SC_CLK_TCK")
    return 0.0


def pidfd_problem() -> str:
    """Why processes cannot be watched on this kernel, or ""."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return f"processes cannot be watched, no worker will be seen ({error.strerror}): Linux 5.3 or later is needed"
    return ""


def has_exited(pidfd: int) -> bool:
    poller = select.poll()
    poller.register(pidfd, select.POLLIN)
    return bool(poller.poll(0))


def kill(pidfd: int) -> bool:
    """SIGKILL through the pidfd; False when the process is gone or is not ours to kill."""
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except OSError:
        return False
    return True


def exit_of(pidfd: int, pid: int, start: int) -> Exit:
    """How the process behind `pidfd` ended. It need not be our child.

    While it is a zombie /proc tells, afterwards the pidfd does (Linux 6.15 and later); it may be reaped in between.
    """
    wait_status = _reaped_status(pidfd)
    if wait_status is None:
        wait_status = _zombie_status(pid, start)
    if wait_status is None:
        wait_status = _reaped_status(pidfd)
    return decode(wait_status)


def decode(wait_status: int | None) -> Exit:
    if wait_status is None:
        return Exit()
    with contextlib.suppress(ValueError):
        code = os.waitstatus_to_exitcode(wait_status)
        return Exit(code=code) if code >= 0 else Exit(signal=-code)
    return Exit()


def _reaped_status(pidfd: int) -> int | None:
    buffer = bytearray(_INFO.pack(_INFO_EXIT, *[0] * 13))
    try:
        fcntl.ioctl(pidfd, _PIDFD_GET_INFO, buffer)
    except OSError:
        return None
    mask, *_rest, wait_status = _INFO.unpack(buffer)
    return int(wait_status) if mask & _INFO_EXIT else None


def _zombie_status(pid: int, start: int) -> int | None:
    seen, of = stat(pid), status(pid)
    if seen is None or of is None or seen.start != start or seen.state not in "ZX":
        return None
    may_see = os.geteuid() in (0, of.uids[0])  # to others the kernel shows 0, which would read as a good end
    return seen.exit_status if may_see else None
