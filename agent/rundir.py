"""The node's run directory: made like /tmp, for jobs of all users; one agent per directory."""

import contextlib
import fcntl
import os
import stat


class BadRunDir(Exception):
    """The directory cannot serve; the text says why and what to do."""


class Locked(Exception):
    """Another agent serves this directory."""


def default() -> str:
    return os.environ.get("RANKPULSE_DIR") or "/dev/shm/rankpulse"  # noqa: S108 (made and checked like /tmp itself)


def prepare(path: str) -> None:
    """Make the run directory (mode 1777) if it is missing. Raises `BadRunDir`.

    Where a job came first and made it, root takes it over: its owner could otherwise swap the agent's files.
    """
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        try:
            os.mkdir(path)
            os.chmod(path, 0o1777)  # noqa: S103 (as /tmp: everybody may add, nobody may touch another's)
        except FileExistsError:
            pass
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError as error:
        raise BadRunDir(f"run directory {path}: {error.strerror}; set agent.run_dir to a directory of ours") from error
    try:
        info = os.fstat(fd)
        if os.geteuid() == 0 and info.st_uid != 0 and stat.S_IMODE(info.st_mode) == 0o1777:
            os.fchown(fd, 0, 0)
    finally:
        os.close(fd)


def lock(directory: str) -> int:
    """Hold `<directory>/agent.lock` for as long as the returned descriptor is open. Raises `Locked` or `BadRunDir`."""
    path = os.path.join(directory, "agent.lock")
    try:
        fd = _open_lock(path)
    except OSError as error:
        raise BadRunDir(f"{path}: {error.strerror}; remove it, or set agent.run_dir to another directory") from error
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


def private(path: str) -> str:
    """Make a directory for us alone (mode 0700); returns why it cannot serve, or ""."""
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        info = os.lstat(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o022:
        return f"{path} is not a directory of ours alone: remove it, or set agent.spool_dir to another"
    return ""
