"""The flat state: all tensors that are kept whole, laid end to end and counted in elements. Values only."""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate, pairwise

from rankpulse.trainer.checkpoint.manifest import DTYPE_BYTES, FLAT, TensorSpec

Range = tuple[int, int]  # (offset, numel) in the flat state


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of one flat tensor: `numel` elements from element `start` on, in row-major order."""

    name: str
    start: int
    numel: int


class Flat:
    """The flat state of `tensors`: where each tensor lies in it, in elements and in bytes."""

    def __init__(self, tensors: Iterable[TensorSpec]) -> None:
        self.tensors = [tensor for tensor in tensors if tensor.layout == FLAT]
        numels = [tensor.numel for tensor in self.tensors]
        self.starts = list(accumulate(numels, initial=0))
        self.widths = [DTYPE_BYTES[tensor.dtype] for tensor in self.tensors]
        sizes = (numel * width for numel, width in zip(numels, self.widths, strict=True))
        self.bytes_before = list(accumulate(sizes, initial=0))

    @property
    def total(self) -> int:
        """Elements of the flat state."""
        return self.starts[-1]

    def pieces(self, ranges: Iterable[Range]) -> Iterator[Piece]:
        """The ranges by tensor; what lies behind the end of the state is left out."""
        for offset, numel in ranges:
            number = bisect_right(self.starts, offset) - 1
            end = min(offset + numel, self.total)
            while offset < end:
                stop = min(end, self.starts[number + 1])
                if stop > offset:
                    yield Piece(self.tensors[number].name, offset - self.starts[number], stop - offset)
                offset, number = stop, number + 1

    def bytes_up_to(self, offset: int) -> int:
        """Bytes of the first `offset` elements."""
        if offset >= self.total:
            return self.bytes_before[-1]
        number = bisect_right(self.starts, offset) - 1
        return self.bytes_before[number] + (offset - self.starts[number]) * self.widths[number]

    def element_at(self, byte: int) -> int:
        """The element that `byte` lies in (or begins)."""
        if byte >= self.bytes_before[-1]:
            return self.total
        number = bisect_right(self.bytes_before, byte) - 1
        return self.starts[number] + (byte - self.bytes_before[number]) // self.widths[number]

    def shared(self, first: int, stop: int, parts: int) -> list[Range]:
        """Elements [first, stop) cut into `parts` ranges of about equal bytes, empty ones among them."""
        low, high = self.bytes_up_to(first), self.bytes_up_to(stop)
        cuts = [self.element_at(low + (high - low) * part // parts) for part in range(parts)] + [stop]
        return [(at, end - at) for at, end in pairwise(cuts)]


def pieces(tensors: Iterable[TensorSpec], ranges: Iterable[Range]) -> Iterator[Piece]:
    """What the flat `ranges` are of `tensors`, in order."""
    return Flat(tensors).pieces(ranges)
