"""The manifest of a checkpoint: what makes a directory of shards a checkpoint, and what its shards must be.

Values only; the standard library only. `encode` and `decode` are the one way to and from bytes. The bytes come from a
disk that anybody may have written to: `decode` is total, it returns a `ShardManifest` or raises `Refused`.

The flat state. All tensors with layout "flat" are laid end to end in the order of `tensors`, counted in elements: a
flat range [offset, offset + numel) names a piece of the state without naming tensors. Under DDP each rank writes one
range of about 1/N of the bytes. Tensors with layout "boxes" (DTensor: FSDP2, TP) are cut into n-dimensional boxes.
"""

import hashlib
import itertools
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rankpulse.trainer.checkpoint import strictjson as strict
from rankpulse.trainer.checkpoint.errors import (
    ChecksumDiffers,
    ManifestInvalid,
    NewerSchema,
    ShardCountDiffers,
    StateRefused,
)
from rankpulse.trainer.checkpoint.strictjson import Unfit, shown

SCHEMA: Final = 1  # of what every version reads
SCHEMA_ABSENT: Final = 2  # of last words: with `absent`
MANIFEST: Final = "manifest.json"
SHARDED: Final = "sharded"
CONSOLIDATED: Final = "consolidated"
LAST_WORDS: Final = "last_words"  # sharded, by the survivors of a job
FLAT: Final = "flat"
BOXES: Final = "boxes"
MAX_BYTES: Final = 256 * 2**20  # of a manifest
MAX_WORLD: Final = 2**20

_SAVE_ID: Final = re.compile(r"[0-9a-f]{8,32}")
_PATH: Final = re.compile(r"shard-[0-9]{5,7}\.safetensors")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")
_XXH3: Final = re.compile(r"[0-9a-f]{32}")
_SEAL: Final = re.compile(rb'"digest": ?"([0-9a-f]{64})"\s*\}\s*\Z')
_SEAL_BYTES: Final = 256  # the digest is looked for in these last bytes only
_BLANK: Final = b"0" * 64
_NOT_FINITE: Final = ("nan", "inf", "-inf")  # a metric may be one; JSON has no number for it

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

    @property
    def numel(self) -> int:
        return math.prod(self.sizes)


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

    kind: str  # "sharded" | "consolidated" | "last_words"
    step: int
    world_size: int
    save_id: str  # of this attempt; in every shard: two attempts at one step are never mixed
    wall_clock_seconds: float  # UTC when it was committed; of two at one step the later is the newer
    tensors: tuple[TensorSpec, ...]
    shards: tuple[Shard, ...]
    values: Any = None  # what is not a tensor, see `tree`
    metrics: dict[str, float] = field(default_factory=dict)
    run_uid: str = ""
    run_id: str = ""
    round: int = -1
    resumed_before_step: int = -1  # the limit that was obeyed when the saving life began, -1: none
    schema_version: int = SCHEMA
    absent: tuple[int, ...] = ()  # of last words: ranks that were gone, whose files others have written

    @property
    def flat(self) -> tuple[TensorSpec, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.layout == FLAT)

    @property
    def nbytes(self) -> int:
        """Bytes of tensors in the whole state."""
        return sum(tensor.nbytes for tensor in self.tensors)


def encode(manifest: ShardManifest) -> bytes:
    """The bytes of `manifest.json`: one JSON object, a line for each tensor and shard, the digest last.

    Raises StateRefused when it cannot be written as JSON, or would be more than MAX_BYTES.
    """
    try:
        _values(manifest.values)
        lines = [f'"{name}": {_json(value)}' for name, value in _head(manifest).items()]
        lines.append(f'"tensors": {_rows(_tensor_row(tensor) for tensor in manifest.tensors)}')
        index = {tensor.name: number for number, tensor in enumerate(manifest.tensors)}
        lines.append(f'"shards": {_rows(_shard_row(shard, index) for shard in manifest.shards)}')
        lines.append(f'"values": {_json(manifest.values)}')
        data = ("{\n" + ",\n".join(lines) + f',\n"digest": "{_BLANK.decode()}"\n}}\n').encode()
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, Unfit) as error:
        raise StateRefused(f"the manifest of step {manifest.step} cannot be written as JSON: {error}") from None
    if len(data) > MAX_BYTES:
        raise StateRefused(
            f"the manifest of step {manifest.step} would have {len(data)} bytes, more than {MAX_BYTES}:"
            " keep large values in tensors"
        )
    start = data.rindex(_BLANK)
    return data[:start] + digest_of(data).encode() + data[start + len(_BLANK) :]


