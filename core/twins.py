"""Ranks that run the same program are twins: they call the same operations in the same order.

Who left one out, or called one too many, is out of step with all its twins from there on, whatever it waits in now: the
same collective of the same kind of group stands at another place of its order. Needs `Operation.order`, and the kinds of
the groups: whoever data, tensor, expert and context parallel groups connect are twins, stages of a pipeline are not.

A rank that rightly calls more than its twins, as leaders of a node may, looks the same. So this decides only between
ranks of whom one is known to be wrong.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from rankpulse.core.signatures import signature
from rankpulse.core.snapshot import Group, Operation, Rank
from rankpulse.core.waiting import is_p2p

SAME_PROGRAM = frozenset(("dp", "tp", "ep", "cp"))

Slot: TypeAlias = tuple[str, str]  # a kind of groups, or a group; of sends and receives, which and to which side


class Call(NamedTuple):
    slot: Slot
    kind: Slot  # the same with no name of a group in it: they differ between replicas
    op: Operation


class Step(NamedTuple):
    """What a comparison with the twins says of one rank."""

    comparable: bool  # anything at all could be compared
    is_apart: bool  # most twins stood elsewhere with the same call, or called something else there
    is_odd: bool  # it called something that its twins do not call there, with these sizes


class _Votes:
    """What the ranks of one program did: per key, how many which."""

    def __init__(self) -> None:
        self.where: dict[Hashable, Counter[Hashable]] = {}  # at which place of the order a call stood
        self.what: dict[Hashable, Counter[Hashable]] = {}  # what stood at a place
        self.said: dict[Hashable, Counter[Hashable]] = {}  # what was called at a place, and at a line of the program

    def add(self, calls: Iterable[Call], weight: int = 1) -> None:
        for call in calls:
            slot, op = call.slot, call.op
            self.where.setdefault((slot, op.seq), Counter())[op.order] += weight
            self.what.setdefault(op.order, Counter())[call.kind] += weight
            self.said.setdefault((slot, op.seq), Counter())[signature(op)] += weight
            if op.site:
                self.said.setdefault((slot, op.site), Counter())[signature(op)] += weight

    def apart(self, call: Call) -> Iterator[bool]:
        """Whether most others were elsewhere, where that is known."""
        where = _usual(self.where.get((call.slot, call.op.seq)))
        what = _usual(self.what.get(call.op.order))
        if where is not None:
            yield where != call.op.order
        if what is not None:
            yield what != call.kind

    def is_odd(self, call: Call) -> bool:
        """Whether most others called something else there, or all others something else at this line."""
        usual = _usual(self.said.get((call.slot, call.op.seq)))
        if usual is not None:
            return usual != signature(call.op)
        usual = _usual(self.said.get((call.slot, call.op.site)), share=1.0)
        return usual is not None and usual != signature(call.op)


class Twins:
    """All ranks of a job, to be compared with their twins."""

    def __init__(self, ranks: Iterable[Rank], groups: Iterable[Group]) -> None:
        self._rows = {row.rank: row for row in ranks if row.positions}
        groups = tuple(groups)
        self._kinds = {group.name: group.kind for group in groups}
        self._programs = _programs([group.members for group in groups if group.kind in SAME_PROGRAM])
        self._votes: dict[int, _Votes] = {}

    def step(self, rank: int) -> Step:
        """How it stands to its twins, of whom it is none itself."""
        if rank not in self._rows:
            return Step(False, False, False)
        votes, calls = self._of(rank), list(self._each(self._rows[rank]))
        votes.add(calls, -1)
        apart = [verdict for call in calls for verdict in votes.apart(call)]
        step = Step(bool(apart), any(apart), any(votes.is_odd(call) for call in calls))
        votes.add(calls)
        return step

    def strays(self) -> list[int]:
        """Everyone who is out of step with most of its twins."""
        return [rank for rank in self._rows if self.step(rank).is_apart]

    def _of(self, rank: int) -> _Votes:
        """The votes of all that run the program of this rank, itself included."""
        program = self._programs.get(rank, -1 - rank)
        if program not in self._votes:
            self._votes[program] = _Votes()
            for other, row in self._rows.items():
                if self._programs.get(other, -1 - other) == program:
                    self._votes[program].add(self._each(row))
        return self._votes[program]

    def _each(self, row: Rank) -> Iterator[Call]:
        for position in row.positions:
            kind = self._kinds.get(position.group, "")
            kind = kind if kind in SAME_PROGRAM or kind == "pp" else ""
            for op in position.open:
                if op.order is not None:
                    way = _way(row.rank, op)
                    yield Call((kind or position.group, way), (kind, way), op)


def _programs(groups: Iterable[tuple[int, ...]]) -> dict[int, int]:
    """By rank, the lowest rank that it is connected with through these groups."""
    root: dict[int, int] = {}

    def find(rank: int) -> int:
        while root.setdefault(rank, rank) != rank:
            root[rank] = rank = root[root[rank]]
        return rank

    for members in groups:
        for rank in members[1:]:
            one, other = sorted((find(members[0]), find(rank)))
            root[other] = one
    return {rank: find(rank) for rank in list(root)}


def _way(rank: int, op: Operation) -> str:
    """Of a send or receive, which, and to which side: pairs lie alike in all replicas."""
    if op.peer is None or not is_p2p(op):
        return ""
    return f"{op.op} {'up' if op.peer > rank else 'down'}"


def _usual(votes: Counter[Hashable] | None, share: float = 0.5) -> Hashable | None:
    """What most tell; None where too few do."""
    if not votes:
        return None
    value, count = votes.most_common(1)[0]
    return value if count >= 2 and (count > share * votes.total() or count == votes.total()) else None
