"""What the flight recorder positions of a rank say: which operations are open, which of them the device has begun.

Entries and counters complete each other. Where beginnings are not recorded, the earliest open call is assumed begun.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from rankpulse.core.snapshot import COMPLETED, ENQUEUED, STARTED, Operation, Position, Rank

P2P = frozenset(("send", "recv"))


class Open(NamedTuple):
    group: str
    op: Operation


class Recorders(NamedTuple):
    """What is known of all recorders together, by group."""

    begun: Mapping[str, bool]  # whether those note beginnings that have not yet shown whether they do
    furthest: Mapping[str, int]  # the last call of anybody


def is_p2p(op: Operation) -> bool:
    return op.peer is not None and op.op in P2P


def recorders(rows: Iterable[Rank]) -> Recorders:
    told: dict[str, set[bool | None]] = {}
    furthest: dict[str, int] = {}
    for row in rows:
        for p in row.positions:
            told.setdefault(p.group, set()).add(_notes_beginnings(p))
            if p.enqueued is not None and p.enqueued > furthest.get(p.group, -1):
                furthest[p.group] = p.enqueued
    some = any(True in marks for marks in told.values())
    return Recorders({group: True in marks or (some and False not in marks) for group, marks in told.items()}, furthest)


def entered(row: Rank, known: Recorders) -> tuple[list[Open], list[Open]]:
    """What the rank is inside of, as recorded, and as assumed."""
    recorded: list[Open] = []
    unknown: list[Open] = []
    noted = False
    for p in row.positions:
        notes = _notes_beginnings(p)
        notes = known.begun[p.group] if notes is None else notes
        noted = noted or notes
        if not p.open and p.enqueued is not None and p.enqueued == p.completed:
            continue  # all that was called has ended, as in most groups of a large job
        for op in operations(p, known.furthest.get(p.group, -1)):
            if not notes:
                unknown.append(Open(p.group, op))
            elif op.state == STARTED:
                recorded.append(Open(p.group, op))
    return recorded, _heads(unknown) if noted else _earliest(unknown)


def operations(position: Position, furthest: int = -1) -> list[Operation]:
    """The open ones, begun where the counters say so; made up from the counters where no entries are told.

    `furthest` is the last call of anybody in the group: whoever has made it and tells no end is thought to be in it.
    """
    end, listed, found = ended(position), False, list[Operation]()
    started = -1 if position.started is None else position.started
    for op in position.open:
        if op.state == COMPLETED:
            continue
        if op.peer is None or not is_p2p(op):
            if op.seq <= end:
                continue
            listed = True
            if op.seq <= started and op.state != STARTED:
                op = msgspec.structs.replace(op, state=STARTED)
        found.append(op)
    if not listed and position.enqueued is not None and position.enqueued > end:
        is_known = position.completed is not None or end >= 0
        if is_known or position.enqueued == furthest:
            seq = end + 1 if is_known else position.enqueued
            found.append(Operation(seq, state=STARTED if started > end else ENQUEUED))
    return found


def ended(position: Position) -> int:
    """The last that has ended in this group."""
    end = -1 if position.completed is None else position.completed
    for op in position.open:
        if op.seq > end and op.state == COMPLETED and (op.peer is None or not is_p2p(op)):
            end = op.seq
    return end


def _notes_beginnings(p: Position) -> bool | None:
    """Whether this recorder does; None where nothing has ended yet that could show it."""
    if (p.started is not None and p.started >= 0) or any(op.state == STARTED for op in p.open):
        return True
    return False if p.started is None or (p.completed is not None and p.completed >= 0) else None


def _earliest(calls: list[Open]) -> list[Open]:
    """What was called first of all that is open, with the rest of its batch; per group where the order is not told."""
    orders = [op.order for _, op in calls if op.order is not None]
    if len(orders) < len(calls) or not calls:
        return _heads(calls)
    group, first = min(calls, key=lambda call: call.op.order or 0)
    return [c for c in calls if c.group == group and c.op.seq == first.seq and is_p2p(c.op) == is_p2p(first)]


def _heads(calls: list[Open]) -> list[Open]:
    """The first open one of each group, with the rest of its batch."""
    first: dict[tuple[str, bool], int] = {}
    for group, op in calls:
        key = (group, is_p2p(op))
        first[key] = min(first.get(key, op.seq), op.seq)
    return [Open(group, op) for group, op in calls if op.seq == first[group, is_p2p(op)]]
