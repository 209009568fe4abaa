"""Where a job is in its data, and what the next batch of the whole job is. Pure.

A position is a place in an epoch, in samples and not in steps: it means the same for any number of ranks and any size
of a batch, so both may change at any restart, and each sample of an epoch still comes once. What is left at the end of
an epoch that is not enough for a whole batch is dealt with as the plan's `tail` says.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

DROP: Final = "drop"  # the last few of an epoch are left out; other ones in each epoch, as the order differs
OVER: Final = "over"  # the batch is filled with the first of the next epoch: nothing is left out, nothing comes twice
PAD: Final = "pad"  # the batch is filled with the first of the same epoch once more: these come twice, and it is said
TAILS: Final = (DROP, OVER, PAD)


class Position(NamedTuple):
    """`offset` samples of epoch `epoch` have been trained on, and all epochs before it."""

    epoch: int = 0
    offset: int = 0


class Span(NamedTuple):
    """Places start ... stop-1 of an epoch's order."""

    epoch: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What all ranks together take in one step. `epoch`: in which it begins. `after`: the position behind it.

    `repeated`: so many of its samples, the last ones, come a second time in this epoch. `left_out`: so many of the
    epoch before were too few for a batch.
    """

    epoch: int
    spans: tuple[Span, ...]
    after: Position
    repeated: int = 0
    left_out: int = 0

    def __len__(self) -> int:
        return sum(span.stop - span.start for span in self.spans)

    def part(self, rank: int, ranks: int) -> Iterator[tuple[int, int]]:
        """(epoch, place) of the samples of one of `ranks` ranks: neighbours, and the parts differ by one at most."""
        whole = len(self)
        begin, end, at = whole * rank // ranks, whole * (rank + 1) // ranks, 0
        for span in self.spans:
            size = span.stop - span.start
            first, last = max(begin - at, 0), min(end - at, size)
            for place in range(first, last):
                yield span.epoch, span.start + place
            at += size


@dataclass(frozen=True, slots=True)
class Plan:
    """n samples in batches of `batch_size` for the whole job. Raises ValueError for what makes no batch."""

    n: int
    batch_size: int
    tail: str = DROP

    def __post_init__(self) -> None:
        for name, value in (("the number of samples", self.n), ("batch_size", self.batch_size)):
            if type(value) is not int or value < 1:
                raise ValueError(f"{name} is {value!r}: give a whole number from 1 on")
        if self.tail not in TAILS:
            raise ValueError(f"tail is {self.tail!r}: use one of {', '.join(TAILS)}")
        if self.tail == DROP and self.batch_size > self.n:
            raise ValueError(f"a batch of {self.batch_size} is more than all {self.n} samples: take tail='over'")

    def next(self, position: Position) -> Batch:
        """The batch at a position."""
        epoch, offset = position
        left_out = 0
        if self.tail == DROP and self.n - offset < self.batch_size:
            epoch, offset, left_out = epoch + 1, 0, self.n - offset
        if self.tail == OVER:
            return self._over(epoch, offset)
        stop = min(offset + self.batch_size, self.n)
        spans, repeated = [Span(epoch, offset, stop)], self.batch_size - (stop - offset)
        missing = repeated
        while missing:
            spans.append(Span(epoch, 0, min(missing, self.n)))
            missing -= spans[-1].stop
        return Batch(epoch, tuple(spans), self._settled(epoch, stop), repeated, left_out)

    def batches_left(self, position: Position) -> int:
        """How many batches begin in the epoch in which the next one does."""
        left = self.n - position.offset
        if self.tail == DROP:
            return left // self.batch_size or self.n // self.batch_size
        return -(-left // self.batch_size)

    def _over(self, epoch: int, offset: int) -> Batch:
        begun, spans, missing = epoch, [], self.batch_size
        while missing:
            stop = min(offset + missing, self.n)
            spans.append(Span(epoch, offset, stop))
            missing -= stop - offset
            epoch, offset = self._settled(epoch, stop)
        return Batch(begun, tuple(spans), Position(epoch, offset))

    def _settled(self, epoch: int, offset: int) -> Position:
        return Position(epoch + 1, 0) if offset == self.n else Position(epoch, offset)
