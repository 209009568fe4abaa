"""Whether all ranks of a collective called the same thing: operation, sizes, type. Who did not is the minority."""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from rankpulse.core.snapshot import Operation
from rankpulse.core.waiting import Meeting, Waits
from rankpulse.core.words import printable

Signature: TypeAlias = tuple[str, tuple[int, ...], str]

# Members may rightly differ in size, or only the root tells one.
UNEVEN = ("all_to_all", "alltoall", "scatter", "gather", "allgatherv", "barrier")
EVEN = ("reduce_scatter", "all_gather", "allgather", "_allgather", "_reduce_scatter")


class Disagreement(NamedTuple):
    meeting: Meeting
    odd: tuple[int, ...]  # who called something else than the most; all that are inside where there is no most
    is_clear: bool  # there is a most
    text: str


def signature(op: Operation) -> Signature:
    """What must be equal. Empty parts are unknown and equal to everything."""
    name = op.op.lower().rpartition(":")[2].strip("_")
    sizes = () if name.startswith(UNEVEN) and not name.startswith(EVEN) else op.sizes
    return ("" if op.peer is not None else name, sizes, op.dtype.lower())


def disagreements(waits: Waits) -> list[Disagreement]:
    """Meetings whose ranks stand in different operations; the clear ones first, among them the smallest minority."""
    found = [_compare(meeting, inside) for meeting, inside in waits.inside.items() if len(inside) > 1]
    told = [one for one in found if one is not None]
    return sorted(told, key=lambda one: (not one.is_clear, len(one.odd), one.meeting))


def may_not_fit(inside: Mapping[int, Operation]) -> bool:
    """Sizes differ where they rightly may: whether the parts fit together cannot be told from them."""
    return len({op.sizes for op in inside.values() if op.sizes and signature(op)[1] == ()}) > 1


def words(op: Operation) -> str:
    """An operation as a person would name it."""
    size = "x".join(map(str, op.sizes[:4]))
    return " ".join(printable(part, 60) for part in (op.op or "a collective", size, op.dtype) if part)


def _compare(meeting: Meeting, inside: Mapping[int, Operation]) -> Disagreement | None:
    said = Counter(map(signature, inside.values()))
    if len(said) < 2 or not _differ(list(said)):
        return None
    usual, count = said.most_common(1)[0]
    is_clear = 2 * count > len(inside)
    odd = tuple(rank for rank, op in inside.items() if not is_clear or _differ([usual, signature(op)]))
    return Disagreement(meeting, odd, is_clear, _told(inside))


def _differ(signatures: list[Signature]) -> bool:
    """Whether two of them differ in a part that both tell."""
    return any(len({part for part in parts if part}) > 1 for parts in zip(*signatures, strict=True))


def _told(inside: Mapping[int, Operation]) -> str:
    callers: dict[str, list[int]] = {}
    for rank, op in inside.items():
        callers.setdefault(words(op), []).append(rank)
    parts = [
        f"{f'rank {ranks[0]} calls' if len(ranks) == 1 else f'{len(ranks)} ranks call'} {what}"
        for what, ranks in sorted(callers.items(), key=lambda item: -len(item[1]))
    ]
    return ", ".join(parts[:4])
