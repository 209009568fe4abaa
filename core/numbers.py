"""Numbers of the training that are not finite: what a node tells of its ranks, and what nodes tell together. Pure.

All-reduce spreads a NaN over all ranks within a step. So nodes tell a sum, and which of their ranks were the first.
"""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from rankpulse.core.records import Scalar
from rankpulse.core.slot_numbers import ALL, COUNTED, Numbers, in_words

ROW: Final = 3  # steps in a row: one or two that a loss scaler leaves out are its daily work
NAMED_MAX: Final = 64  # ranks
COUNT_MAX: Final = 2**53


class Told(NamedTuple):
    """What is told of the ranks of one run. Steps are -1 where there is none."""

    first: int = -1  # the step at which the oldest row began
    finite: int = -1  # the newest step with finite numbers before it, of the ranks whose row that is
    what: int = 0  # is not finite, of those: as in the slot
    movers: tuple[int, ...] = ()  # the first of those ranks
    moved: int = 0  # how many they are
    bad: int = 0  # ranks whose last numbers were not finite
    telling: int = 0  # ranks that hand over numbers

    @property
    def counted(self) -> bool:
        """Whether these steps are what processes count, so that they name no checkpoint."""
        return bool(self.what & COUNTED)

    @property
    def words(self) -> str:
        return in_words(self.what)


FINITE: Final = Told()


def summed(ranks: Iterable[tuple[int, Numbers | None]]) -> Told:
    """What a node tells of its ranks. Once one of them has a row, those whose row has just begun are no better."""
    telling = sorted((rank, numbers) for rank, numbers in ranks if numbers is not None)
    if all(numbers.row < ROW for _, numbers in telling):
        return FINITE
    alone = [Told(n.first, n.finite, n.what, (rank,), 1, 1) for rank, n in telling if n.row]
    return joined(alone)._replace(telling=len(telling))


def joined(parts: Iterable[Told]) -> Told:
    """What parts of a run tell together: those whose row is the oldest are named."""
    bad = [part for part in parts if part.bad]
    if not bad:
        return FINITE
    first = min(part.first for part in bad)
    movers, what, finite = [part for part in bad if part.first == first], 0, -1
    for part in movers:
        what, finite = what | part.what, max(finite, part.finite)
    return Told(
        first,
        finite,
        what,
        tuple(sorted(rank for part in movers for rank in part.movers)[:NAMED_MAX]),
        sum(part.moved for part in movers),
        sum(part.bad for part in bad),
        sum(part.telling for part in bad),
    )


def detail(told: Told) -> dict[str, Scalar]:
    """As it is told in an observation; what is finite again tells no more than that."""
    if not told.bad:
        return {"how": "over"}
    row = told._asdict() | {"movers": ",".join(map(str, told.movers)), "text": told.words}
    return {"how": "row", **row}


def understood(said: Mapping[str, Scalar]) -> Told | None:
    """The same, read again: None where it makes no sense, or is of a kind that a newer agent tells."""
    if said.get("how") == "over":
        return FINITE
    if said.get("how") != "row":
        return None
    first, finite, what, moved, bad, telling = (_whole(said.get(name)) for name in _COUNTED)
    movers = _ranks(said.get("movers"))
    if first < 0 or bad < 1 or moved < 1 or not 0 < what <= ALL or not in_words(what) or not movers:
        return None
    return Told(first, finite, what, movers, max(moved, len(movers)), max(bad, moved), max(telling, bad, moved))


_COUNTED: Final = ("first", "finite", "what", "moved", "bad", "telling")


def _whole(value: Scalar) -> int:
    return min(max(value, -1), COUNT_MAX) if type(value) is int else -1


def _ranks(text: Scalar) -> tuple[int, ...]:
    """Of a list such as "0,4,5"; () where it is none."""
    parts = text.split(",", NAMED_MAX)[:NAMED_MAX] if isinstance(text, str) else []
    good = all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts)
    return tuple(sorted({int(part) for part in parts})) if good else ()
