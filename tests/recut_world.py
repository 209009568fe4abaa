"""Checkpoints made by the storage layer alone, without torch, for the tests of what works on them offline."""

import json
import math
import os
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rankpulse.trainer.checkpoint import writer
from rankpulse.trainer.checkpoint.coverage import OWN
from rankpulse.trainer.checkpoint.division import Item, divide, key_of, pieces
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import DTYPE_BYTES, SHARDED, Box, ShardManifest


@dataclass(frozen=True)
class Tensor:
    """A whole tensor. `cuts`: along every dimension into how many parts it is cut, one box per rank; none: flat."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes
    cuts: tuple[int, ...] = ()


def tensor(dtype: str, shape: tuple[int, ...], seed: int = 0, cuts: tuple[int, ...] = ()) -> Tensor:
    size = math.prod(shape) * DTYPE_BYTES[dtype]
    return Tensor(dtype, shape, random.Random(f"{seed}{dtype}{shape}").randbytes(size), cuts)


def changed(one: Tensor, element: int, data: bytes) -> Tensor:
    at = element * DTYPE_BYTES[one.dtype]
    return replace(one, data=one.data[:at] + data + one.data[at + len(data) :])


def boxes_of(name: str, one: Tensor) -> list[Box]:
    """Row-major over the cuts; the last part of a dimension may be shorter."""
    spans = []
    for size, parts in zip(one.shape, one.cuts, strict=True):
        step = -(-size // parts)
        spans.append([(at, min(step, size - at)) for at in range(0, size, step)])
    boxes: list[list[tuple[int, int]]] = [[]]
    for dim in spans:
        boxes = [[*box, span] for box in boxes for span in dim]
    return [Box(name, tuple(at for at, _ in box), tuple(n for _, n in box)) for box in boxes]


def box_bytes(one: Tensor, box: Box) -> bytes:
    """Element by element: slow, and with nothing in common with what it checks."""
    width, out = DTYPE_BYTES[one.dtype], []
    for number in range(math.prod(box.sizes)):
        at, rest = 0, number
        place = []
        for size in reversed(box.sizes):
            rest, inner = divmod(rest, size)
            place.append(inner)
        for dim, inner in enumerate(reversed(place)):
            at = at * one.shape[dim] + box.offsets[dim] + inner
        out.append(one.data[at * width : (at + 1) * width])
    return b"".join(out)


def save(directory: Path | str, tensors: Mapping[str, Tensor], world: int = 2, step: int = 10, **more: Any) -> str:
    """A committed checkpoint; its path. more: kind, own (default True), values, metrics, run_id, round, at."""
    kind, save_id, files = more.get("kind", SHARDED), os.urandom(4).hex(), Files()
    held: list[list[Item]] = [[] for _ in range(world)]
    for name, one in tensors.items():
        if one.cuts:
            for rank, box in enumerate(boxes_of(name, one)):
                held[rank].append(Item(name, one.dtype, one.shape, box))
        else:
            for items in held:
                items.append(Item(name, one.dtype, one.shape))
    cut = divide(held if kind == SHARDED else held[:1])
    attempt = writer.begin(files, str(directory), step, save_id)
    shards = []
    for rank in range(world if kind == SHARDED else 1):
        specs = {spec.name: spec for spec in cut.tensors}
        entries = []
        for piece in pieces(cut.tensors, cut.ranges[rank]):
            one = tensors[piece.name]
            width = DTYPE_BYTES[one.dtype]
            data = one.data[piece.start * width : (piece.start + piece.numel) * width]
            shape = one.shape if piece.numel == specs[piece.name].numel else (piece.numel,)
            entries.append(entry(key_of(piece, specs[piece.name]), one.dtype, shape, data))
        for box in cut.boxes[rank]:
            one = tensors[box.name]
            entries.append(entry(key_of(box, specs[box.name]), one.dtype, box.sizes, box_bytes(one, box)))
        owners = [rank] if kind == SHARDED else range(world)
        if more.get("own", True):
            for owner in owners:
                entries += own_entries(owner)
        shards.append(
            writer.write_shard(
                files,
                attempt,
                rank=rank,
                world_size=world,
                step=step,
                save_id=save_id,
                entries=entries,
                ranges=cut.ranges[rank],
                boxes=cut.boxes[rank],
                own=more.get("own", True),
            )
        )
    writer.commit(
        files,
        attempt,
        ShardManifest(
            kind,
            step,
            world,
            save_id,
            more.get("at", time.time()),
            cut.tensors,
            tuple(shards),
            values=more.get("values", {"lr": 0.5}),
            metrics=more.get("metrics", {"loss": 1.5}),
            run_id=more.get("run_id", "llama"),
            run_uid="0123abcd",
            round=more.get("round", 3),
        ),
    )
    return attempt


def entry(key: str, dtype: str, shape: tuple[int, ...], data: bytes) -> writer.Entry:
    return writer.Entry(key, dtype, shape, lambda: [memoryview(data)])


def own_entries(rank: int) -> list[writer.Entry]:
    values = json.dumps({"of": rank}).encode()
    rng = random.Random(rank).randbytes(100 + rank)
    return [
        entry(f"{OWN}{rank}.values", "U8", (len(values),), values),
        entry(f"{OWN}{rank}.rng.torch", "U8", (len(rng),), rng),
    ]


def flip(path: Path | str, at: int = -1) -> None:
    """One bit of a file, by default of its last byte."""
    data = bytearray(Path(path).read_bytes())
    data[at] ^= 1
    Path(path).write_bytes(data)
