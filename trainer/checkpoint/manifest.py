"""The manifest of a checkpoint: what makes a directory of shards a checkpoint, and what its shards must be.

Values only; the standard library only. `encode` and `decode` are the one way to and from bytes. The bytes come from a
disk that anybody may have written to: `decode` is total, it returns a `ShardManifest` or raises `Refused`.

The flat state. All tensors with layout "flat" are laid end to end in the order of `tensors`, counted in elements: a
flat range [offset, offset + numel) names a piece of the state without naming tensors. Under DDP each rank writes one
range of about 1/N of the bytes. Tensors with layout "boxes" (DTensor: FSDP2, TP) are cut into n-dimensional boxes.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Final

SCHEMA: Final = 1
MANIFEST: Final = "manifest.json"
SHARDED: Final = "sharded"
CONSOLIDATED: Final = "consolidated"
FLAT: Final = "flat"
BOXES: Final = "boxes"

# bytes per element, by the names of the safetensors format
DTYPE_BYTES: Final = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of the whole state, as the program knows it: its full shape, however it was cut."""

    name: str
    dtype: str  # a key of DTYPE_BYTES
    shape: tuple[int, ...]
    layout: str = FLAT

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.numel * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Box:
    """A part of one tensor with layout "boxes": `sizes[i]` elements from `offsets[i]` on in dimension i."""

    name: str
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Shard:
    """What one rank wrote: one file in the safetensors layout.

    `ranges`: (offset, numel) in the flat state, ascending, not empty ones. `own`: the file also holds what belongs to
    this rank alone (its random number generators), under the key `OWN` of `rankpulse.trainer.checkpoint.writer`.
    """

    rank: int
    path: str  # a plain file name, relative to the manifest
    bytes: int
    sha256: str
    xxh3: str  # xxh3_128, the fast checksum
    ranges: tuple[tuple[int, int], ...] = ()
    boxes: tuple[Box, ...] = ()
    own: bool = False

    @property
    def param_shard_offset(self) -> int:
        """Where in the flat state this shard begins; 0 when it holds none of it."""
        return self.ranges[0][0] if self.ranges else 0

    @property
    def param_shard_numel(self) -> int:
        """How many elements of the flat state it holds."""
        return sum(numel for _, numel in self.ranges)


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """One checkpoint. On disk every shard also carries `param_shard_offset` and `param_shard_numel`."""

    kind: str  # "sharded" | "consolidated"
    step: int
    world_size: int
    save_id: str  # of this attempt; in every shard: two attempts at one step are never mixed
    wall_clock_seconds: float  # UTC when it was committed, for people; no decision reads it
    tensors: tuple[TensorSpec, ...]
    shards: tuple[Shard, ...]
    values: Any = None  # what is not a tensor, see `tree`
    metrics: dict[str, float] = field(default_factory=dict)
    run_uid: str = ""
    run_id: str = ""
    round: int = -1
    schema_version: int = SCHEMA

    @property
    def flat(self) -> tuple[TensorSpec, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.layout == FLAT)

    @property
    def nbytes(self) -> int:
        """Bytes of tensors in the whole state."""
        return sum(tensor.nbytes for tensor in self.tensors)
