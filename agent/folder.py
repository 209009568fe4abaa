"""The agent's own files in one directory, reached through its descriptor: whoever swaps the path leads us nowhere."""

import contextlib
import os
import stat
from dataclasses import dataclass
from typing import Final

_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_DRAFT: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


class BadFolder(Exception):
    """The directory cannot serve; the text says why."""


@dataclass(frozen=True, slots=True)
class Folder:
    """An open directory that only we can write to. Every call may raise OSError unless it says otherwise."""

    path: str
    fd: int

    def names(self) -> list[str]:
        return os.listdir(self.fd)

    def read(self, name: str, limit: int) -> bytes:
        """At most `limit` bytes of a plain file."""
        with open(os.open(name, _READ, dir_fd=self.fd), "rb") as file:
            return file.read(limit)

    def write(self, name: str, data: bytes) -> None:
        """A reader, or a crash, sees the old content or the new, nothing between."""
        draft = name + ".tmp"
        try:
            with open(os.open(draft, _DRAFT, 0o600, dir_fd=self.fd), "wb") as file:
                file.write(data)
            self.rename(draft, name)
        except OSError:
            self.remove(draft)
            raise

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new, src_dir_fd=self.fd, dst_dir_fd=self.fd)

    def remove(self, name: str) -> None:
        """Never raises: it may be gone."""
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=self.fd)

    def in_place(self) -> bool:
        """Whether the path still leads here. Never raises."""
        try:
            return os.path.samestat(os.stat(self.path, follow_symlinks=False), os.fstat(self.fd))
        except OSError:
            return False

    def close(self) -> None:
        os.close(self.fd)


def private(path: str) -> Folder:
    """Open a directory of ours alone; made (mode 0700) if it is missing. Raises `BadFolder`."""
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except NotADirectoryError:
        raise BadFolder(_not_ours(path)) from None
    except OSError as error:
        raise BadFolder(f"{path}: {error.strerror}") from error
    info = os.fstat(fd)
    if info.st_uid != os.geteuid() or info.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(fd)
        raise BadFolder(_not_ours(path))
    return Folder(path, fd)


def _not_ours(path: str) -> str:
    return f"{path} is not a directory of ours alone: remove it, or set agent.spool_dir to another"
