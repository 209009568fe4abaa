"""A checkpoint of M ranks cut anew for N, offline: the bytes are streamed from the old files into the new ones.

Memory stays flat whatever the size of the state: a buffer, and, where tensors were cut into boxes (DTensor: FSDP2,
TP), the largest of those. The new one holds the tensors as flat ranges of about equal bytes, whatever the old one had.
"""

import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from rankpulse.trainer.checkpoint import division, reader, writer
from rankpulse.trainer.checkpoint.coverage import OWN, key_of
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.flat import Flat, Piece, Range
from rankpulse.trainer.checkpoint.manifest import (
    BOXES,
    CONSOLIDATED,
    DTYPE_BYTES,
    FLAT,
    SCHEMA,
    SHARDED,
    Box,
    Shard,
    ShardManifest,
    TensorSpec,
)

CHUNK: Final = 4 << 20
_OPEN: Final = 16  # files held open at a time
VERIFY, WRITE, READ_BACK = "verify", "write", "read back"  # what progress is told of
Progress = Callable[[str, int], None]


@dataclass(frozen=True, slots=True)
class Recut:
    """What became of it. `own_lost`: old ranks whose random number generators have no heir; `own_missing`: new ranks
    that have none and start with fresh ones."""

    path: str
    manifest: ShardManifest
    own_kept: tuple[int, ...]
    own_lost: tuple[int, ...]
    own_missing: tuple[int, ...]


class Whole:
    """The tensors of one checkpoint as the program knew them, however its files are cut. A context manager.

    Every method raises `Refused` when the files are not those of the manifest, and OSError. Checksums are not looked
    at: verify first.
    """

    def __init__(self, path: str, manifest: ShardManifest) -> None:
        self._path, self._manifest = path, manifest
        self._specs = {spec.name: spec for spec in manifest.tensors}
        self._pieces: dict[str, list[tuple[int, int, Shard, str]]] = {}  # start, numel, where
        self._boxes: dict[str, list[tuple[Box, Shard, str]]] = {}
        self._files: OrderedDict[int, reader.ShardFile] = OrderedDict()
        self._room = memoryview(bytearray(CHUNK))
        self._assembled: tuple[str, memoryview] = ("", memoryview(b""))
        flat = Flat(manifest.tensors)
        for shard in manifest.shards:
            self._index(flat, shard)
        for parts in self._pieces.values():
            parts.sort(key=lambda part: part[0])

    def __enter__(self) -> "Whole":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        while self._files:
            self._files.popitem()[1].close()

    def spec(self, name: str) -> TensorSpec:
        """The tensor as the manifest has it."""
        return self._specs[name]

    def read(self, name: str, start: int, numel: int) -> Iterator[memoryview]:
        """The bytes of `numel` elements of a tensor from element `start` on. A piece is good until the next is
        asked for, and holds whole elements."""
        spec = self._specs[name]
        size = DTYPE_BYTES[spec.dtype]
        if spec.layout == BOXES:
            whole = self._whole_of(spec)[start * size : (start + numel) * size]
            yield from (whole[at : at + CHUNK] for at in range(0, len(whole), CHUNK))
            return
        stop = start + numel
        for first, count, shard, key in self._pieces.get(name, ()):
            low, high = max(start, first), min(stop, first + count)
            if low < high:
                yield from self._streamed(shard, key, (low - first) * size, (high - low) * size)

    def own(self, rank: int) -> list[writer.Entry]:
        """What belonged to one rank alone, as entries that can be written again."""
        entries: list[writer.Entry] = []
        for shard in self._manifest.shards:
            if shard.own and (shard.rank == rank or len(self._manifest.shards) == 1):
                entries += self._own_of(shard, f"{OWN}{rank}.")
        return entries

    def _own_of(self, shard: Shard, prefix: str) -> Iterator[writer.Entry]:
        for key, slot in self._file(shard).keys.items():
            if key.startswith(prefix):
                yield writer.Entry(key, slot.dtype, slot.shape, self._later(shard, key, slot.nbytes))

    def _later(self, shard: Shard, key: str, size: int) -> Callable[[], Iterator[memoryview]]:
        return lambda: self._streamed(shard, key, 0, size)

    def _index(self, flat: Flat, shard: Shard) -> None:
        for piece in flat.pieces(shard.ranges):
            key = key_of(piece, self._specs[piece.name])
            self._pieces.setdefault(piece.name, []).append((piece.start, piece.numel, shard, key))
        for box in shard.boxes:
            key = key_of(box, self._specs[box.name])
            self._boxes.setdefault(box.name, []).append((box, shard, key))

    def _file(self, shard: Shard) -> reader.ShardFile:
        file = self._files.pop(shard.rank, None)
        if file is None:
            file = reader.ShardFile(self._path, self._manifest, shard)
        self._files[shard.rank] = file
        if len(self._files) > _OPEN:
            self._files.popitem(last=False)[1].close()
        return file

    def _streamed(self, shard: Shard, key: str, start: int, size: int) -> Iterator[memoryview]:
        for at in range(start, start + size, CHUNK):
            part = self._room[: min(CHUNK, start + size - at)]
            self._file(shard).read_into(key, at, part)
            yield part

    def _whole_of(self, spec: TensorSpec) -> memoryview:
        """A tensor put together from its boxes; the last one is kept, for its pieces are asked for in turn."""
        if self._assembled[0] != spec.name:
            self._assembled = ("", memoryview(b""))  # never two at a time
            out = memoryview(bytearray(spec.nbytes))
            for box, shard, key in self._boxes.get(spec.name, ()):
                self._place(spec, box, self._streamed(shard, key, 0, _box_bytes(spec, box)), out)
            self._assembled = (spec.name, out)
        return self._assembled[1]

    def _place(self, spec: TensorSpec, box: Box, parts: Iterator[memoryview], out: memoryview) -> None:
        """Put the bytes of one box where they belong in the tensor, run by run."""
        runs = box_runs(spec.shape, box, DTYPE_BYTES[spec.dtype])
        at, left = 0, 0
        for part in parts:
            while len(part):
                if not left:
                    at, left = next(runs)
                size = min(left, len(part))
                out[at : at + size] = part[:size]
                at, left, part = at + size, left - size, part[size:]


