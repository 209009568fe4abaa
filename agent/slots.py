"""Finding progress slots and the processes behind them.

A slot is a file that any user may write. It speaks for a process only when the kernel says that a process of the
file's owner maps that very file; the pid in the name is a hint where to look first. Scanning blocks (a process in
trouble can hold up /proc), so it runs in a thread of its own and returns values.
"""

import contextlib
import os
import re
import stat as modes
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from rankpulse.agent import locate, proc
from rankpulse.agent.locate import Dead, Process, SlotFile, Unproven
from rankpulse.core import slot

_DIR = re.compile(r"u\d{1,10}")
_NAME = re.compile(r"(\d{1,10})-[0-9a-f]{8}\.slot")
_PLAIN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAX_PER_DIR: Final = 1024  # one user cannot make the agent slow for all
_KEEP_REFUSED_S: Final = 3600.0
_SWEEP_EVERY_S: Final = 30.0
_LOOK_ANYHOW_S: Final = 2.0  # should a file system not tell the times of its directories
_TICK_NS: Final = 100_000_000  # longer than the kernel's clock for file times stands still


class Adopted(NamedTuple):
    """A slot with the living process that maps it. Whoever receives it owns both file descriptors."""

    file: SlotFile
    process: Process
    slot: slot.Slot


class Departed(NamedTuple):
    """A slot whose process is gone."""

    file: SlotFile
    slot: slot.Slot
    dead: Dead


class Refused(NamedTuple):
    """Not a slot, or nobody's: `reason` says why and what to do. Told once."""

    path: str
    reason: str


Finding: TypeAlias = Adopted | Departed | Refused
_Key: TypeAlias = tuple[str, str, int]


@dataclass(slots=True)
class _Seen:
    first_s: float
    settled: bool = False
    refused: bool = False
    swept_s: float = 0.0


class Scanner:
    """Looks at the run directory; `scan` returns what is new since the last call. Not for two threads at once."""

    def __init__(self, run_dir: str, *, grace_s: float = 2.0, sees_all: bool | None = None) -> None:
        self._run_dir = run_dir
        self._grace_s = grace_s  # a slot is made in several steps: what is refused is looked at again for this long
        self._seen: dict[_Key, _Seen] = {}
        self._sees_all = proc.sees_all_processes() if sees_all is None else sees_all
        self._marks: dict[str, int] | None = None  # when names were last added to or taken from each directory
        self._again_s = 0.0

    def quiet(self) -> bool:
        """Whether a scan would find nothing: no name came or went, and none waits for another look. It opens nothing
        and asks nothing of any process, so it may be called where a scan would hold things up."""
        return self._marks is not None and time.monotonic() < self._again_s and self._marks == self._times()

    def _times(self) -> dict[str, int] | None:
        """None where a name might still come in at the same time."""
        before_ns = time.time_ns() - _TICK_NS
        try:
            with os.scandir(self._run_dir) as users:
                ours = [entry for entry in users if _DIR.fullmatch(entry.name)]
                found = {entry.name: entry.stat(follow_symlinks=False).st_mtime_ns for entry in ours}
        except OSError:
            return None
        return found if all(changed_ns < before_ns for changed_ns in found.values()) else None

    def scan(self) -> list[Finding]:
        """Raises OSError when the run directory itself cannot be read."""
        marks = self._times()
        found = self._scan(time.monotonic())
        settled = all(seen.settled and not seen.refused for seen in self._seen.values())
        self._marks, self._again_s = marks if settled else None, time.monotonic() + _LOOK_ANYHOW_S
        return found

    def _scan(self, now: float) -> list[Finding]:
        found, present = [], set()
        for directory, name, inode, dir_fd in self._entries():
            key = (directory, name, inode)
            present.add(key)
            seen = self._seen.setdefault(key, _Seen(now))
            if not seen.settled:
                finding = self._look(directory, name, dir_fd)
                if isinstance(finding, Refused):
                    if now - seen.first_s < self._grace_s:
                        continue
                    seen.refused = True
                seen.settled = True
                found.append(finding)
            elif seen.refused and now - seen.swept_s > _SWEEP_EVERY_S:
                seen.swept_s = now
                self._sweep(directory, name, dir_fd)
        self._seen = {key: seen for key, seen in self._seen.items() if key in present}
        return found

    def _entries(self) -> Iterator[tuple[str, str, int, int]]:
        """(directory, name, inode, descriptor of the directory) of everything called *.slot."""
        with os.scandir(self._run_dir) as users:
            directories = sorted(entry.name for entry in users if _DIR.fullmatch(entry.name))
        for directory in directories:
            dir_fd = _open_dir(self._run_dir, directory)
            if dir_fd is None:
                continue
            try:
                with os.scandir(dir_fd) as entries:
                    slots = (entry for entry in entries if entry.name.endswith(".slot"))
                    for entry in islice(slots, _MAX_PER_DIR):
                        yield directory, entry.name, entry.inode(), dir_fd
            finally:
                os.close(dir_fd)

    def _look(self, directory: str, name: str, dir_fd: int) -> Finding:
        path = os.path.join(self._run_dir, directory, name)
        opened = _open_slot(directory, name, dir_fd)
        if isinstance(opened, str):
            return Refused(path, opened)
        finding = self._judge(path, opened)
        if not isinstance(finding, Adopted):
            opened.close()
        return finding

    def _judge(self, path: str, file: SlotFile) -> Finding:
        try:
            content = slot.read(file.read)
        except slot.SlotRefused as error:
            return Refused(path, str(error))
        verdict = locate.locate(file, self._sees_all)
        if isinstance(verdict, Unproven):
            return Refused(path, verdict.reason)
        return Adopted(file, verdict, content) if isinstance(verdict, Process) else Departed(file, content, verdict)

    def _sweep(self, directory: str, name: str, dir_fd: int) -> None:
        """Remove what was refused an hour ago when the process it names is surely dead."""
        with contextlib.suppress(OSError):
            info = os.stat(name, dir_fd=dir_fd, follow_symlinks=False)
            hint = _NAME.fullmatch(name)
            old = time.time() - info.st_mtime > _KEEP_REFUSED_S
            if not (old and hint and modes.S_ISREG(info.st_mode)):
                return
            fd = os.open(name, _PLAIN, dir_fd=dir_fd)
            try:
                if locate.surely_dead(int(hint[1]), fd, self._sees_all):
                    os.unlink(name, dir_fd=dir_fd)
            finally:
                os.close(fd)


