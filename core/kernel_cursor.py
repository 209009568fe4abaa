"""How far the kernel's log was read, over restarts of the reader and of the machine: nothing lost, nothing twice."""

from typing import Final, NamedTuple

import msgspec

from rankpulse.core.kernel_prefix import KERNEL, UP, USER, Framed

RECORD_MAX: Final = 8192
RECENT_S: Final = 600.0


class Cursor(msgspec.Struct, frozen=True):
    """The newest record that was handed on. `journal`: the journal's own mark, where that is what was read."""

    boot_id: str = ""
    seq: int = -1
    journal: str = ""


class Record(NamedTuple):
    """One record of /dev/kmsg."""

    seq: int
    framed: Framed


class Found(NamedTuple):
    cursor: Cursor
    fresh: bool  # not handed on before
    lost: int = 0  # records between the last one and this, which were overwritten before they were read


def parse(raw: bytes) -> Record | None:
    """`prio,seq,usec,flags;text`, then lines that begin with a space, about the device. None: it is no such record."""
    head, mark, rest = raw[:RECORD_MAX].partition(b";")
    fields = head.split(b",")
    if not mark or len(fields) < 3 or not all(field.isdigit() and len(field) < 20 for field in fields[:3]):
        return None
    prio, seq, usec = map(int, fields[:3])
    text = rest.partition(b"\n")[0].partition(b"\0")[0].decode("utf-8", "replace").replace("\\x0a", "\n").strip()
    return Record(seq, Framed(text, KERNEL if prio >> 3 == 0 else USER, UP, usec / 1e6, seq))


def advance(cursor: Cursor, boot_id: str, seq: int, stale: bool = False) -> Found:
    """What a record is to a reader that has come as far as `cursor`.

    Sequence numbers start over with the machine: of another boot all is fresh that the ring still holds. `stale`: an
    old record, and nobody read this log before: who starts to watch is not told the story of last week.
    """
    here = Cursor(boot_id, seq)
    if cursor.boot_id != boot_id:
        return Found(here, not stale, seq if cursor.boot_id else 0)
    if seq <= cursor.seq:
        return Found(cursor, False)
    return Found(here, not stale, seq - cursor.seq - 1 if cursor.seq >= 0 else 0)
