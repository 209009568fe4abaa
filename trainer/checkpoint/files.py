"""The file system, call by call: the one seam through which save, commit and rotation touch the disk.

Every method is one system call (or as good as), so that a test can stand before and after each of them: kill the
process there, or answer "disk full". Reading needs no such seam and does not go through it.
"""

import os
from typing import Final

_MODE: Final = 0o666  # what the umask leaves; a job that wants its checkpoints private sets its umask


class Files:
    """The real file system. Every method raises OSError."""

    def mkdir(self, path: str) -> None:
        os.mkdir(path)

    def create(self, path: str) -> int:
        """A new file, open for writing; one that exists already is an error: no name is used twice."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)

    def write(self, fd: int, data: memoryview) -> int:
        """At least one byte of `data`; returns how many."""
        return os.write(fd, data)

    def fsync(self, fd: int) -> None:
        os.fsync(fd)

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def link(self, old: str, new: str) -> None:
        """A second name for a file; one that exists already is an error: of several who try, one has made it."""
        os.link(old, new)

    def unlink(self, path: str) -> None:
        os.unlink(path)

    def rmdir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        """The names in a directory are on the disk when this returns."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
