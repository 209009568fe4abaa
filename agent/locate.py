"""Which process a slot file speaks for, on the kernel's word alone."""

import contextlib
import fcntl
import os
from typing import NamedTuple, TypeAlias

from rankpulse.agent import proc
from rankpulse.core import slot


class SlotFile(NamedTuple):
    """An open slot. `hint`: the pid its name claims, in its writer's pid namespace; `made_at`: UTC seconds."""

    directory: str
    name: str
    fd: int
    dev: int
    inode: int
    uid: int
    hint: int
    made_at: float

    def read(self) -> bytes:
        """The bytes now. A copy by the kernel, not a mapping: a truncated file cannot kill the agent."""
        try:
            return os.pread(self.fd, slot.SLOT_SIZE, 0)
        except OSError:
            return b""

    def close(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self.fd)


class Process(NamedTuple):
    """A living process that maps the slot; the receiver owns `pidfd`."""

    pid: int
    start: int
    parent: int
    pidfd: int


class Dead(NamedTuple):
    """The process is gone. `start` is 0 and `exit` empty when there is nothing left of it."""

    pid: int
    start: int = 0
    exit: proc.Exit = proc.Exit()


class Unproven(NamedTuple):
    """Nobody can be shown to write this slot. `process`: the process with the hinted pid, if there is one."""

    reason: str
    stat: proc.Stat | None = None


Verdict: TypeAlias = Process | Dead | Unproven


def surely_dead(pid: int, fd: int, sees_all: bool) -> bool:
    """No process `pid`, and none hidden in another pid namespace: its writer holds a lock on the slot while it lives.

    `sees_all`: no process is hidden from us.
    """
    return not _alive(pid) and (sees_all or _unlocked(fd))


def _unlocked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        return False
    return True


def _alive(pid: int) -> bool:
    try:
        os.close(os.pidfd_open(pid))
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def locate(file: SlotFile, sees_all: bool) -> Verdict:
    """The process behind `file`: the hinted one, else one that bears the hinted pid in a pid namespace of its own.

    `sees_all`: no process of this machine is hidden from us.
    """
    verdict = _examine(file.hint, file)
    if isinstance(verdict, Process):
        return verdict
    for pid in proc.inner_pids(file.hint, file.uid):
        inner = _examine(pid, file)
        if isinstance(inner, Process):
            return inner
    if isinstance(verdict, Dead) and not verdict.start and not surely_dead(file.hint, file.fd, sees_all):
        return Unproven(
            f"process {file.hint} cannot be seen from here: give the agent the host's pid namespace (hostPID)"
        )
    if isinstance(verdict, Unproven) and verdict.stat and proc.started_at(verdict.stat.start) > file.made_at + 1:
        return Dead(file.hint)  # its pid was given to a younger process
    return verdict


def _examine(pid: int, file: SlotFile) -> Verdict:
    """Whether `pid` is the slot's writer. The pidfd is opened first: what is read while it lives is about it."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return Dead(pid)
    except OSError as error:
        return Unproven(f"process {pid} cannot be watched ({error.strerror}): is the kernel older than 5.3?")
    verdict = _verify(pid, pidfd, file)
    if not isinstance(verdict, Process):
        os.close(pidfd)
    return verdict


def _verify(pid: int, pidfd: int, file: SlotFile) -> Verdict:
    seen, owner = proc.stat(pid), proc.status(pid)
    if seen is None or owner is None:
        return Dead(pid) if proc.has_exited(pidfd) else Unproven(f"/proc hides process {pid}: run the agent as root")
    if owner.uids != (file.uid,) * 3:
        return Unproven(f"forged or stale: process {pid} belongs to user {owner.uids[0]}, not {file.uid}", seen)
    if proc.has_exited(pidfd):
        return Dead(pid, seen.start, proc.exit_of(pidfd, pid, seen.start))
    try:
        mapped = proc.maps_file(pid, file.dev, file.inode, file.name)
    except PermissionError:
        return Unproven(f"may not look at process {pid} of user {file.uid}: run the agent as root", seen)
    if not mapped:
        return Unproven(f"forged or stale: process {pid} does not map this file", seen)
    return Dead(pid, seen.start) if proc.has_exited(pidfd) else Process(pid, seen.start, seen.ppid, pidfd)
