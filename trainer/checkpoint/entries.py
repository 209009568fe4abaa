"""What a rank writes into its shard: entries whose bytes are produced when they are written, one at a time."""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from rankpulse.trainer.checkpoint import tensors
from rankpulse.trainer.checkpoint.coverage import OWN, key_of
from rankpulse.trainer.checkpoint.division import Division
from rankpulse.trainer.checkpoint.flat import Flat, Piece
from rankpulse.trainer.checkpoint.manifest import TensorSpec
from rankpulse.trainer.checkpoint.state import Captured
from rankpulse.trainer.checkpoint.writer import Entry


def of_division(state: Captured, division: Division, rank: int) -> list[Entry]:
    """The flat pieces and the boxes that are this rank's to write."""
    specs = {spec.name: spec for spec in division.tensors}
    found = []
    for piece in Flat(division.tensors).pieces(division.ranges[rank]):
        spec = specs[piece.name]
        shape = spec.shape if piece.numel == spec.numel else (piece.numel,)
        data = partial(tensors.bytes_of, state.local(piece.name), piece.start, piece.numel)
        found.append(Entry(key_of(piece, spec), spec.dtype, shape, data))
    for box in division.boxes[rank]:
        spec = specs[box.name]
        data = partial(tensors.bytes_of, state.local(box.name), 0, box.numel)
        found.append(Entry(key_of(box, spec), spec.dtype, box.sizes, data))
    return found


def of_own(rank: int, values: Any, found: dict[str, Any]) -> list[Entry]:
    """What belongs to this rank alone: its values as JSON, and tensors by name."""
    own = [json_entry(f"{OWN}{rank}.values", values)]
    for name, tensor in found.items():
        own.append(_entry(f"{OWN}{rank}.{name}", tensors.dtype_name(tensor.dtype), tuple(tensor.shape), tensor))
    return own


def whole_entry(spec: TensorSpec, tensor: Any) -> Entry:
    return _entry(key_of_whole(spec), spec.dtype, spec.shape, tensor)


def key_of_whole(spec: TensorSpec) -> str:
    return key_of(Piece(spec.name, 0, spec.numel), spec)


def json_entry(key: str, value: Any) -> Entry:
    data = json.dumps(value, separators=(",", ":")).encode()
    return Entry(key, "U8", (len(data),), partial(_bytes, data))


def _entry(key: str, dtype: str, shape: tuple[int, ...], tensor: Any) -> Entry:
    return Entry(key, dtype, shape, partial(tensors.bytes_of, tensor, 0, tensor.numel()))


def _bytes(data: bytes) -> Iterator[memoryview]:
    yield memoryview(data)