def refuse_too_many(boxes: Sequence[Sequence[Box]]) -> None:
    """Raises StateRefused when a manifest that lists these boxes (by rank) would surely be more than MAX_BYTES.

    From a sample of them: to be asked before an hour is spent on writing shards that no manifest can name.
    """
    count = sum(map(len, boxes))
    sample = [one for mine in boxes[:: 1 + len(boxes) // 64] for one in mine[:: 1 + len(mine) // 64]]
    if not sample:
        return
    nbytes = count * sum(len(_json((0, box.offsets, box.sizes))) + 1 for box in sample) // len(sample)
    if nbytes > MAX_BYTES:
        raise StateRefused(
            f"the state is cut into {count} pieces, and a manifest that lists them would have more than {nbytes} bytes;"
            f" {MAX_BYTES} is the limit. Shard over fewer ranks (HSDP), or save with mode='consolidated'"
        )


def digest_of(data: bytes) -> str:
    """sha256 of a manifest's bytes with the 64 characters of its digest as zeros; "" when it has no digest."""
    seal = _SEAL.search(data, max(0, len(data) - _SEAL_BYTES))
    if not seal:
        return ""
    sha = hashlib.sha256(memoryview(data)[: seal.start(1)])
    sha.update(_BLANK)
    sha.update(memoryview(data)[seal.end(1) :])
    return sha.hexdigest()


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _rows(rows: Iterable[Any]) -> str:
    lines = ",\n".join(map(_json, rows))
    return f"[\n{lines}\n]" if lines else "[]"


def _head(manifest: ShardManifest) -> dict[str, Any]:
    absent = {"absent": manifest.absent} if manifest.kind == LAST_WORDS else {}
    return {
        "schema_version": manifest.schema_version,
        "kind": manifest.kind,
        "step": manifest.step,
        "world_size": manifest.world_size,
        "save_id": manifest.save_id,
        "wall_clock_seconds": float(manifest.wall_clock_seconds),
        "run_uid": manifest.run_uid,
        "run_id": manifest.run_id,
        "round": manifest.round,
        "resumed_before_step": manifest.resumed_before_step,
        "metrics": {
            name: float(value) if math.isfinite(value) else str(float(value))
            for name, value in manifest.metrics.items()
        },
        **absent,
    }


def _tensor_row(tensor: TensorSpec) -> dict[str, Any]:
    return {"name": tensor.name, "dtype": tensor.dtype, "shape": tensor.shape, "layout": tensor.layout}


def _shard_row(shard: Shard, index: dict[str, int]) -> dict[str, Any]:
    return {
        "rank": shard.rank,
        "path": shard.path,
        "bytes": shard.bytes,
        "sha256": shard.sha256,
        "xxh3": shard.xxh3,
        "param_shard_offset": shard.param_shard_offset,
        "param_shard_numel": shard.param_shard_numel,
        "ranges": shard.ranges,
        "boxes": [(index[box.name], box.offsets, box.sizes) for box in shard.boxes],
        "own": shard.own,
    }


def decode(data: bytes, path: str) -> ShardManifest:
    """The manifest in `data`; `path` names it in errors. Total: raises Refused, whatever the bytes are.

    The digest is looked at first: a flipped bit is damage, never a newer schema. Whether the shards cover the state
    is `division.uncovered`'s to say.
    """
    if len(data) > MAX_BYTES:
        raise ManifestInvalid(path, f"at most {MAX_BYTES} bytes", len(data))
    seal = _SEAL.search(data, max(0, len(data) - _SEAL_BYTES))
    if not seal:
        raise ManifestInvalid(path, 'a "digest" as its last member', "none (a partial write?)")
    if seal[1].decode() != (found := digest_of(data)):
        raise ChecksumDiffers(path, seal[1].decode(), found)
    try:
        top = strict.members(strict.parsed(data), "a manifest")
        schema = strict.integer(top.get("schema_version"), "schema_version", 1)
        if schema > (known := SCHEMA_ABSENT if top.get("kind") == LAST_WORDS else SCHEMA):
            raise NewerSchema(path, f"at most {known}", schema, "Read it with the rankpulse that wrote it, or newer.")
        return _decoded(top, path)
    except Unfit as unfit:
        raise ManifestInvalid(path, unfit.expected, unfit.found) from None


def _decoded(top: dict[str, Any], path: str) -> ShardManifest:
    kind = top.get("kind")
    if kind not in (SHARDED, CONSOLIDATED, LAST_WORDS):
        raise Unfit(f"kind {SHARDED}, {CONSOLIDATED} or {LAST_WORDS}", kind)
    world_size = strict.integer(top.get("world_size"), "world_size", 1, MAX_WORLD)
    tensors = tuple(_tensor(row) for row in strict.items(top.get("tensors"), "tensors"))
    _distinct((tensor.name for tensor in tensors), "tensor")
    rows = strict.items(top.get("shards"), "shards")
    if len(rows) != (expected := 1 if kind == CONSOLIDATED else world_size):
        raise ShardCountDiffers(path, expected, len(rows))
    shards = tuple(_shard(row, rank, tensors) for rank, row in enumerate(rows))
    _distinct((shard.path for shard in shards), "shard")
    return ShardManifest(
        kind=kind,
        step=strict.integer(top.get("step"), "step"),
        world_size=world_size,
        save_id=strict.matching(top.get("save_id"), "save_id", _SAVE_ID),
        wall_clock_seconds=strict.number(top.get("wall_clock_seconds"), "wall_clock_seconds"),
        tensors=tensors,
        shards=shards,
        values=_values(top.get("values")),
        metrics=_metrics(top.get("metrics")),
        run_uid=strict.text(top.get("run_uid"), "run_uid"),
        run_id=strict.text(top.get("run_id"), "run_id"),
        round=strict.integer(top.get("round"), "round", -1),
        resumed_before_step=strict.integer(top.get("resumed_before_step"), "resumed_before_step", -1),
        schema_version=top["schema_version"],
        absent=_absent(top, world_size) if kind == LAST_WORDS else (),
    )


def _absent(top: dict[str, Any], world_size: int) -> tuple[int, ...]:
    """Ascending, and not all."""
    if top["schema_version"] < SCHEMA_ABSENT:
        raise Unfit(f"schema {SCHEMA_ABSENT} of {LAST_WORDS}", top["schema_version"])
    found = strict.integers(top.get("absent"), "absent", world_size)
    if any(low >= high for low, high in itertools.pairwise((*found, world_size))) or len(found) == world_size:
        raise Unfit(f"absent ranks below {world_size}, ascending, not all of them", top.get("absent"))
    return found


def _distinct(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Unfit(f"every {what} once", name)
        seen.add(name)


def _values(values: Any) -> Any:
    for _ in strict.walked(values):
        pass
    return values


def _metrics(value: Any) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, number in strict.members(value, "metrics").items():
        found[strict.text(name, "a metric's name")] = _metric(number)
    return found


def _metric(value: Any) -> float:
    if type(value) is float or value in _NOT_FINITE:
        return float(value)
    if type(value) is int and abs(value) <= strict.MAX_INT:
        return float(value)
    raise Unfit("metrics of numbers", value)


def _tensor(row: Any) -> TensorSpec:
    row = strict.members(row, "a tensor")
    name = strict.text(row.get("name"), "a tensor's name")
    dtype, layout = row.get("dtype"), row.get("layout")
    if type(dtype) is not str or dtype not in DTYPE_BYTES:
        raise Unfit(f"a dtype of safetensors for {name!r}", dtype)
    if layout not in (FLAT, BOXES):
        raise Unfit(f"layout {FLAT} or {BOXES} for {name!r}", layout)
    tensor = TensorSpec(name, dtype, strict.integers(row.get("shape"), "a shape"), layout)
    if tensor.nbytes > strict.MAX_INT:
        raise Unfit(f"less than 2**63 bytes for {name!r}", list(tensor.shape))
    return tensor


def _shard(row: Any, rank: int, tensors: Sequence[TensorSpec]) -> Shard:
    row = strict.members(row, "a shard")
    if strict.integer(row.get("rank"), "a rank") != rank:
        raise Unfit(f"the shard of rank {rank}", row["rank"])
    shard = Shard(
        rank=rank,
        path=strict.matching(row.get("path"), "a shard's path", _PATH),
        bytes=strict.integer(row.get("bytes"), "a shard's bytes"),
        sha256=strict.matching(row.get("sha256"), "a sha256", _SHA256),
        xxh3=strict.matching(row.get("xxh3"), "an xxh3", _XXH3),
        ranges=_ranges(row.get("ranges")),
        boxes=tuple(_box(box, tensors) for box in strict.items(row.get("boxes"), "boxes")),
        own=strict.truth(row.get("own"), "own"),
    )
    for name in ("param_shard_offset", "param_shard_numel"):
        if strict.integer(row.get(name), name) != getattr(shard, name):
            raise Unfit(f"{name} {getattr(shard, name)}, as the ranges say", row[name])
    return shard


def _ranges(value: Any) -> tuple[tuple[int, int], ...]:
    """Ascending, none empty, none overlapping."""
    found, end = [], 0
    for row in strict.items(value, "ranges"):
        pair = strict.integers(row, "a range", 2)
        if len(pair) != 2 or pair[1] < 1 or pair[0] < end:
            raise Unfit(f"a range [offset, numel] from {end} on", row)
        found.append((pair[0], pair[1]))
        end = pair[0] + pair[1]
    return tuple(found)


def _box(row: Any, tensors: Sequence[TensorSpec]) -> Box:
    """[the tensor's number, offsets, sizes]. There may be millions: hence few and plain steps."""
    if type(row) is not list or len(row) != 3 or type(row[0]) is not int or not 0 <= row[0] < len(tensors):
        raise Unfit("a box [number of its tensor, offsets, sizes]", row)
    tensor = tensors[row[0]]
    offsets, sizes, shape = row[1], row[2], tensor.shape
    fits = tensor.layout == BOXES and type(offsets) is list is type(sizes) and len(offsets) == len(sizes) == len(shape)
    if fits:
        for at, size, full in zip(offsets, sizes, shape, strict=True):
            if type(at) is not int or type(size) is not int or at < 0 or not 0 < size <= full - at:
                fits = False
    if not fits:
        raise Unfit(f"a box inside {shown(tensor.name)} of shape {list(shape)}", (offsets, sizes))
    return Box(tensor.name, tuple(offsets), tuple(sizes))
