"""Who is inside which collective, and who has not come to it: a job's wait-for graph, from flight recorder positions.

Ranks and what they meet in are the two kinds of nodes: a rank waits in a meeting, a meeting waits for those who are
late. So a collective of 16,384 ranks costs as many edges, not its square. Nothing here says who is to blame.

Only operations that the device has *begun* make a rank wait for others: the host runs ahead of it, and what it has
called says little. Where beginnings are not recorded (NCCL without TORCH_NCCL_ENABLE_TIMING, gloo always), a rank is
assumed inside the earliest of its open operations, and the meeting is marked as assumed.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import msgspec

from rankpulse.core.snapshot import COMPLETED, ENQUEUED, STARTED, Group, Operation, Position, Rank

P2P = frozenset(("send", "recv"))


class Meeting(NamedTuple):
    """One collective of a group, or one direction of sends and receives between two ranks."""

    group: str
    seq: int  # -1 of a send and its receive: each rank counts these for itself
    src: int = -1
    dst: int = -1


Open: TypeAlias = tuple[str, Operation]


@dataclass
class Waits:
    """The graph. `late` and `unseen` have an entry for every meeting."""

    seen: frozenset[int]  # the ranks with positions
    members: Mapping[str, tuple[int, ...]]
    inside: dict[Meeting, dict[int, Operation]] = field(default_factory=dict)
    late: dict[Meeting, tuple[int, ...]] = field(default_factory=dict)  # have not come, as their dump shows
    unseen: dict[Meeting, tuple[int, ...]] = field(default_factory=dict)  # may or may not have come
    of: dict[int, list[Meeting]] = field(default_factory=dict)  # by rank: what it is inside of
    assumed: set[Meeting] = field(default_factory=set)

    def missed(self) -> set[int]:
        """Everyone that has not come to something, as far as is seen."""
        return {rank for ranks in self.late.values() for rank in ranks}

    def all_came(self) -> list[Meeting]:
        """Meetings to which every member has come, and which do not end."""
        return [m for m, late in self.late.items() if not late and not self.unseen[m]]

    def open_ended(self) -> list[Meeting]:
        """Meetings to which all that are seen have come, and some are not seen."""
        return [m for m, late in self.late.items() if not late and self.unseen[m]]

    def everyone(self, meeting: Meeting) -> tuple[int, ...]:
        """All that belong to a meeting."""
        return (meeting.src, meeting.dst) if meeting.seq < 0 else self.members.get(meeting.group, ())


def waits(ranks: Iterable[Rank], groups: Iterable[Group]) -> Waits:
    """The graph of what these ranks told."""
    rows = [row for row in ranks if row.positions]
    found = Waits(frozenset(row.rank for row in rows), _members(rows, groups))
    recorded, furthest = _recorded(rows), _furthest(rows)
    reach: dict[str, dict[int, int]] = {}
    for row in rows:
        _enter(found, row, recorded, furthest)
        for position in row.positions:
            reach.setdefault(position.group, {})[row.rank] = _ended(position)
    begun = {group for group, ends in reach.items() if max(ends.values()) >= 0}
    for meeting, here in found.inside.items():
        for rank in here if meeting.seq >= 0 else ():
            reach[meeting.group][rank] = max(reach[meeting.group][rank], meeting.seq)
    for meeting in found.inside:
        found.late[meeting], found.unseen[meeting] = _absent(
            found, meeting, reach[meeting.group], meeting.group in begun
        )
    return found


def is_p2p(op: Operation) -> bool:
    return op.peer is not None and op.op in P2P


def operations(position: Position, furthest: int = -1) -> Iterator[Operation]:
    """The open ones, begun where the counters say so; made up from the counters where no entries are told.

    `furthest` is the last call of anybody in the group: whoever has made it and tells no end is thought to be in it.
    """
    ended, listed = _ended(position), False
    for op in position.open:
        if op.state == COMPLETED or (not is_p2p(op) and op.seq <= ended):
            continue
        listed = listed or not is_p2p(op)
        has_begun = not is_p2p(op) and position.started is not None and op.seq <= position.started
        yield msgspec.structs.replace(op, state=STARTED) if has_begun and op.state != STARTED else op
    if not listed and position.enqueued is not None and position.enqueued > ended:
        is_known = position.completed is not None or ended >= 0
        has_begun = position.started is not None and position.started > ended
        if is_known or position.enqueued == furthest:
            seq = ended + 1 if is_known else position.enqueued
            yield Operation(seq, state=STARTED if has_begun else ENQUEUED)


# --- building


def _members(rows: Iterable[Rank], groups: Iterable[Group]) -> dict[str, tuple[int, ...]]:
    """As declared, and where nothing is: whoever tells of the group."""
    told: dict[str, list[int]] = {}
    for row in rows:
        for position in row.positions:
            told.setdefault(position.group, []).append(row.rank)
    declared = {group.name: group.members for group in groups if group.members}
    return {name: tuple(sorted(set(ranks))) for name, ranks in told.items()} | declared


def _recorded(rows: Iterable[Rank]) -> dict[str, bool]:
    """By group: whether its recorders note when the device began."""
    told: dict[str, set[str]] = {}
    for row in rows:
        for p in row.positions:
            marks = told.setdefault(p.group, set())
            if (p.started is not None and p.started >= 0) or any(op.state == STARTED for op in p.open):
                marks.add("begun")
            elif p.started is None:
                marks.add("unknown")
            elif p.completed is not None and p.completed >= 0:
                marks.add("ended unbegun")
    some = any("begun" in marks for marks in told.values())
    return {group: "begun" in marks or (some and not marks) for group, marks in told.items()}


def _ended(position: Position) -> int:
    """The last that has ended in this group."""
    entries = [op.seq for op in position.open if op.state == COMPLETED and not is_p2p(op)]
    return max([position.completed if position.completed is not None else -1, *entries])


def _furthest(rows: Iterable[Rank]) -> dict[str, int]:
    """By group, the last call of anybody."""
    found: dict[str, int] = {}
    for row in rows:
        for p in row.positions:
            found[p.group] = max(found.get(p.group, -1), -1 if p.enqueued is None else p.enqueued)
    return found


def _enter(found: Waits, row: Rank, recorded: Mapping[str, bool], furthest: Mapping[str, int]) -> None:
    """Note what the rank is inside of."""
    calls = [(p.group, op) for p in row.positions for op in operations(p, furthest[p.group])]
    inside = [(group, op) for group, op in calls if recorded[group] and op.state == STARTED]
    unknown = [(group, op) for group, op in calls if not recorded[group]]
    guessed = _heads(unknown) if any(recorded[p.group] for p in row.positions) else _earliest(unknown)
    for group, op in [*inside, *guessed]:
        meeting = _meeting(row.rank, group, op)
        found.inside.setdefault(meeting, {})[row.rank] = op
        found.of.setdefault(row.rank, []).append(meeting)
    found.assumed.update(_meeting(row.rank, group, op) for group, op in guessed)


def _meeting(rank: int, group: str, op: Operation) -> Meeting:
    if not is_p2p(op) or op.peer is None:
        return Meeting(group, op.seq)
    src, dst = (rank, op.peer) if op.op == "send" else (op.peer, rank)
    return Meeting(group, -1, src, dst)


def _earliest(calls: list[Open]) -> list[Open]:
    """What was called first of all that is open, with the rest of its batch; per group where the order is not told."""
    orders = [op.order for _, op in calls if op.order is not None]
    if len(orders) < len(calls) or not calls:
        return _heads(calls)
    group, first = min(calls, key=lambda call: call[1].order or 0)
    return [(g, op) for g, op in calls if g == group and op.seq == first.seq and is_p2p(op) == is_p2p(first)]


def _heads(calls: list[Open]) -> list[Open]:
    """The first open one of each group, with the rest of its batch."""
    first: dict[tuple[str, bool], int] = {}
    for group, op in calls:
        key = (group, is_p2p(op))
        first[key] = min(first.get(key, op.seq), op.seq)
    return [(group, op) for group, op in calls if op.seq == first[group, is_p2p(op)]]


def _absent(
    found: Waits, meeting: Meeting, reach: Mapping[int, int], has_ended: bool
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Of the members of a meeting: those who have not come, and those of whom nobody knows.

    Where any collective of the group `has_ended` all members have a position; a missing one is no knowledge then.
    """
    here, seen = found.inside[meeting], found.seen
    if meeting.seq < 0:
        others = [rank for rank in (meeting.src, meeting.dst) if rank not in here]
        return tuple(r for r in others if r in seen), tuple(r for r in others if r not in seen)
    late, unseen = [], []
    for rank in found.members[meeting.group]:
        if rank not in seen or (has_ended and rank not in reach):
            unseen.append(rank)
        elif reach.get(rank, -1) < meeting.seq:
            late.append(rank)
    return tuple(late), tuple(unseen)
