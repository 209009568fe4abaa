"""Collective positions out of what torch's watchdog prints, for ranks whose flight recorder nobody read."""

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from rankpulse.core.snapshot import Operation, Position, Rank

GROUP: Final = "default"
_WORDS: Final = ("Seq", "seq", "SEQ", "enqueued", "Enqueued")  # no line without one of them is of use
_SEQ = re.compile(r"(?:SeqNum|seq(?:uence)?(?: number)?)\s*[=:]?\s*(\d+)", re.IGNORECASE)
_OP = re.compile(
    r"OpType\s*[=:]?\s*(\w+)|\b(ALLREDUCE|BROADCAST|ALLTOALL(?:_BASE)?|_?ALLGATHER\w*|_?REDUCE_SCATTER\w*|REDUCE|SEND"
    r"|RECV|BARRIER|GATHER|SCATTER|COALESCED|ALL_REDUCE|ALL_TO_ALL|ALL_GATHER)\b",
    re.IGNORECASE,
)
_SIZE = re.compile(r"(?:NumelIn|numel|size)\s*[=:]?\s*(\d+)", re.IGNORECASE)
_ENQUEUED = re.compile(r"last enqueued\D{0,40}(\d+)", re.IGNORECASE)
_COMPLETED = re.compile(r"last completed\D{0,40}(\d+)", re.IGNORECASE)
_GROUP = re.compile(r"PG (?:ID|GUID)\s*:?\s*([\w.-]+)", re.IGNORECASE)


def with_positions(ranks: Iterable[Rank], said: Iterable[tuple[int, str]]) -> tuple[Rank, ...]:
    """The same ranks; those without positions get what their own lines, and those told about them, say."""
    more: dict[int, list[str]] = {}
    for rank, text in said:
        more.setdefault(rank, []).append(text)
    return tuple(_filled(rank, (rank.error, *rank.log, *more.get(rank.rank, ()))) for rank in ranks)


def _filled(rank: Rank, lines: Iterable[str]) -> Rank:
    if rank.positions:
        return rank
    found: dict[str, Position] = {}
    for line in lines:
        position = position_of(line) if line else None
        if position is not None:
            found[position.group] = _merged(found.get(position.group), position)
    return msgspec.structs.replace(rank, positions=tuple(found.values())) if found else rank


def position_of(line: str) -> Position | None:
    """What one line tells, None when it tells of no collective."""
    if not any(word in line for word in _WORDS):
        return None
    op, seq = _OP.search(line), _SEQ.search(line)
    enqueued, completed, group = _ENQUEUED.search(line), _COMPLETED.search(line), _GROUP.search(line)
    if not enqueued and not (op and seq):
        return None
    size = _SIZE.search(line)
    name = (op.group(1) or op.group(2)).lower() if op else ""
    here = int(seq.group(1)) if op and seq else None
    entry = (Operation(here, name, (int(size.group(1)),) if size else ()),) if here is not None else ()
    return Position(
        group.group(1) if group else GROUP,
        enqueued=int(enqueued.group(1)) if enqueued else here,
        completed=int(completed.group(1)) if completed else here - 1 if here is not None else None,
        open=entry,
    )


def _merged(one: Position | None, other: Position) -> Position:
    if one is None:
        return other
    return Position(
        one.group,
        enqueued=max(one.enqueued or 0, other.enqueued or 0),
        completed=other.completed if not other.open and other.completed is not None else one.completed,
        open=one.open or other.open,
    )
