"""The part of a slot that tells of losses and gradient norms that are not finite. Standard library only.

It lies where slots of older writers hold zeros, and older readers do not look: neither notices the other. It is written
when the first number is handed over and then only while numbers are not finite, always before the pulse of the same
step. `begin` and `end` are equal and not 0 in a whole write.
"""

import struct
from typing import Final, NamedTuple

# begin, row, first, finite, last, what, losses, norms, end
NUMBERS: Final = struct.Struct("<QQqqqQQQQ")
NUMBERS_AT: Final = 144
_AREA: Final = slice(NUMBERS_AT, NUMBERS_AT + NUMBERS.size)
LOSS_NAN, LOSS_INF, NORM_NAN, NORM_INF = 1, 2, 4, 8  # `what`, added up
COUNTED: Final = 16  # the same: the steps are the process's own count, not numbers that the job knows them by
_NAMES: Final = ((LOSS_NAN, "loss nan"), (LOSS_INF, "loss inf"), (NORM_NAN, "gradient norm nan"),
                 (NORM_INF, "gradient norm inf"))  # fmt: skip
_BAD: Final = LOSS_NAN | LOSS_INF | NORM_NAN | NORM_INF
ALL: Final = _BAD | COUNTED
_LARGEST: Final = 2**53  # what JSON carries unchanged


class Numbers(NamedTuple):
    """What the numbers of a rank have come to. Steps are -1 where there is none.

    `row` steps in a row were not finite, up to now, since step `first`; 0: the last numbers were finite. `finite`: the
    last step with finite numbers before the row. `last`: the newest step that was not finite. `losses` and `norms`
    count all of them since the process began.
    """

    row: int = 0
    first: int = -1
    finite: int = -1
    last: int = -1
    what: int = 0
    losses: int = 0
    norms: int = 0


def packed(numbers: Numbers, write: int) -> bytes:
    """As it stands in the slot; `write` (not 0) is the number of the write."""
    return NUMBERS.pack(write, *numbers, write)


def read(first: bytes, middle: bytes, last: bytes) -> Numbers | None:
    """Of three copies of a slot. None: nothing was handed over, or a write is under way, or it makes no sense."""
    if not first[_AREA] == middle[_AREA] == last[_AREA]:
        return None
    begin, row, since, finite, newest, what, losses, norms, end = NUMBERS.unpack_from(middle, NUMBERS_AT)
    if begin != end or not begin or (row and (since < 0 or not what & _BAD)):
        return None
    counts = (min(count, _LARGEST) for count in (losses, norms))
    return Numbers(min(row, _LARGEST), _step(since), _step(finite), _step(newest), what & ALL, *counts)


def in_words(what: int) -> str:
    """What is not finite, as people say it."""
    return ", ".join(name for bit, name in _NAMES if what & bit)


def _step(step: int) -> int:
    return min(max(step, -1), _LARGEST)
