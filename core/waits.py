"""Who waits for whom in collectives: from every rank's place in its process groups to the ranks that hold up the rest.

In each group a rank with an open collective waits for the members that have called the least. Following that from
group to group ends at a rank that waits for nobody (it never came), at a group whose members have all come (nothing
holds it up but the link or the library), or in a circle.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from rankpulse.core.evidence import GROUPS_MAX, Position, Row
from rankpulse.core.words import printable


class Laggards(NamedTuple):
    """The ends of all waiting. `clear`: they wait in no collective themselves, as far as is seen."""

    ranks: tuple[int, ...]
    reasons: tuple[str, ...]
    clear: bool


class Odd(NamedTuple):
    """Ranks that called another operation than the others of their group, at the same place."""

    ranks: tuple[int, ...]  # the minority; empty when it cannot be told who is wrong
    reasons: tuple[str, ...]


Groups: TypeAlias = Mapping[str, Mapping[int, Position]]  # group -> rank -> position


def by_group(rows: Mapping[int, Row]) -> Groups:
    """What the rows say, group by group."""
    groups: dict[str, dict[int, Position]] = {}
    for rank, row in sorted(rows.items()):
        for position in row.positions[:GROUPS_MAX]:
            groups.setdefault(position.group, {}).setdefault(rank, position)
    return groups


def is_open(position: Position) -> bool:
    """The rank is inside a collective of this group."""
    return position.enqueued > position.completed


def laggards(groups: Groups) -> Laggards | None:
    """Who holds up the others; None when nobody waits for anybody that is seen."""
    waiting, awaited = _waiting(groups)
    if not waiting:
        return None
    ends = awaited - waiting
    if not ends:  # a circle: each has called something that another has not
        behind = _deficits(groups)
        worst = max(behind.values())
        ends = {rank for rank in awaited if behind.get(rank) == worst}
        why = "they wait for each other in a circle; named is who is furthest behind"
        return Laggards(tuple(sorted(ends)), (why, *_told(groups, ends)), clear=False)
    inside = {rank for members in groups.values() for rank, position in members.items() if is_open(position)}
    free = ends - inside
    ranks = tuple(sorted(free or ends))
    return Laggards(ranks, _told(groups, set(ranks)), clear=bool(free))


def odd_ones(groups: Groups) -> Odd | None:
    """Ranks that stand at the same place of a group in different operations."""
    for group, members in groups.items():
        places: dict[int, dict[int, str]] = {}
        for rank, position in members.items():
            if is_open(position):
                places.setdefault(position.enqueued, {})[rank] = position.operation
        for seq, here in sorted(places.items()):
            if len(set(here.values())) < 2:
                continue
            said = Counter(here.values()).most_common()
            text = ", ".join(f"{count} call {printable(what, 60)}" for what, count in said[:4])
            reason = f"group {printable(group, 60)}, collective {seq}: {text}"
            usual, count = said[0]
            if 2 * count <= len(here):
                return Odd((), (f"{reason}; who is wrong cannot be told",))
            return Odd(tuple(rank for rank, what in here.items() if what != usual), (reason,))
    return None


def all_there(groups: Groups) -> str:
    """In words, a group all of whose seen members have called a collective that does not end; "" when there is none."""
    for group, members in groups.items():
        first = next(iter(members.values()))
        if len(members) > 1 and all(is_open(p) and p.enqueued == first.enqueued for p in members.values()):
            what = f"{printable(first.operation, 60)} {first.enqueued} of group {printable(group, 60)}"
            return f"all {len(members)} ranks seen in it have called {what}, and it does not end"
    return ""


def _waiting(groups: Groups) -> tuple[set[int], set[int]]:
    """The ranks that wait for others, and those that they wait for: per group the ones that have called the least."""
    waiting: set[int] = set()
    awaited: set[int] = set()
    for members in groups.values():
        low = min(position.enqueued for position in members.values())
        here = {rank for rank, position in members.items() if is_open(position) and position.enqueued > low}
        if here:
            waiting |= here
            awaited |= {rank for rank, position in members.items() if position.enqueued == low}
    return waiting, awaited


def _deficits(groups: Groups) -> Counter[int]:
    """How many collectives each rank is behind, over its groups."""
    behind: Counter[int] = Counter()
    for members in groups.values():
        top = max(position.enqueued for position in members.values())
        for rank, position in members.items():
            behind[rank] += top - position.enqueued
    return behind


def _told(groups: Groups, ranks: set[int]) -> tuple[str, ...]:
    """In which group each of them is missed, at most eight."""
    told = []
    for rank in sorted(ranks)[:8]:
        for group, members in groups.items():
            ahead = [
                p for r, p in members.items() if is_open(p) and rank in members and p.enqueued > members[rank].enqueued
            ]
            if ahead:
                first = min(ahead, key=lambda position: position.enqueued)
                what = f"{printable(first.operation, 60)} {first.enqueued} of group {printable(group, 60)}"
                told.append(f"rank {rank} has not called {what}, {len(ahead)} ranks wait in it")
                break
    return tuple(told)
