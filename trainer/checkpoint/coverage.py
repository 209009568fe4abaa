"""Whether the shards of a manifest hold every element of the state exactly once, and under which keys. Values only."""

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Final, NamedTuple

from rankpulse.trainer.checkpoint.flat import Flat, Piece
from rankpulse.trainer.checkpoint.manifest import BOXES, DTYPE_BYTES, Box, Shard, ShardManifest, TensorSpec
from rankpulse.trainer.checkpoint.strictjson import shown

OWN: Final = "rankpulse.own."  # keys of what belongs to one rank alone: this, its number, a dot, a name
META: Final = "rankpulse"  # the key in a shard's __metadata__
_CUT_DIMENSIONS: Final = 10  # more dimensions cut at once are refused: the check doubles with each


def uncovered(manifest: ShardManifest) -> str:
    """What of the state no shard holds, or more than one, by tensor and range; "" when each element is there once."""
    boxes: dict[str, list[Box]] = {}
    for shard in manifest.shards:
        for box in shard.boxes:
            boxes.setdefault(box.name, []).append(box)
    trouble = _flat_trouble(manifest)
    for tensor in manifest.tensors:
        if not trouble and tensor.layout == BOXES:
            trouble = _boxes_trouble(tensor, boxes.get(tensor.name, []))
    return trouble


def _flat_trouble(manifest: ShardManifest) -> str:
    flat = Flat(manifest.tensors)
    end = 0
    for offset, numel in sorted(part for shard in manifest.shards for part in shard.ranges):
        if offset > end:
            return f"{_where(flat, end, offset)} is in no shard"
        if offset < end:
            return f"{_where(flat, offset, min(end, offset + numel))} is in more than one shard"
        end = offset + numel
    if end > flat.total:
        return f"a shard holds elements up to {end} of a state of {flat.total}"
    return f"{_where(flat, end, flat.total)} is in no shard" if end < flat.total else ""


def _where(flat: Flat, start: int, stop: int) -> str:
    """The first piece in [start, stop) of the flat state, in words."""
    for piece in flat.pieces([(start, stop - start)]):
        return f"tensor {shown(piece.name)}[{piece.start}:{piece.start + piece.numel}]"
    return f"[{start}:{stop}] behind the end of the state"


def _boxes_trouble(tensor: TensorSpec, boxes: Sequence[Box]) -> str:
    # a box lies inside its tensor: one of full size begins at 0
    cut = [axis for axis, size in enumerate(tensor.shape) if any(box.sizes[axis] != size for box in boxes)]
    held = sum(box.numel for box in boxes)
    if len(cut) > _CUT_DIMENSIONS:
        return (
            f"tensor {shown(tensor.name)} is cut along {len(cut)} dimensions, at most {_CUT_DIMENSIONS} are understood"
        )
    if held != tensor.numel:
        return f"{held} of the {tensor.numel} elements of tensor {shown(tensor.name)} are in the shards"
    tiled = _tiled_line(boxes, cut[0]) if len(cut) == 1 else _tiled(tensor, boxes, cut)
    return "" if tiled else f"of tensor {shown(tensor.name)} some elements are in two shards and others in none"


def _tiled_line(boxes: Sequence[Box], axis: int) -> bool:
    """Whether boxes that are cut along one dimension only follow each other without a gap."""
    end = 0
    for offset, size in sorted((box.offsets[axis], box.sizes[axis]) for box in boxes):
        if offset != end:
            return False
        end = offset + size
    return True


def _tiled(tensor: TensorSpec, boxes: Sequence[Box], cut: Sequence[int]) -> bool:
    """Whether the boxes hold every element of the tensor exactly once.

    A box is a signed sum of orthants, one at each of its corners, and orthants at different points are linearly
    independent. So boxes tile the tensor exactly when their signed corners add up to those of the tensor: linear in
    the number of boxes, with no pair of them compared.
    """
    if not tensor.numel:
        return not boxes
    corners: Counter[tuple[int, ...]] = Counter()
    whole = Box(tensor.name, (0,) * len(tensor.shape), tensor.shape)
    for weight, box in [(-1, whole), *((1, box) for box in boxes)]:
        ends = [(box.offsets[axis], box.offsets[axis] + box.sizes[axis]) for axis in cut]
        for picks in product((0, 1), repeat=len(cut)):
            corners[tuple(end[pick] for end, pick in zip(ends, picks, strict=True))] += weight * (-1) ** sum(picks)
    return not any(corners.values())


def key_of(part: Piece | Box, spec: TensorSpec) -> str:
    """The key of a part of tensor `spec` in a shard: its name, `name[start:stop]` or `name@o0,o1`.

    Never parsed, only computed again. A name with `[`, `@` or `%` in it, or that begins as our own keys do, has these
    characters as %XX: no two parts of any two tensors have the same key.
    """
    name = spec.name
    if "%" in name or "[" in name or "@" in name:
        name = name.replace("%", "%25").replace("[", "%5B").replace("@", "%40")
    if name.startswith(("rankpulse.", "__metadata__")):
        name = f"%{ord(name[0]):02X}{name[1:]}"
    if isinstance(part, Piece):
        return name if part.numel == spec.numel else f"{name}[{part.start}:{part.start + part.numel}]"
    return name if part.sizes == spec.shape else f"{name}@{','.join(map(str, part.offsets))}"


class _Index(NamedTuple):
    tensors: tuple[TensorSpec, ...]
    specs: dict[str, TensorSpec]
    flat: Flat


_latest: list[_Index] = []  # of the manifest asked for last: a thousand shards of it are looked at in a row


def _index_of(tensors: tuple[TensorSpec, ...]) -> _Index:
    found = next((index for index in _latest if index.tensors is tensors), None)
    if found is None:
        found = _Index(tensors, {tensor.name: tensor for tensor in tensors}, Flat(tensors))
        _latest[:] = [found]
    return found


def expected(manifest: ShardManifest, shard: Shard) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The keys of the parts that the shard's file must hold, each with its dtype and shape; not the ranks' own ones."""
    _, specs, flat = _index_of(manifest.tensors)
    found: dict[str, tuple[str, tuple[int, ...]]] = {}
    for piece in flat.pieces(shard.ranges):
        spec = specs[piece.name]
        found[key_of(piece, spec)] = (spec.dtype, spec.shape if piece.numel == spec.numel else (piece.numel,))
    for box in shard.boxes:
        spec = specs[box.name]
        found[key_of(box, spec)] = (spec.dtype, box.sizes)
    return found


def oversized(manifest: ShardManifest) -> str:
    """The first shard whose file is too small for what it is said to hold, in words; "" when none is."""
    flat = Flat(manifest.tensors)
    widths = {tensor.name: DTYPE_BYTES[tensor.dtype] for tensor in manifest.tensors}
    for shard in manifest.shards:
        data = sum(flat.bytes_up_to(offset + numel) - flat.bytes_up_to(offset) for offset, numel in shard.ranges)
        data += sum(box.numel * widths[box.name] for box in shard.boxes)
        if data > shard.bytes:
            return f"{shard.path} of {shard.bytes} bytes is said to hold {data} bytes of tensors"
    return ""
