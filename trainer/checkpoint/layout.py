"""The header of a shard: the safetensors layout, made and read. Values only.

8 bytes length (little endian), a JSON object padded with spaces to 8 bytes, then the data of all entries without
holes. The object has for each key `dtype`, `shape` and `data_offsets`, and in `__metadata__` what the file is.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from rankpulse.trainer.checkpoint import strictjson as strict
from rankpulse.trainer.checkpoint.coverage import META
from rankpulse.trainer.checkpoint.errors import ForeignShard, StateRefused
from rankpulse.trainer.checkpoint.manifest import DTYPE_BYTES, SCHEMA
from rankpulse.trainer.checkpoint.strictjson import Unfit

LENGTH_BYTES: Final = 8
MAX_HEADER: Final = 100_000_000  # the limit of the safetensors library, too
_MAX_KEY: Final = 8192
_METADATA: Final = "__metadata__"


@dataclass(frozen=True, slots=True)
class Label:
    """What a shard says that it is."""

    step: int
    save_id: str
    rank: int
    world_size: int


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of a shard: where its bytes lie in the file."""

    dtype: str
    shape: tuple[int, ...]
    start: int  # in the file
    nbytes: int


@dataclass(frozen=True, slots=True)
class Header:
    label: Label
    slots: Mapping[str, Slot]


def size_of(dtype: str, shape: tuple[int, ...]) -> int:
    """Bytes of a tensor."""
    return math.prod(shape) * DTYPE_BYTES[dtype]


def packed(label: Label, entries: Iterable[tuple[str, str, tuple[int, ...]]]) -> bytes:
    """The first bytes of a shard whose data are those of `entries` (key, dtype, shape), in this order.

    Raises StateRefused when a key comes twice, or there are too many.
    """
    meta = {
        "schema_version": SCHEMA,
        "step": label.step,
        "save_id": label.save_id,
        "rank": label.rank,
        "world_size": label.world_size,
    }
    rows: dict[str, Any] = {_METADATA: {META: json.dumps(meta, separators=(",", ":"))}}
    end = 0
    for key, dtype, shape in entries:
        start, end = end, end + size_of(dtype, shape)
        if key in rows or len(key) > _MAX_KEY:
            raise StateRefused(f"{strict.shown(key)} is twice in one shard, or its name is too long")
        rows[key] = {"dtype": dtype, "shape": shape, "data_offsets": (start, end)}
    data = json.dumps(rows, ensure_ascii=False, separators=(",", ":")).encode()
    data += b" " * (-len(data) % LENGTH_BYTES)
    if len(data) > MAX_HEADER:
        raise StateRefused(f"a shard's header would have {len(data)} bytes, more than {MAX_HEADER}: too many tensors")
    return len(data).to_bytes(LENGTH_BYTES, "little") + data


def header_bytes(head: bytes, file_bytes: int) -> int:
    """How long the JSON is, from the first 8 bytes of a file. Raises Unfit."""
    if len(head) < LENGTH_BYTES:
        raise Unfit(f"a header's length in {LENGTH_BYTES} bytes", f"{len(head)} bytes")
    length = int.from_bytes(head[:LENGTH_BYTES], "little")
    if not 2 <= length <= min(MAX_HEADER, file_bytes - LENGTH_BYTES):
        raise Unfit(f"a header that fits into a file of {file_bytes} bytes", f"{length} bytes")
    return length


def understood(data: bytes, file_bytes: int, path: str) -> Header:
    """The header whose JSON is `data`. Raises Unfit, and ForeignShard when it is no shard of ours."""
    rows = strict.members(strict.parsed(data), "a header")
    label = _label(rows.pop(_METADATA, None), path)
    first = LENGTH_BYTES + len(data)
    slots = {key: _slot(row, first, file_bytes) for key, row in rows.items()}
    end = first
    for slot in sorted(slots.values(), key=lambda slot: (slot.start, slot.nbytes)):
        if slot.start != end:
            raise Unfit(f"data without holes, the next at byte {end}", slot.start)
        end += slot.nbytes
    if end != file_bytes:
        raise Unfit(f"data up to the end of the file at {file_bytes}", end)
    return Header(label, slots)


def _label(metadata: Any, path: str) -> Label:
    said = strict.members(metadata, _METADATA).get(META)
    if type(said) is not str:
        raise ForeignShard(path, f'"{META}" in its {_METADATA}', "none")
    meta = strict.members(strict.parsed(said.encode()), META)
    schema = strict.integer(meta.get("schema_version"), "schema_version", 1)
    if schema != SCHEMA:  # its manifest, which was read before it, is of this schema
        raise ForeignShard(path, f"schema_version {SCHEMA}", schema)
    return Label(
        strict.integer(meta.get("step"), "step"),
        strict.text(meta.get("save_id"), "save_id"),
        strict.integer(meta.get("rank"), "rank"),
        strict.integer(meta.get("world_size"), "world_size", 1),
    )


def _slot(row: Any, first: int, file_bytes: int) -> Slot:
    row = strict.members(row, "an entry")
    dtype, shape = row.get("dtype"), strict.integers(row.get("shape"), "a shape")
    if type(dtype) is not str or dtype not in DTYPE_BYTES:
        raise Unfit("a dtype of safetensors", dtype)
    at = strict.integers(row.get("data_offsets"), "data_offsets", 2)
    if len(at) != 2 or at[1] - at[0] != size_of(dtype, shape) or first + at[1] > file_bytes:
        raise Unfit(f"data_offsets for {dtype} {list(shape)} inside the file", list(at))
    return Slot(dtype, shape, first + at[0], at[1] - at[0])
