"""In which collectives the ranks of a round ended that lost each other: who called something else than the others.

gloo ends a process in which more arrives than it expects, which may be that of a rank that did nothing wrong. Those
that are left tell in their last words what they had called.
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from rankpulse.core.words import printable

Called: TypeAlias = tuple[str, str, str]  # operation, sizes, types


class Odd(NamedTuple):
    """The ranks that called something else at the same place; `text`: who called what."""

    ranks: tuple[int, ...]
    text: str


def odd_ones(places: Mapping[int, str], aborted: int) -> Odd | None:
    """The minority, by what each rank told; None where all that told agree, or nobody is in the minority.

    `aborted` told nothing: it was sent more than it expected, so it is one of those that gave the least.
    """
    meetings: dict[tuple[str, int], dict[int, Called]] = defaultdict(dict)
    for rank, told in places.items():
        place = _parsed(told)
        if place is not None:
            meeting, called = place
            meetings[meeting][rank] = called
    for (group, number), calls in sorted(meetings.items()):
        least = min(calls.values(), key=_size)
        if aborted not in calls and len({called[0] for called in calls.values()}) == 1:
            calls[aborted] = least
        (usual, count), *others = Counter(calls.values()).most_common()
        if others and 2 * count > len(calls):
            ranks = tuple(sorted(rank for rank, called in calls.items() if called != usual))
            return Odd(ranks, f"collective {number} of group {printable(group, 60)}: {_in_words(calls)}")
    return None


def _parsed(told: str) -> tuple[tuple[str, int], Called] | None:
    """Total over any text."""
    try:
        group, number, operation, sizes, types = json.loads(told)
    except (ValueError, TypeError, RecursionError):
        return None
    if not (isinstance(group, str) and isinstance(number, int) and isinstance(operation, str)):
        return None
    return (group, number), (operation, json.dumps(sizes), json.dumps(types))


def _size(called: Called) -> int:
    """How many elements, as far as that can be read."""
    return math.prod(int(number) for number in re.findall(r"\d{1,12}", called[1]))


def _in_words(calls: Mapping[int, Called]) -> str:
    callers: dict[Called, list[int]] = defaultdict(list)
    for rank, called in sorted(calls.items()):
        callers[called].append(rank)
    told = sorted(callers.items(), key=lambda item: len(item[1]))
    return ", ".join(f"{_who(ranks)} {printable(' '.join(called), 90)}" for called, ranks in told[:4])


def _who(ranks: Iterable[int]) -> str:
    several = list(ranks)
    return f"rank {several[0]} called" if len(several) == 1 else f"{len(several)} ranks called"
