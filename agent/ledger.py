"""The workers and launchers being watched, on disk: what died while no agent ran is told by the next one."""

import contextlib
from typing import Final

import msgspec

from rankpulse.agent.folder import Folder
from rankpulse.core.records import RunRow

_NAME: Final = "workers.ledger"
_MAX_BYTES: Final = 8 * 1024 * 1024


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
    holder: tuple[int, int] | None = None  # pid and start of the process that stays when this one ends badly


class LauncherRow(msgspec.Struct, frozen=True):
    pid: int
    start: int
    runs: tuple[RunRow, ...]


class Ledger(msgspec.Struct, frozen=True):
    """Everything of one boot of the machine."""

    boot_id: str
    workers: tuple[WorkerRow, ...] = ()
    launchers: tuple[LauncherRow, ...] = ()


def load(folder: Folder) -> Ledger | None:
    """None when there is none, or none that can be read."""
    try:
        return msgspec.json.decode(folder.read(_NAME, _MAX_BYTES), type=Ledger)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def save(folder: Folder, ledger: Ledger) -> None:
    """Whole or not at all. A disk that is full costs only the memory of this, so errors pass."""
    with contextlib.suppress(OSError):
        folder.write(_NAME, msgspec.json.encode(ledger))
