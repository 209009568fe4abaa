"""What a rank gives to a save: slices of tensors, whose bytes are produced when they are written, one at a time."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from rankpulse.trainer.checkpoint import tensors
from rankpulse.trainer.checkpoint.coverage import OWN, key_of
from rankpulse.trainer.checkpoint.division import Division
from rankpulse.trainer.checkpoint.flat import Flat, Piece
from rankpulse.trainer.checkpoint.manifest import TensorSpec
from rankpulse.trainer.checkpoint.state import Captured
from rankpulse.trainer.checkpoint.writer import Entry


@dataclass(frozen=True, slots=True, eq=False)
class Slice:
    """Elements [start, start + numel) of a plain tensor, row-major; called, it gives their bytes.

    living: the program's own tensor of which this is a part. stepped: nothing but an optimizer's step changes it.
    """

    tensor: Any
    start: int
    numel: int
    living: Any
    stepped: bool = False

    def __call__(self) -> Iterator[memoryview]:
        return tensors.bytes_of(self.tensor, self.start, self.numel)


def whole(tensor: Any, living: Any = None, stepped: bool = False) -> Slice:
    return Slice(tensor, 0, tensor.numel(), tensor if living is None else living, stepped)


def held(state: Captured, name: str) -> Slice:
    """All that this rank holds of a tensor."""
    has = state.named(name)
    return whole(has.local, has.living, name in state.stepped)


def of_division(state: Captured, division: Division, rank: int) -> list[Entry]:
    """The flat pieces and the boxes that are this rank's to write."""
    specs = {spec.name: spec for spec in division.tensors}
    found = []
    for piece in Flat(division.tensors).pieces(division.ranges[rank]):
        spec, has = specs[piece.name], state.named(piece.name)
        shape = spec.shape if piece.numel == spec.numel else (piece.numel,)
        data = Slice(has.local, piece.start, piece.numel, has.living, piece.name in state.stepped)
        found.append(Entry(key_of(piece, spec), spec.dtype, shape, data))
    for box in division.boxes[rank]:
        spec = specs[box.name]
        found.append(Entry(key_of(box, spec), spec.dtype, box.sizes, held(state, box.name)))
    return found


def of_own(rank: int, values: Any, found: Mapping[str, Slice]) -> list[Entry]:
    """What belongs to this rank alone: its values as JSON, and tensors by name."""
    own = [json_entry(f"{OWN}{rank}.values", values)]
    for name, part in found.items():
        own.append(_entry(f"{OWN}{rank}.{name}", part))
    return own


def whole_entry(spec: TensorSpec, part: Slice) -> Entry:
    return Entry(key_of_whole(spec), spec.dtype, spec.shape, part)


def key_of_whole(spec: TensorSpec) -> str:
    return key_of(Piece(spec.name, 0, spec.numel), spec)


def json_entry(key: str, value: Any) -> Entry:
    data = json.dumps(value, separators=(",", ":")).encode()
    return Entry(key, "U8", (len(data),), partial(_bytes, data))


def _entry(key: str, part: Slice) -> Entry:
    return Entry(key, tensors.dtype_name(part.tensor.dtype), tuple(part.tensor.shape), part)


def _bytes(data: bytes) -> Iterator[memoryview]:
    yield memoryview(data)
