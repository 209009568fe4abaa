"""Who is inside which collective, and who has not come to it: a job's wait-for graph, from flight recorder positions.

Ranks and what they meet in are the two kinds of nodes: a rank waits in a meeting, a meeting waits for those who are
late. So a collective of 16,384 ranks costs as many edges, not its square. Nothing here says who is to blame.

Only operations that the device has *begun* make a rank wait for others: the host runs ahead of it, and what it has
called says little. Where beginnings are not recorded (NCCL without TORCH_NCCL_ENABLE_TIMING, gloo always), a rank is
assumed inside the earliest of its open operations, and the meeting is marked as assumed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rankpulse.core.positions import Recorders, ended, entered, is_p2p, recorders
from rankpulse.core.snapshot import Group, Operation, Rank


class Meeting(NamedTuple):
    """One collective of a group, or one direction of sends and receives between two ranks."""

    group: str
    seq: int  # -1 of a send and its receive: each rank counts these for itself
    src: int = -1
    dst: int = -1


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
    known = recorders(rows)
    reach: dict[str, dict[int, int]] = {}
    for row in rows:
        _enter(found, row, known)
        for position in row.positions:
            reach.setdefault(position.group, {})[row.rank] = ended(position)
    begun = {group for group, ends in reach.items() if max(ends.values()) >= 0}
    for meeting, here in found.inside.items():
        for rank in here if meeting.seq >= 0 else ():
            reach[meeting.group][rank] = max(reach[meeting.group][rank], meeting.seq)
    for meeting in found.inside:
        found.late[meeting], found.unseen[meeting] = _absent(
            found, meeting, reach[meeting.group], meeting.group in begun
        )
    return found


# --- building


def _members(rows: Iterable[Rank], groups: Iterable[Group]) -> dict[str, tuple[int, ...]]:
    """As declared, and where nothing is: whoever tells of the group."""
    told: dict[str, list[int]] = {}
    for row in rows:
        for position in row.positions:
            told.setdefault(position.group, []).append(row.rank)
    declared = {group.name: group.members for group in groups if group.members}
    return {name: tuple(sorted(set(ranks))) for name, ranks in told.items()} | declared


def _enter(found: Waits, row: Rank, known: Recorders) -> None:
    """Note what the rank is inside of."""
    recorded, assumed = entered(row, known)
    for group, op in [*recorded, *assumed]:
        meeting = _meeting(row.rank, group, op)
        found.inside.setdefault(meeting, {})[row.rank] = op
        found.of.setdefault(row.rank, []).append(meeting)
    found.assumed.update(_meeting(row.rank, group, op) for group, op in assumed)


def _meeting(rank: int, group: str, op: Operation) -> Meeting:
    if not is_p2p(op) or op.peer is None:
        return Meeting(group, op.seq)
    src, dst = (rank, op.peer) if op.op == "send" else (op.peer, rank)
    return Meeting(group, -1, src, dst)


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
