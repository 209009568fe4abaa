"""Checksums of parameters: what nodes tell of their ranks, and which replica differs from the others. Pure.

Replicas hold the same bits after each step. One that does not was corrupted silently: by its memory, its GPU, or a
copy that went wrong. Who is the odd one out is for the majority of its group to say; where there is none, nobody is
picked.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rankpulse.core.records import Scalar
from rankpulse.core.slot_checks import GROUPS_MAX, REPLICAS_MAX, Check

ROWS_MAX: Final = 64  # told at once
_STEP_MAX: Final = 2**53
_RANK_MAX: Final = 10**7
_TEXT_MAX: Final = 64 * ROWS_MAX


class Row(NamedTuple):
    """What one rank has."""

    rank: int
    check: Check


class Told(NamedTuple):
    """What a node tells of its ranks, as of the end of one step."""

    step: int
    rows: tuple[Row, ...]


class Verdict(NamedTuple):
    """What the checks of a round come to. `step`: the first that disagrees. `clean`: the last before it at which all
    that were compared agreed, -1: none in this round. `odd`: the ranks that differ from the majority of their group;
    where no majority is, all that may be it, and `certain` is False.
    """

    step: int
    clean: int
    odd: tuple[int, ...]
    certain: bool
    replicas: int  # of the group in question


def detail(told: Told) -> dict[str, Scalar]:
    """As it is told in an observation."""
    rows = (f"{row.rank}:{row.check.group:x}:{row.check.replicas}:{row.check.digest:x}" for row in told.rows)
    return {"how": "sums", "step": told.step, "rows": ",".join(rows)}


def understood(said: Mapping[str, Scalar]) -> Told | None:
    """The same, read again: None where it makes no sense."""
    step, text = said.get("step"), said.get("rows")
    if said.get("how") != "sums" or type(step) is not int or not 0 <= step <= _STEP_MAX:
        return None
    if not isinstance(text, str) or len(text) > _TEXT_MAX:
        return None
    rows = [_row(part) for part in text.split(",")]
    sound = [row for row in rows if row is not None]
    seen = {(row.rank, row.check.group) for row in sound}
    return Told(step, tuple(sound)) if len(seen) == len(rows) <= ROWS_MAX else None


def _row(text: str) -> Row | None:
    try:
        rank, group, replicas, digest = text.split(":")
        found = Row(int(rank), Check(int(group, 16), int(replicas), int(digest, 16)))
    except ValueError:
        return None
    check = found.check
    good = 0 <= found.rank <= _RANK_MAX and 2 <= check.replicas <= REPLICAS_MAX
    return found if good and 0 <= check.group < 1 << 64 and 0 <= check.digest < 1 << 64 else None


Step = Mapping[int, Mapping[int, Check]]  # by group, by rank: what was told of one step


def agrees(step: Step, ranks: int = 0) -> bool:
    """Whether all replicas of all groups that were told of are there and hold the same. ranks: how many must have told
    of it; of groups that nobody has told of, on other nodes, nothing is known."""
    return (
        bool(step)
        and len(_ranks(step)) >= ranks
        and all(_complete(group) and len(_digests(group)) == 1 for group in step.values())
    )


def differs(step: Step) -> bool:
    return any(len(_digests(group)) > 1 for group in step.values())


def judged(steps: Mapping[int, Step], *, settled: Iterable[int] = ()) -> Verdict | None:
    """The verdict on a round; None while nothing disagrees, or who it is may still be told.

    `settled`: steps of which nobody is waited for any longer.
    """
    bad = min((number for number, step in steps.items() if differs(step)), default=None)
    if bad is None:
        return None
    most = max(len(_ranks(step)) for step in steps.values())
    clean = max((number for number, step in steps.items() if number < bad and agrees(step, most)), default=-1)
    waited, found = set(settled), []
    for number in sorted(steps):
        found = [_odd(group, waited=number in waited) for group in steps[number].values() if number >= bad]
        names = [one for one in found if one is not None]
        certain = [one for one in names if one[1]]
        if certain or names:
            odd = {rank for ranks, _ in (certain or names) for rank in ranks}
            replicas = max(size for size in _sizes(steps[number]))
            return Verdict(bad, clean, tuple(sorted(odd)), bool(certain), replicas)
    return None


def _odd(group: Mapping[int, Check], *, waited: bool) -> tuple[tuple[int, ...], bool] | None:
    """(ranks, whether they are certain) of a group that differs; None: it does not, or a missing one may decide."""
    digests = _digests(group)
    if len(digests) < 2:
        return None
    replicas = max(check.replicas for check in group.values())
    [(most, count)] = digests.most_common(1)
    if 2 * count > max(replicas, len(group)):
        return tuple(rank for rank, check in group.items() if check.digest != most), True
    return (tuple(group), False) if waited or _complete(group) else None


def _digests(group: Mapping[int, Check]) -> Counter[int]:
    return Counter(check.digest for check in group.values())


def _complete(group: Mapping[int, Check]) -> bool:
    return len(group) >= max(check.replicas for check in group.values())


def _ranks(step: Step) -> set[int]:
    return {rank for group in step.values() for rank in group}


def _sizes(step: Step) -> list[int]:
    return [check.replicas for group in step.values() if len(_digests(group)) > 1 for check in group.values()]


def rows_of(rank: int, checks: Iterable[Check]) -> list[Row]:
    return [Row(rank, check) for check in list(checks)[:GROUPS_MAX]]
