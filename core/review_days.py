"""Days of the ledger as an axis: when a day began, what ran before an instant, failures by day."""

import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from rankpulse.core.ledger import day_of
from rankpulse.core.records import LedgerDay, LedgerEntry

DAY_S: Final = 86400.0
COLUMNS_MAX: Final = 60
_NAME: Final = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")


class Span(NamedTuple):
    """Times, UTC. `begin` 0: from the beginning."""

    begin: float
    end: float


class Column(NamedTuple):
    """Failures of one day or of a few, by component."""

    day: str
    counts: Mapping[str, int]


class _Piece(NamedTuple):
    begin: float
    end: float
    before_h: float
    gpu_h: float


def by_day(at: float) -> str:
    """The day of a UTC time; "" for 0, which lies before all days."""
    return day_of(at) if at > 0 else ""


def midnight(of: float | str) -> float:
    """When the day of a time, or a day by its name, began; 0 where no calendar has it."""
    if isinstance(of, float):
        return of // DAY_S * DAY_S
    named = _NAME.fullmatch(of)
    began = _days(*map(int, named.groups())) * DAY_S if named else 0.0
    return began if began >= 0.0 and day_of(began) == of else 0.0


def _days(year: int, month: int, day: int) -> int:
    """Since 1970-01-01, in the Gregorian calendar; years are counted from March, so that a leap day is the last."""
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719_469


def instants(failures: Sequence[LedgerEntry], days: Sequence[LedgerDay]) -> list[float]:
    """How many GPU hours had run when each failed. Within a day they ran evenly."""
    pieces, whole = [], 0.0
    for name, (at, gpu_s) in sorted(_merged(days).items()):
        start = midnight(name)
        pieces.append(_Piece(start, max(min(at, start + DAY_S), start + 1.0), whole, gpu_s / 3600))
        whole += gpu_s / 3600
    ends = [piece.end for piece in pieces]
    return [_placed(one.fault_at or one.opened_at, pieces, ends, whole) for one in failures]


def columns(failures: Sequence[LedgerEntry], days: Sequence[LedgerDay], span: Span) -> tuple[Column, ...]:
    """A day each; where there are many days, a few to each."""
    seen = [one.day for one in days] + [day_of(one.closed_at) for one in failures]
    if not seen:
        return ()
    first = span.begin or midnight(min(seen))
    last = midnight(span.end)
    each = max(math.ceil(((last - first) / DAY_S + 1) / COLUMNS_MAX), 1) * DAY_S
    counts: dict[int, Counter[str]] = {}
    for one in failures:
        counts.setdefault(int((one.closed_at - first) // each), Counter())[one.component] += 1
    return tuple(
        Column(day_of(first + number * each), counts.get(number, Counter()))
        for number in range(int((last - first) // each) + 1)
    )


def _merged(days: Sequence[LedgerDay]) -> dict[str, tuple[float, float]]:
    """By day: up to when it counts, GPU seconds. Two ledgers may tell of one day."""
    found: dict[str, tuple[float, float]] = {}
    for day in days:
        at, gpu_s = found.get(day.day, (0.0, 0.0))
        found[day.day] = max(at, day.at), gpu_s + day.gpu_s
    return found


def _placed(at: float, pieces: Sequence[_Piece], ends: Sequence[float], whole: float) -> float:
    number = bisect_right(ends, at)
    if number == len(pieces):
        return whole
    piece = pieces[number]
    part = max(at - piece.begin, 0.0) / (piece.end - piece.begin)
    return min(piece.before_h + part * piece.gpu_h, whole)