def _box_bytes(spec: TensorSpec, box: Box) -> int:
    return math.prod(box.sizes) * DTYPE_BYTES[spec.dtype]


def box_runs(shape: tuple[int, ...], box: Box, size: int) -> Iterator[tuple[int, int]]:
    """Where a box's bytes lie in the whole tensor: (offset, bytes) of each stretch without a gap, in the box's order.

    Dimensions at the end that the box holds whole belong to one stretch.
    """
    if not math.prod(box.sizes):
        return
    inner = len(shape)  # the stretch spans the dimensions from inner on, and a part of the one before
    while inner and box.sizes[inner - 1] == shape[inner - 1]:
        inner -= 1
    outer = max(0, inner - 1)
    strides = [math.prod(shape[dim + 1 :]) * size for dim in range(len(shape))]
    length = math.prod(box.sizes[outer:]) * size
    base = sum(offset * stride for offset, stride in zip(box.offsets, strides, strict=True))
    for number in range(math.prod(box.sizes[:outer])):
        at = base
        for dim in range(outer - 1, -1, -1):
            number, place = divmod(number, box.sizes[dim])
            at += place * strides[dim]
        yield at, length


def recut(path: str, to: int, out: str, *, files: Files | None = None, progress: Progress | None = None) -> Recut:
    """Write the checkpoint at `path` anew for `to` ranks into the directory `out`: same step, new save_id.

    The old one is verified first (sha256) and left as it is; the new one is verified afterwards. Raises `Refused` when
    the old one is damaged, OSError when the new one cannot be written: nothing of it stays then.
    """
    files, told = files or Files(), progress or (lambda _what, _bytes: None)
    old = reader.verify(path, reader.FULL, lambda size: told(VERIFY, size))
    cut = division.replicated([division.Item(spec.name, spec.dtype, spec.shape, None) for spec in old.tensors], to)
    save_id = os.urandom(4).hex()
    attempt = writer.begin(files, out, old.step, save_id)
    try:
        with Whole(path, old) as whole:
            plain = replace(old, kind=SHARDED, schema_version=SCHEMA, absent=())
            fresh = replace(plain, world_size=to, save_id=save_id, tensors=cut.tensors)
            shards = [_shard(files, attempt, fresh, mine, rank, whole, told) for rank, mine in enumerate(cut.ranges)]
        made = replace(fresh, shards=tuple(shards), wall_clock_seconds=time.time())
        writer.commit(files, attempt, made)
        reader.verify(attempt, reader.FULL, lambda size: told(READ_BACK, size))
    except BaseException:
        writer.abandon(files, attempt)
        raise
    kept = tuple(shard.rank for shard in shards if shard.own)
    return Recut(attempt, made, kept, _owners_beyond(old, to), tuple(rank for rank in range(to) if rank not in kept))


def _owners_beyond(old: ShardManifest, to: int) -> tuple[int, ...]:
    """Old ranks with things of their own that no new rank takes over."""
    had = range(old.world_size) if old.kind == CONSOLIDATED else [shard.rank for shard in old.shards if shard.own]
    return tuple(rank for rank in had if rank >= to)


def _shard(
    files: Files,
    attempt: str,
    fresh: ShardManifest,
    ranges: tuple[Range, ...],
    rank: int,
    whole: Whole,
    told: Progress,
) -> Shard:
    own = whole.own(rank)
    return writer.write_shard(
        files,
        attempt,
        rank=rank,
        world_size=fresh.world_size,
        step=fresh.step,
        save_id=fresh.save_id,
        entries=[_entry(piece, whole, told) for piece in Flat(fresh.tensors).pieces(ranges)] + own,
        ranges=ranges,
        own=bool(own),
    )


def _entry(piece: Piece, whole: Whole, told: Progress) -> writer.Entry:
    def data() -> Iterator[memoryview]:
        for part in whole.read(piece.name, piece.start, piece.numel):
            yield part
            told(WRITE, len(part))

    spec = replace(whole.spec(piece.name), layout=FLAT)
    shape = spec.shape if piece.numel == spec.numel else (piece.numel,)
    return writer.Entry(key_of(piece, spec), spec.dtype, shape, data)
