"""Which local torchrun is in which round, on disk: an agent that starts again knows it without the store."""

import contextlib
from typing import Final

import msgspec

from rankpulse.agent.folder import Folder
from rankpulse.core.rendezvous import Met

_NAME: Final = "torchruns.table"
_MAX_BYTES: Final = 1024 * 1024


class SeatRow(msgspec.Struct, frozen=True):
    """One torchrun. `met` None: it has not been in a round. `leaving`: (outcome, reason), not yet in the store."""

    pid: int
    start: int
    owner: int
    run_uid: str = ""
    join: int = 0
    met: Met | None = None
    leaving: tuple[str, str] | None = None
    left: bool = False


class Table(msgspec.Struct, frozen=True):
    """Everything of one boot of the machine."""

    boot_id: str
    rows: tuple[SeatRow, ...] = ()


def load(folder: Folder, boot_id: str) -> tuple[SeatRow, ...]:
    """The rows of this boot; none when there are none that can be read."""
    try:
        table = msgspec.json.decode(folder.read(_NAME, _MAX_BYTES), type=Table)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    return table.rows if table.boot_id == boot_id else ()


def save(folder: Folder, boot_id: str, rows: tuple[SeatRow, ...]) -> None:
    """Whole or not at all. A disk that is full, or what cannot be written, costs only the memory of this."""
    with contextlib.suppress(OSError, ValueError):
        folder.write(_NAME, msgspec.json.encode(Table(boot_id, rows)))
