"""Numbers of the training that are not finite: counted in the slot, and nothing else is done about them here.

Asked only when a number is not finite, when the one before was not, and at the very first one.
"""

from typing import TYPE_CHECKING

from rankpulse.core import slot_numbers
from rankpulse.core.slot_numbers import COUNTED, LOSS_INF, LOSS_NAN, NORM_INF, NORM_NAN, NUMBERS, NUMBERS_AT
from rankpulse.trainer.plain import NAN

if TYPE_CHECKING:
    from mmap import mmap

UNTOLD = -1  # a row of so many: no number was handed over yet


class NumberRow:
    """What the slot tells of the numbers of this process."""

    __slots__ = ("_first", "_last", "_losses", "_norms", "_row", "_what", "_writes")

    def __init__(self) -> None:
        self._writes = 0  # never starts anew, like the pulse's
        self._begin()

    def _begin(self) -> None:
        self._row = self._what = self._losses = self._norms = 0
        self._first = self._last = slot_numbers.Numbers().last

    def forget(self, shared: "mmap | bytearray | None") -> None:
        """The process trains anew, from no step."""
        written = self._writes
        self._begin()
        if written and shared is not None:
            self._write(shared, -1)

    def told(self, shared: "mmap | bytearray", n: int, loss: float, norm: float, finite: int, counted: bool) -> int:
        """Step `n` had these numbers, at least one of them handed over; returns how many in a row were not finite.

        `finite`: the last step before it whose numbers were; `counted`: steps come without a number. A step that is
        told twice counts once.
        """
        what = _what(loss, LOSS_NAN, LOSS_INF) | _what(norm, NORM_NAN, NORM_INF)
        if what:
            self._count(n, what | COUNTED * counted)
        elif self._row and n != self._last:
            self._row = self._what = 0
            self._first = -1
        elif self._writes:
            return self._row
        self._write(shared, finite)
        return self._row

    def _count(self, n: int, what: int) -> None:
        again = self._row > 0 and n == self._last
        if self._row == 0 or n < self._first:  # a program that goes back by itself begins another row
            self._row, self._first, self._what = 0, n, 0
        self._row += not again
        self._losses += bool(what & (LOSS_NAN | LOSS_INF)) and not again
        self._norms += bool(what & (NORM_NAN | NORM_INF)) and not again
        self._what |= what
        self._last = n

    def _write(self, shared: "mmap | bytearray", finite: int) -> None:
        self._writes = w = self._writes + 1
        NUMBERS.pack_into(
            shared, NUMBERS_AT,
            w, self._row, self._first, finite, self._last, self._what, self._losses, self._norms, w,
        )  # fmt: skip


def _what(number: float, nan: int, inf: int) -> int:
    """What is the matter with it; 0: nothing, or it was not handed over."""
    if number is NAN or number - number == 0.0:
        return 0
    return nan if number != number else inf
