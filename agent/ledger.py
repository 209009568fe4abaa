"""The workers and launchers being watched, on disk: what died while no agent ran is told by the next one."""

import contextlib
import os
from pathlib import Path

import msgspec

from rankpulse.core.records import RunRow

_MAX_BYTES = 8 * 1024 * 1024


class WorkerRow(msgspec.Struct, frozen=True):
    """A worker as it was last watched; `dev` and `inode` name its slot."""

    dev: int
    inode: int
    pid: int
    start: int
    run: RunRow
    rank: int
    local_rank: int
    order_id: str = ""


class LauncherRow(msgspec.Struct, frozen=True):
    pid: int
    start: int
    runs: tuple[RunRow, ...]


class Ledger(msgspec.Struct, frozen=True):
    """Everything of one boot of the machine."""

    boot_id: str
    workers: tuple[WorkerRow, ...] = ()
    launchers: tuple[LauncherRow, ...] = ()


def load(path: str) -> Ledger | None:
    """None when there is none, or none that can be read."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(_MAX_BYTES), type=Ledger)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def save(path: str, ledger: Ledger) -> None:
    """Whole or not at all. A disk that is full costs only the memory of this, so errors pass."""
    with contextlib.suppress(OSError):
        replace(path, msgspec.json.encode(ledger))


def replace(path: str, data: bytes) -> None:
    """Write a file so that a reader, or a crash, sees the old content or the new. Raises OSError."""
    draft = path + ".tmp"
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file:
            file.write(data)
        Path(draft).replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise
