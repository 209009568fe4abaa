"""A file of a checkpoint, open for reading. Nothing is trusted, nothing is followed.

It is opened without following links and without waiting (a fifo would wait for ever), must be a regular file, and is
read by `pread`: a file that gets shorter meanwhile is an error, not a signal.
"""

import errno
import os
import stat
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from rankpulse.trainer.checkpoint.errors import Damaged, Refused, ShardMissing, Truncated

CHUNK: Final = 8 * 2**20  # bytes read at once
_SHORT: Final = "Raise the limit (ulimit -n), or find what leaks, and start again."
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Opened:
    """A regular file, open for reading; every trouble is a Refused that names it."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.fd = os.open(path, _OPEN)
        except OSError as error:
            raise _unreadable(path, error) from None
        self.nbytes = self._regular_bytes()

    def _regular_bytes(self) -> int:
        try:
            found = os.fstat(self.fd)
            if stat.S_ISREG(found.st_mode):
                return found.st_size
        except OSError as error:
            self.close()
            raise _unreadable(self.path, error) from None
        self.close()
        raise Damaged(self.path, "a regular file", "something else")

    def read_into(self, out: memoryview, offset: int) -> None:
        """Exactly `len(out)` bytes from `offset`."""
        done = 0
        while done < len(out):
            try:
                count = os.preadv(self.fd, [out[done : done + CHUNK]], offset + done)
            except OSError as error:
                raise _unreadable(self.path, error) from None
            if not count:
                raise Truncated(self.path, f"{offset + len(out)} bytes", f"{offset + done} bytes")
            done += count

    def read(self, offset: int, count: int) -> bytes:
        data = bytearray(count)
        self.read_into(memoryview(data), offset)
        return bytes(data)

    def forget(self) -> None:
        """What is read next comes from the disk, as far as the system can be asked for that."""
        with suppress(OSError):
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _unreadable(path: str, error: OSError) -> Refused:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return ShardMissing(path)
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):  # this process is short of something, not the file
        return Refused(path, "a file that can be opened", f"an error: {error.strerror}", _SHORT)
    found = "a symbolic link" if error.errno == errno.ELOOP else f"an error: {error.strerror}"
    return Damaged(path, "a regular file that can be read", found)