def remove(run_dir: str, file: SlotFile) -> None:
    """Remove a slot that has been reported, and its process's server socket; never anything else that took its name."""
    dir_fd = _open_dir(run_dir, file.directory)
    if dir_fd is None:
        return
    try:
        with contextlib.suppress(OSError):
            info = os.stat(file.name, dir_fd=dir_fd, follow_symlinks=False)
            if (info.st_dev, info.st_ino) == (file.dev, file.inode):
                os.unlink(file.name, dir_fd=dir_fd)
        with contextlib.suppress(OSError):
            socket = file.name.removesuffix(".slot") + ".sock"
            info = os.stat(socket, dir_fd=dir_fd, follow_symlinks=False)
            if modes.S_ISSOCK(info.st_mode) and info.st_uid == file.uid:
                os.unlink(socket, dir_fd=dir_fd)
    finally:
        os.close(dir_fd)


def _open_dir(run_dir: str, directory: str) -> int | None:
    """A user's directory, never through a link; None when it is not ours to read (only root sees all users)."""
    try:
        return os.open(os.path.join(run_dir, directory), os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None


def _open_slot(directory: str, name: str, dir_fd: int) -> SlotFile | str:
    """The opened slot, or why it is refused."""
    hint = _NAME.fullmatch(name)
    if not hint:
        return "not a slot's name (<pid>-<8 hex digits>.slot): remove it"
    try:
        fd = os.open(name, _PLAIN, dir_fd=dir_fd)
    except OSError as error:
        return f"cannot be opened as a plain file ({error.strerror}): remove it"
    info, owner = os.fstat(fd), os.fstat(dir_fd).st_uid
    reason = ""
    if not modes.S_ISREG(info.st_mode):
        reason = "not a plain file: remove it"
    elif info.st_size != slot.SLOT_SIZE:
        reason = f"{info.st_size} bytes, a slot has {slot.SLOT_SIZE}: remove it"
    elif info.st_uid != owner:
        reason = f"belongs to user {info.st_uid}, its directory to user {owner}: forged or misplaced, remove it"
    if reason:
        os.close(fd)
        return reason
    return SlotFile(directory, name, fd, info.st_dev, info.st_ino, info.st_uid, int(hint[1]), info.st_mtime)
