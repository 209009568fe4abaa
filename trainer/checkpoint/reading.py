"""Reading tensors of a checkpoint into the memory of a program, however either of them is cut.

torch's load planner says which regions of which saved chunks go where; here a chunk is the whole tensor when it was
saved flat, and one box of it otherwise, and a region of it is read from the files that hold it: straight into the
tensor where that lies dense, otherwise through a buffer of at most one tensor.
"""

import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Self

import torch
from torch.distributed.checkpoint import DefaultLoadPlanner, Metadata
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, TensorProperties, TensorStorageMetadata

from rankpulse.trainer.checkpoint import tensors
from rankpulse.trainer.checkpoint.coverage import OWN, key_of
from rankpulse.trainer.checkpoint.errors import Damaged, StateMismatch
from rankpulse.trainer.checkpoint.flat import Flat
from rankpulse.trainer.checkpoint.manifest import BOXES, CONSOLIDATED, DTYPE_BYTES, ShardManifest, TensorSpec
from rankpulse.trainer.checkpoint.reader import ShardFile

_OPEN_MAX: Final = 64  # files held open at a time


class Source:
    """A checkpoint's tensors, by regions. A context manager; every trouble with a file is a Refused."""

    def __init__(self, checkpoint: str, manifest: ShardManifest) -> None:
        self.manifest = manifest
        self.specs = {spec.name: spec for spec in manifest.tensors}
        self._checkpoint = checkpoint
        self._files: OrderedDict[int, ShardFile] = OrderedDict()
        self._flat: dict[str, list[tuple[int, int, str]]] = {}  # start, shard, key; ascending
        self._boxes: dict[str, dict[tuple[int, ...], tuple[int, str, tuple[int, ...]]]] = {}  # by offsets
        flat = Flat(manifest.tensors)
        for shard in manifest.shards:
            for piece in flat.pieces(shard.ranges):
                found = (piece.start, shard.rank, key_of(piece, self.specs[piece.name]))
                self._flat.setdefault(piece.name, []).append(found)
            for box in shard.boxes:
                key = key_of(box, self.specs[box.name])
                self._boxes.setdefault(box.name, {})[box.offsets] = (shard.rank, key, box.sizes)
        for pieces in self._flat.values():
            pieces.sort()

    def chunks(self, name: str) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """The saved chunks of a tensor: (offsets, sizes) each."""
        spec = self.specs[name]
        if spec.layout != BOXES:
            return [((0,) * len(spec.shape), spec.shape)]
        return [(offsets, sizes) for offsets, (_, _, sizes) in self._boxes.get(name, {}).items()]

    def shards_of(self, name: str, offsets: Sequence[int]) -> set[int]:
        """Which shards hold the chunk of a tensor that begins at `offsets`."""
        if self.specs[name].layout == BOXES:
            return {self._boxes[name][tuple(offsets)][0]}
        return {shard for _, shard, _ in self._flat.get(name, ())}

    def sizes_of(self, name: str, offsets: Sequence[int]) -> tuple[int, ...]:
        spec = self.specs[name]
        return spec.shape if spec.layout != BOXES else self._boxes[name][tuple(offsets)][2]

    def read(self, name: str, offsets: Sequence[int], first: int, out: memoryview) -> None:
        """The bytes of a chunk from its element `first` on (row-major) into `out`."""
        spec = self.specs[name]
        width = DTYPE_BYTES[spec.dtype]
        if spec.layout == BOXES:
            shard, key, _ = self._boxes[name][tuple(offsets)]
            self._file(shard).read_into(key, first * width, out)
            return
        pieces = self._flat[name]
        number = bisect_right(pieces, first, key=lambda piece: piece[0]) - 1
        done = 0
        while done < len(out):
            start, shard, key = pieces[number]
            stop = pieces[number + 1][0] if number + 1 < len(pieces) else spec.numel
            at = first + done // width
            count = min((stop - at) * width, len(out) - done)
            self._file(shard).read_into(key, (at - start) * width, out[done : done + count])
            done, number = done + count, number + 1

    def own_values(self, rank: int) -> Any:
        """What rank `rank` kept for itself as JSON; None when it kept nothing."""
        shard = self._own_shard(rank)
        if shard is None or f"{OWN}{rank}.values" not in self._file(shard).keys:
            return None
        try:
            return json.loads(self._file(shard).read(f"{OWN}{rank}.values"))
        except (ValueError, RecursionError):
            path = f"{self._checkpoint}/{self.manifest.shards[shard].path}"
            raise Damaged(path, "JSON", "none, for a rank's own values") from None

    def own_tensor(self, rank: int, name: str, spec: TensorSpec, into: Any) -> None:
        """Fill `into` with one of the rank's own tensors."""
        shard = self._own_shard(rank)
        assert shard is not None
        found = self._file(shard).keys.get(f"{OWN}{rank}.{name}")
        if found is None or (found.dtype, found.shape) != (spec.dtype, spec.shape):
            path = f"{self._checkpoint}/{self.manifest.shards[shard].path}"
            raise Damaged(path, f"{spec.dtype} {list(spec.shape)} for {name!r} of rank {rank}", "something else")
        staged = into if tensors.in_place(into) else tensors.empty(spec.shape, spec.dtype)
        if spec.numel:
            self._file(shard).read_into(f"{OWN}{rank}.{name}", 0, tensors.memory(staged))
        if staged is not into:
            into.copy_(staged)

    def _own_shard(self, rank: int) -> int | None:
        shard = 0 if self.manifest.kind == CONSOLIDATED else rank
        return shard if rank < self.manifest.world_size and self.manifest.shards[shard].own else None

    def own_shard(self, rank: int) -> set[int]:
        found = self._own_shard(rank)
        return set() if found is None else {found}

    def _file(self, shard: int) -> ShardFile:
        file = self._files.pop(shard, None) or ShardFile(self._checkpoint, self.manifest, self.manifest.shards[shard])
        self._files[shard] = file
        if len(self._files) > _OPEN_MAX:
            self._files.popitem(last=False)[1].close()
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        while self._files:
            self._files.popitem()[1].close()


