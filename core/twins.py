"""Ranks that run the same program are twins: they call the same operations in the same order.

Who left one out, or called one too many, is out of step with all its twins from there on, whatever it waits in now:
the same collective of the same kind of group stands at another place of its order. Needs `Operation.order`, and the
kinds of the groups: whoever data, tensor, expert and context parallel groups connect are twins, stages of a pipeline
are not.

A rank that rightly calls more than its twins, as leaders of a node may, looks the same. So this decides only between
ranks of whom one is known to be wrong.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from rankpulse.core.positions import is_p2p
from rankpulse.core.signatures import signature
from rankpulse.core.snapshot import COMPLETED, Group, Operation, Rank

SAME_PROGRAM = frozenset(("dp", "tp", "ep", "cp"))

Slot: TypeAlias = tuple[str, str]  # a kind of groups, or a group; of sends and receives, which and to which side


class Call(NamedTuple):
    slot: Slot
    kind: Slot  # the same with no name of a group in it: they differ between replicas
    op: Operation


class Step(NamedTuple):
    """What a comparison with the twins says of one rank."""

    comparable: bool  # what it is in now could be compared
    is_apart: bool  # most twins stood elsewhere with the same call, or called something else there
    is_odd: bool  # it called something that its twins do not call there, with these sizes


class _Places:
    """Where in their order the ranks of one program made which calls."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self.where: dict[Hashable, Counter[Hashable]] = {}  # at which place of the order a call stood
        self.what: dict[Hashable, Counter[Hashable]] = {}  # what stood at a place
        self.add(calls)

    def add(self, calls: Iterable[Call], weight: int = 1) -> None:
        for slot, kind, op in calls:
            self.where.setdefault((slot, op.seq), Counter())[op.order] += weight
            self.what.setdefault(op.order, Counter())[kind] += weight

    def apart(self, calls: Iterable[Call]) -> Iterator[bool]:
        """Per call: whether most stood elsewhere with it, or did something else there; nothing where unknown."""
        for slot, kind, op in calls:
            where, what = _usual(self.where.get((slot, op.seq))), _usual(self.what.get(op.order))
            if where is not None or what is not None:
                yield where not in (None, op.order) or what not in (None, kind)

    def is_united(self) -> bool:
        return all(len(votes) == 1 for votes in (*self.where.values(), *self.what.values()))


class _Calls:
    """What the ranks of one program called, at a place and at a line of it."""

    def __init__(self, calls: Iterable[Call]) -> None:
        self.said: dict[Hashable, Counter[Hashable]] = {}
        self.add(calls)

    def add(self, calls: Iterable[Call], weight: int = 1) -> None:
        for slot, kind, op in calls:
            for key in ((slot, op.seq), (kind, op.site)) if op.site else ((slot, op.seq),):
                self.said.setdefault(key, Counter())[signature(op)] += weight

    def is_united(self) -> bool:
        return all(len(votes) == 1 for votes in self.said.values())

    def is_odd(self, call: Call) -> bool:
        """Whether most others called something else there, or all others something else at this line."""
        usual = _usual(self.said.get((call.slot, call.op.seq)))
        if usual is None and call.op.site:
            usual = _usual(self.said.get((call.kind, call.op.site)), share=1.0)
        return usual is not None and usual != signature(call.op)


class Twins:
    """All ranks of a job, to be compared with their twins."""

    def __init__(self, ranks: Iterable[Rank], groups: Iterable[Group]) -> None:
        self._rows = {row.rank: row for row in ranks if row.positions}
        groups = tuple(groups)
        self._kinds = {group.name: group.kind for group in groups}
        program = _programs([group.members for group in groups if group.kind in SAME_PROGRAM])
        self._program = {rank: program.get(rank, rank) for rank in self._rows}
        self._running: dict[int, list[int]] = {}  # the ranks of each program
        for rank, root in self._program.items():
            self._running.setdefault(root, []).append(rank)
        self._places: dict[int, _Places] = {}
        self._called: dict[int, _Calls] = {}
        self._agree: dict[int, bool] = {}

    def step(self, rank: int) -> Step:
        """How it stands to its twins, of whom it is none itself."""
        if rank not in self._rows:
            return Step(False, False, False)
        root, mine = self._program[rank], list(self._each(self._rows[rank]))
        places, called = self._places_of(root), self._called_of(root)
        for votes in (places, called):
            votes.add(mine, -1)
        now = [call for call in mine if call.op.state != COMPLETED]
        comparable = any(True for _ in places.apart(now))
        step = Step(comparable, any(places.apart(mine)), any(map(called.is_odd, mine)))
        for votes in (places, called):
            votes.add(mine)
        return step

    def agree(self, rank: int) -> bool:
        """Whether all that run its program did the same as far as can be compared: then nobody of them is odd."""
        root = self._program.get(rank)
        if root is None:
            return True
        if root not in self._agree:
            self._agree[root] = self._places_of(root).is_united() and self._called_of(root).is_united()
        return self._agree[root]

    def strays(self) -> list[int]:
        """Everyone who is out of step with most that run the same program."""
        return sorted(rank for root in self._running for rank in self._strays(root))

    def _strays(self, root: int) -> Iterator[int]:
        places = self._places_of(root)
        if not places.is_united():
            yield from (r for r in self._running[root] if any(places.apart(self._each(self._rows[r]))))

    def _places_of(self, root: int) -> _Places:
        if root not in self._places:
            self._places[root] = _Places(self._all(root))
        return self._places[root]

    def _called_of(self, root: int) -> _Calls:
        if root not in self._called:
            self._called[root] = _Calls(self._all(root))
        return self._called[root]

    def _all(self, root: int) -> Iterator[Call]:
        return (call for rank in self._running[root] for call in self._each(self._rows[rank]))

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
