"""The node's run directory: made like /tmp, for jobs of all users; one agent per directory."""

import fcntl
import os
import stat
from typing import Final

_LOCK: Final = "agent.lock"
_LIKE_TMP: Final = 0o1777  # everybody may add, nobody may touch another's


class BadRunDir(Exception):
    """The directory cannot serve; the text says why and what to do."""


class Locked(Exception):
    """Another agent serves this directory."""


def prepare(path: str) -> None:
    """Make the run directory (mode 1777) if it is missing. Raises `BadRunDir`.

    Where a job came first and made it, root takes it over: its owner could swap the agent's files. For the same
    reason root serves no other directory that belongs to a user.
    """
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        try:
            os.mkdir(path)
            os.chmod(path, _LIKE_TMP)
        except FileExistsError:
            pass
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            _secure(fd, path)
        finally:
            os.close(fd)
    except OSError as error:
        raise BadRunDir(f"run directory {path}: {error.strerror}; set agent.run_dir to a directory of ours") from error


def _secure(fd: int, path: str) -> None:
    """As root: nobody else owns the directory, and nobody can rename what others put there."""
    info = os.fstat(fd)
    mode = stat.S_IMODE(info.st_mode)
    if os.geteuid() != 0:
        return
    if info.st_uid != 0:
        if mode != _LIKE_TMP:
            raise BadRunDir(
                f"run directory {path} belongs to user {info.st_uid}, who could swap the agent's files: "
                "remove it, or set agent.run_dir to a directory of ours"
            )
        os.fchown(fd, 0, 0)
        os.fchmod(fd, _LIKE_TMP)
    elif mode & (stat.S_IWGRP | stat.S_IWOTH) and not mode & stat.S_ISVTX:
        os.fchmod(fd, mode | stat.S_ISVTX)


def lock(directory: str) -> int:
    """Hold `<directory>/agent.lock` for as long as the returned descriptor is open. Raises `Locked` or `BadRunDir`."""
    path = os.path.join(directory, _LOCK)
    try:
        fd = _open_lock(path)
    except OSError as error:
        raise BadRunDir(
            f"{path}: {error.strerror}; it may belong to an agent of another user. "
            "Set RANKPULSE_DIR to another directory, for the agent and for the job alike"
        ) from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(fd, 32, 0).decode("ascii", "replace").strip()
        os.close(fd)
        raise Locked(
            f"another agent (pid {holder or 'unknown'}) serves {directory}: stop it, or give this one another run_dir"
        ) from error
    os.ftruncate(fd, 0)
    os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
    return fd


def _open_lock(path: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    if os.geteuid() == 0:
        try:
            if os.lstat(path).st_uid != 0:
                os.unlink(path)  # put there by a user, who could hold it for ever
        except FileNotFoundError:
            pass
    return os.open(path, flags, 0o644)


def holds(directory: str, lock_fd: int) -> bool:
    """Whether the lock still lies in the directory: if not, another agent could take the directory, too."""
    try:
        return os.path.samestat(os.lstat(os.path.join(directory, _LOCK)), os.fstat(lock_fd))
    except OSError:
        return False
