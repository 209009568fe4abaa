"""Where slots lie: `<run dir>/u<uid>/<pid>-<8 hex>.slot`, and the files there.

The run directory is for all users, like /tmp; `u<uid>` is for one. Everything below it is reached through one open
directory, so that nobody can put another in its place in the meantime.
"""

import errno
import fcntl
import mmap
import os
import re
import stat
import time
from collections.abc import Mapping

from rankpulse.core import slot

DEFAULT_DIR = "/dev/shm/rankpulse"  # noqa: S108 (shared memory is the point; what it may hold is checked)
SWEEP_AFTER_S = 3600.0
SWEEP_MAX = 1024
_NAME = re.compile(r"([0-9]{1,10})-[0-9a-f]{8}\.(slot|sock)")


class Unsafe(OSError):
    """The directory is not ours alone; the text says what to do."""


def run_dir(environ: Mapping[str, str]) -> str:
    return os.path.abspath(environ.get("RANKPULSE_DIR") or DEFAULT_DIR)


def own_dir(base: str, uid: int) -> tuple[int, str]:
    """`<base>/u<uid>`, made if missing: an open descriptor and its path. Raises OSError, `Unsafe` among them."""
    _make_base(base)
    path = f"{base}/u{uid}"
    if not os.path.lexists(path):
        _make(path, 0o700)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise Unsafe(f"{path} is not a directory: remove it") from None
        raise
    found = os.fstat(fd)
    if found.st_uid != uid or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(fd)
        raise Unsafe(f"{path} can be written by others: remove it, or chmod 700 it if it is yours")
    return fd, path


def _make_base(base: str) -> None:
    if os.path.isdir(base):
        return
    os.makedirs(os.path.dirname(base), exist_ok=True)
    if _make(base, 0o755):
        os.chmod(base, 0o1777)  # noqa: S103 (like /tmp: in it each user has a directory of his own)


def _make(path: str, mode: int) -> bool:
    try:
        os.mkdir(path, mode)
    except FileExistsError:  # another process was quicker
        return False
    return True


def create(dir_fd: int, name: str) -> mmap.mmap:
    """A new slot that nobody takes for one yet: `publish` makes it one. Raises OSError.

    Its page is written here, so that a full file system says so now and not by a SIGBUS later. The lock lives as
    long as any process maps the slot, in whatever pid namespace: it keeps the slot from being swept.
    """
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=dir_fd)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.write(fd, bytes(slot.SLOT_SIZE)) != slot.SLOT_SIZE:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        shared = mmap.mmap(fd, slot.SLOT_SIZE)
    except (OSError, ValueError):
        os.unlink(name, dir_fd=dir_fd)
        raise
    finally:
        os.close(fd)
    return shared


def publish(shared: "mmap.mmap | bytearray", identity: bytes) -> None:
    """Identity first, the head last: from here on it is a slot."""
    shared[slot.IDENTITY_AT : slot.IDENTITY_AT + len(identity)] = identity
    head = slot.head()
    shared[: len(head)] = head


def sweep(dir_fd: int) -> int:
    """Remove what dead processes left more than an hour ago, where no agent does; returns how many. Never raises."""
    removed = 0
    try:
        names = os.listdir(dir_fd)[:SWEEP_MAX]
    except OSError:
        return 0
    for name in names:
        try:
            found = _NAME.fullmatch(name)
            if found and not _alive(int(found[1])) and _age_s(dir_fd, name) > SWEEP_AFTER_S and _idle(dir_fd, name):
                os.unlink(name, dir_fd=dir_fd)
                removed += 1
        except OSError:
            continue
    return removed


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass  # it is another user's: alive
    return True


def _age_s(dir_fd: int, name: str) -> float:
    """Seconds since the slot was last written, as far as can be told: writes through a mapping may leave no date."""
    age_s = time.time() - os.stat(name, dir_fd=dir_fd, follow_symlinks=False).st_mtime
    if not name.endswith(".slot"):
        return age_s
    fd = _open_quietly(dir_fd, name)
    try:
        head = os.pread(fd, slot.PULSE_AT + slot.PULSE.size, 0)
    finally:
        os.close(fd)
    if len(head) < slot.PULSE_AT + slot.PULSE.size:
        return age_s
    since_s = (time.monotonic_ns() - slot.PULSE.unpack_from(head, slot.PULSE_AT)[3]) / 1e9
    return min(age_s, since_s) if since_s >= 0 else age_s


def _idle(dir_fd: int, name: str) -> bool:
    """Whether nobody maps the slot: a process of another pid namespace looks dead from here. A socket goes last."""
    if not name.endswith(".slot"):
        return not os.path.exists(f"/proc/self/fd/{dir_fd}/{name.removesuffix('.sock')}.slot")
    fd = _open_quietly(dir_fd, name)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def _open_quietly(dir_fd: int, name: str) -> int:
    return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