class Reads:
    """What one rank needs of a checkpoint's tensors: (saved name, tensor to fill) each, planned by torch."""

    def __init__(self, source: Source, wanted: Iterable[tuple[str, Any]]) -> None:
        self._source = source
        self._plans = [_plan(source, name, target) for name, target in wanted if target.numel()]

    @property
    def shards(self) -> set[int]:
        """The shards to read from."""
        return {
            shard
            for _, items in self._plans
            for item in items
            for shard in self._source.shards_of(item.storage_index.fqn, item.storage_index.offset)
        }

    def run(self) -> None:
        """Fill the tensors. Raises Refused, and then they hold something between."""
        with torch.no_grad():
            for planner, items in self._plans:
                for item in items:
                    target = planner.resolve_tensor(item).detach()
                    _fill(self._source, item, target)
                    planner.commit_tensor(item, target)


def _plan(source: Source, name: str, target: Any) -> tuple[Any, list[Any]]:
    spec = source.specs[name]
    chunks = [ChunkStorageMetadata(torch.Size(at), torch.Size(sizes)) for at, sizes in source.chunks(name)]
    properties = TensorProperties(dtype=tensors.dtype_of(spec.dtype))
    metadata = Metadata({name: TensorStorageMetadata(properties, torch.Size(spec.shape), chunks)})
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner({name: target}, metadata)
    try:
        return planner, planner.create_local_plan().items
    except (ValueError, RuntimeError) as error:
        raise StateMismatch(f"{name} cannot be read into what the program has: {error}") from None


def _fill(source: Source, item: Any, target: Any) -> None:
    """One region of a chunk into `target`, which has the region's shape."""
    name, offsets = item.storage_index.fqn, item.storage_index.offset
    strides = _row_major(source.sizes_of(name, offsets))
    first = sum(at * stride for at, stride in zip(item.storage_offsets, strides, strict=True))
    lengths = tuple(item.lengths)
    if not target.numel():
        return
    span = 1 + sum((length - 1) * stride for length, stride in zip(lengths, strides, strict=True))
    if span == target.numel() and tensors.in_place(target):
        source.read(name, offsets, first, tensors.memory(target))
        return
    staged = torch.empty(span, dtype=target.dtype)
    source.read(name, offsets, first, tensors.memory(staged))
    target.copy_(staged.as_strided(lengths, strides))


def _row_major(sizes: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def own_specs(values: Mapping[str, Any]) -> dict[str, TensorSpec]:
    """The rank's own tensors by name. Raises ValueError for what is none."""
    found = {}
    for name, row in values["tensors"].items():
        dtype, shape = row
        if dtype not in DTYPE_BYTES or any(type(size) is not int or size < 0 for size in shape):
            raise ValueError("not a tensor")
        found[name] = TensorSpec(name, dtype, tuple(shape))
    return found
