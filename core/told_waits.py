"""Who waits for whom, in which process group and operation: the wait-for graph around the culprits, in lines. Pure."""

from collections.abc import Iterable, Iterator
from typing import Final

from rankpulse.core import signatures
from rankpulse.core.snapshot import Group
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.waiting import Meeting, Waits
from rankpulse.core.words import printable

LINES_MAX: Final = 6
SPANS_MAX: Final = 4  # of ranks in a line: those of a data parallel group are no neighbours
KINDS: Final = {
    "dp": "data parallel",
    "tp": "tensor parallel",
    "pp": "pipeline",
    "ep": "expert parallel",
    "cp": "context parallel",
}


def told(waits: Waits | None, culprits: Iterable[int], groups: Iterable[Group]) -> tuple[str, ...]:
    """The meetings that hang on the culprits, the largest first; those that all have come to where nobody is blamed."""
    if waits is None:
        return ()
    blamed = set(culprits)
    kinds = {group.name: KINDS.get(group.kind, "") for group in groups}
    found = [meeting for meeting in waits.inside if _concerns(waits, meeting, blamed)]
    found.sort(key=lambda m: (-len(waits.inside[m]), m))
    lines = [f"{_place(m, kinds)}: {'; '.join(_parts(waits, m))}" for m in found[:LINES_MAX]]
    if len(found) > LINES_MAX:
        lines.append(f"and {len(found) - LINES_MAX} more such collectives")
    return (*lines, *_rest(waits, found, blamed))


def _concerns(waits: Waits, meeting: Meeting, blamed: set[int]) -> bool:
    absent = (*waits.late[meeting], *waits.unseen[meeting])
    if not blamed:
        return not absent
    if absent:
        return not blamed.isdisjoint(absent)
    inside = waits.inside[meeting]
    alike = len({signatures.signature(op) for op in inside.values()}) < 2
    return blamed <= set(inside) if alike else not blamed.isdisjoint(inside)


def _place(meeting: Meeting, kinds: dict[str, str]) -> str:
    kind = f" ({kinds[meeting.group]})" if kinds.get(meeting.group) else ""
    group = f"group {printable(meeting.group, 60)}{kind}"
    if meeting.seq < 0:
        return f"{group}, from rank {meeting.src} to rank {meeting.dst}"
    return f"{group}, collective {meeting.seq}"


def _parts(waits: Waits, meeting: Meeting) -> Iterator[str]:
    callers: dict[str, list[int]] = {}
    for rank, op in waits.inside[meeting].items():
        callers.setdefault(signatures.words(op), []).append(rank)
    many = sorted(callers.items(), key=lambda item: -len(item[1]))
    for what, ranks in many[:4]:
        yield f"{ranks_in_words(ranks, SPANS_MAX)} wait{'s' * (len(ranks) == 1)} in {what}"
    late, unseen = waits.late[meeting], waits.unseen[meeting]
    if late:
        yield f"{ranks_in_words(late, SPANS_MAX)} {'has' if len(late) == 1 else 'have'} not come"
    if unseen:
        yield f"whether {ranks_in_words(unseen, SPANS_MAX)} came is not known"
    if not late and not unseen:
        yield "all have come"


def _rest(waits: Waits, found: list[Meeting], blamed: set[int]) -> Iterator[str]:
    """Who waits for them by way of others."""
    near = {rank for meeting in found for rank in waits.inside[meeting]} | blamed
    far = [rank for rank in waits.of if rank not in near]
    if far and blamed:
        yield f"{len(far)} more wait for those in turn: {ranks_in_words(far, SPANS_MAX)}"
