"""The evidence of one rank made small enough to be told, the least telling first; what goes is said. Pure.

The whole lies on the node's disk. In this order: lines of a log, collectives that have ended, the middle of a stack,
all but the first and last open operations of a group, sizes and types, groups in which nothing is open.
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from rankpulse.core.dossier import PART_MAX, RANK_MAX, Part, size
from rankpulse.core.snapshot import COMPLETED, Operation, Position, Rank
from rankpulse.core.words import printable

TEXT_MAX: Final = 300
FRAME_MAX: Final = 160
_OUTER: Final = 4  # frames of a stack that are kept where it begins
replace = msgspec.structs.replace


class Reduced(NamedTuple):
    """`left_out`: what was dropped, in words, in order."""

    rank: Rank
    left_out: tuple[str, ...] = ()


def fit(rank: Rank, limit: int = RANK_MAX) -> Reduced:
    """`rank` in at most `limit` bytes of JSON; as it is where it fits. `limit` 256 suffices for any."""
    left_out: list[str] = []
    for what, step in _steps():
        if size(rank) <= limit:
            break
        smaller = step(rank)
        if smaller != rank:
            rank = smaller
            left_out.append(what)
    return Reduced(rank, tuple(dict.fromkeys(left_out)))


def fit_part(part: Part, limit: int = PART_MAX) -> Part:
    """The whole answer of a node within its limit. Ranks are made smaller, all alike, before any is lost."""
    ranks = [fit(rank) for rank in part.ranks]
    part = _with(part, ranks)
    each = RANK_MAX
    while _size(part) > limit and each > 256:
        each //= 2
        part = _with(part, [fit(rank, each) for rank in part.ranks])
    if _size(part) > limit:
        report = replace(part.report, kernel=(), processes=(), links=())
        told = _told(part, "kernel lines, members of groups, names of dumps")
        part = replace(part, report=report, groups=(), dumps=(), left_out=told)
    while _size(part) > limit and part.ranks:
        keep = len(part.ranks) // 2
        part = replace(part, ranks=part.ranks[:keep], left_out=_told(part, f"all ranks but {keep}"))
    return part


def _with(part: Part, ranks: list[Reduced]) -> Part:
    told = [f"rank {one.rank.rank}: {', '.join(one.left_out)}" for one in ranks if one.left_out]
    return replace(part, ranks=tuple(one.rank for one in ranks), left_out=_told(part, *told))


def _told(part: Part, *more: str) -> tuple[str, ...]:
    """At most so much of it that it is no burden itself."""
    return tuple(dict.fromkeys(printable(text, 200) for text in (*part.left_out, *more)))[:64]


def _size(part: Part) -> int:
    return len(msgspec.json.encode(part))


# -- what goes first -------------------------------------------------------------------------------------------------
def _steps() -> Iterator[tuple[str, Callable[[Rank], Rank]]]:
    yield "lines of its log", lambda rank: replace(rank, log=rank.log[-3:])
    yield "lines of its log", lambda rank: replace(rank, log=())
    yield "ended operations", lambda rank: _each(rank, lambda op: op.state != COMPLETED)
    yield "ends of long texts", _short
    for inner in (40, 16):
        yield "the middle of its stack", lambda rank, inner=inner: _stack(rank, inner)  # type: ignore[misc]
    for first, last in ((8, 4), (3, 1)):
        yield "open operations", lambda rank, ends=(first, last): _ends(rank, *ends)  # type: ignore[misc]
    yield "sizes and types", _bare
    yield "peers of connections", lambda rank: replace(rank, unacked=rank.unacked[:8])
    yield "groups in which nothing is open", lambda rank: replace(rank, positions=_waiting(rank))
    yield "the middle of its stack", lambda rank: _stack(rank, 6)
    yield "groups", lambda rank: replace(rank, positions=_waiting(rank)[:8])
    yield "groups", lambda rank: replace(rank, positions=tuple(_first(p) for p in _waiting(rank)[:2]))
    yield "its stack", lambda rank: replace(rank, stack=rank.stack[-2:], error=rank.error[:80], unacked=())
    yield "all but its state", _state


def _each(rank: Rank, keeps: Callable[[Operation], bool]) -> Rank:
    def less(position: Position) -> Position:
        return replace(position, open=tuple(op for op in position.open if keeps(op)))

    return replace(rank, positions=tuple(map(less, rank.positions)))


def _short(rank: Rank) -> Rank:
    """Whatever was written by somebody else, no longer than it has to be."""
    cut = {name: getattr(rank, name)[:TEXT_MAX] for name in ("error", "dump", "wchan", "phase", "pulse", "node")}
    frames = tuple(frame[:FRAME_MAX] for frame in rank.stack)
    return replace(rank, **cut, stack=frames, unacked=tuple(one[:64] for one in rank.unacked))


def _stack(rank: Rank, inner: int) -> Rank:
    """Innermost last. What says most is where it is; then where it came from."""
    if len(rank.stack) <= inner + _OUTER + 1:
        return rank
    return replace(rank, stack=(*rank.stack[:_OUTER], "...", *rank.stack[-inner:]))


def _ends(rank: Rank, first: int, last: int) -> Rank:
    def less(position: Position) -> Position:
        many = len(position.open) > first + last
        return replace(position, open=(*position.open[:first], *position.open[-last:])) if many else position

    return replace(rank, positions=tuple(map(less, rank.positions)))


def _bare(rank: Rank) -> Rank:
    def less(position: Position) -> Position:
        return replace(position, open=tuple(replace(op, dtype="", site="", sizes=op.sizes[:2]) for op in position.open))

    return replace(rank, positions=tuple(map(less, rank.positions)))


def _waiting(rank: Rank) -> tuple[Position, ...]:
    """Where something is open, or nothing is known of that; all where there is no such."""
    return tuple(p for p in rank.positions if p.open or p.completed is None or p.completed != p.enqueued) or (
        rank.positions
    )


def _first(position: Position) -> Position:
    return replace(position, group=position.group[:64], open=tuple(_named(op) for op in position.open[:1]))


def _named(op: Operation) -> Operation:
    return replace(op, op=op.op[:32], state=op.state[:16], sizes=())


def _state(rank: Rank) -> Rank:
    return Rank(
        rank.rank, printable(rank.node, 16), pid=rank.pid, state=rank.state[:1], wchan=printable(rank.wchan, 12),
        cpu_moving=rank.cpu_moving, gil_held=rank.gil_held, alive=rank.alive, dump="too large to be told",
    )  # fmt: skip
