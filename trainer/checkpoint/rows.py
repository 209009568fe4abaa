"""What ranks tell each other of a division and of shards, as JSON and back."""

from typing import Any

from rankpulse.trainer.checkpoint.division import Division
from rankpulse.trainer.checkpoint.manifest import Box, Shard, TensorSpec


def packed(division: Division) -> list[Any]:
    tensors = [[spec.name, spec.dtype, spec.shape, spec.layout] for spec in division.tensors]
    boxes = [[[box.name, box.offsets, box.sizes] for box in mine] for mine in division.boxes]
    return [tensors, division.ranges, boxes]


def unpacked(row: Any) -> Division:
    tensors, ranges, boxes = row
    return Division(
        tuple(TensorSpec(name, dtype, tuple(shape), layout) for name, dtype, shape, layout in tensors),
        tuple(tuple((offset, numel) for offset, numel in mine) for mine in ranges),
        tuple(tuple(Box(name, tuple(offsets), tuple(sizes)) for name, offsets, sizes in mine) for mine in boxes),
    )


def row_of(shard: Shard) -> list[Any]:
    boxes = [[box.name, box.offsets, box.sizes] for box in shard.boxes]
    return [shard.rank, shard.path, shard.bytes, shard.sha256, shard.xxh3, shard.ranges, boxes, shard.own]


def shard_of(row: Any) -> Shard:
    rank, path, size, sha256, xxh3, ranges, boxes, own = row
    return Shard(
        rank,
        path,
        size,
        sha256,
        xxh3,
        tuple((offset, numel) for offset, numel in ranges),
        tuple(Box(name, tuple(offsets), tuple(sizes)) for name, offsets, sizes in boxes),
        own,
    )
