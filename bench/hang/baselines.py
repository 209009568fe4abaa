"""What else is used to find the culprit of a hang, on the same dumps.

* lowest count: who has done the fewest operations. By how many were called, and by how many ended.
* missing ranks: torch's own analysis (`torchfrtrace`): in each group the first collective that some members have an
  entry of and others have not; those others. By what was called, and by what was begun.
"""

from collections.abc import Iterable, Iterator

from rankpulse.core import snapshot as s


def all_rules(rows: list[s.Rank], groups: tuple[s.Group, ...]) -> Iterator[tuple[str, Iterable[int]]]:
    """By name: whom it blames. Rules know the ranks that dumped nothing as those, and do not blame them."""
    seen = [row for row in rows if row.positions]
    yield "lowest count, called", _lowest({row.rank: sum(_called(p) for p in row.positions) for row in seen})
    yield "lowest count, ended", _lowest({row.rank: sum(_ended(p) for p in row.positions) for row in seen})
    yield "missing ranks, called", _missing(seen, groups, begun=False)
    yield "missing ranks, begun", _missing(seen, groups, begun=True)


def _lowest(counts: dict[int, int]) -> list[int]:
    least = min(counts.values(), default=0)
    return [rank for rank, count in counts.items() if count == least]


def _called(p: s.Position) -> int:
    return max(-1 if p.enqueued is None else p.enqueued, *(op.seq for op in p.open), -1) + 1


def _ended(p: s.Position) -> int:
    told = -1 if p.completed is None else p.completed
    return max(told, *(op.seq for op in p.open if op.state == s.COMPLETED), -1) + 1


def _begun(p: s.Position) -> int:
    told = -1 if p.started is None else p.started
    return max(told, *(op.seq for op in p.open if op.state != s.ENQUEUED), -1) + 1


def _missing(rows: list[s.Rank], groups: tuple[s.Group, ...], begun: bool) -> set[int]:
    reach: dict[str, dict[int, int]] = {}
    for row in rows:
        for p in row.positions:
            if not any(op.peer is not None for op in p.open):
                reach.setdefault(p.group, {})[row.rank] = _begun(p) if begun else _called(p)
    blamed: set[int] = set()
    for group in groups:
        here = {rank: reach.get(group.name, {}).get(rank) for rank in group.members}
        known = {rank: count for rank, count in here.items() if count is not None}
        first = min(known.values(), default=0)
        if any(count > first for count in known.values()):
            blamed |= {rank for rank, count in known.items() if count == first}
    return blamed
