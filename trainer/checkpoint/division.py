"""Who writes what: the state of a job divided over its ranks, each part once, about equal bytes each. Values only.

Tensors that ranks hold whole are laid end to end (first those that all hold, then by who holds them), and each such
section is cut into one contiguous range per holder, anywhere between two elements. Of tensors held in boxes every
distinct box is written by one of its holders. The same descriptions give the same division everywhere.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from rankpulse.trainer.checkpoint import strictjson as strict
from rankpulse.trainer.checkpoint.coverage import key_of, uncovered
from rankpulse.trainer.checkpoint.errors import StateRefused
from rankpulse.trainer.checkpoint.flat import Flat, Piece, Range, pieces
from rankpulse.trainer.checkpoint.manifest import BOXES, DTYPE_BYTES, FLAT, Box, TensorSpec

__all__ = [
    "Division", "Flat", "Item", "Piece", "Range", "describe", "divide", "key_of", "pieces", "replicated", "uncovered",
    "understood",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Item:
    """What one rank holds of one tensor: all of it (`box` None), or a box of it. `shape` is always the full one."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    box: Box | None = None


@dataclass(frozen=True, slots=True)
class Division:
    """The tensors in the manifest's order, and by rank what that rank writes."""

    tensors: tuple[TensorSpec, ...]
    ranges: tuple[tuple[Range, ...], ...]
    boxes: tuple[tuple[Box, ...], ...]


def replicated(items: Sequence[Item], world: int) -> Division:
    """The division when every one of `world` ranks holds the same `items`, all whole (DDP)."""
    seen: set[str] = set()
    for item in items:
        if item.name in seen or item.box is not None:
            raise StateRefused(f"tensor {strict.shown(item.name)} twice, or not whole, in a state that all ranks hold")
        seen.add(item.name)
    tensors = tuple(_spec(item) for item in items)
    flat = Flat(tensors)
    shares = flat.shared(0, flat.total, world)
    return Division(tensors, tuple((share,) if share[1] else () for share in shares), ((),) * world)


def divide(held: Sequence[Sequence[Item]]) -> Division:
    """The division of a state of which rank r holds `held[r]`.

    Raises StateRefused when ranks disagree about a tensor's dtype, shape or layout.
    """
    specs, holders, boxed = _collected(held)
    sections: dict[tuple[int, ...], list[TensorSpec]] = {}
    for name, who in holders.items():
        sections.setdefault(tuple(who), []).append(specs[name])
    order = sorted(sections, key=lambda ranks: (-len(ranks), ranks))
    ordered = [tensor for ranks in order for tensor in sections[ranks]]
    flat = Flat(ordered)
    ranges: list[list[Range]] = [[] for _ in held]
    first = 0
    for ranks in order:
        stop = first + sum(tensor.numel for tensor in sections[ranks])
        for rank, share in zip(ranks, flat.shared(first, stop, len(ranks)), strict=True):
            _append(ranges[rank], share)
        first = stop
    loads = [sum(flat.bytes_up_to(at + numel) - flat.bytes_up_to(at) for at, numel in mine) for mine in ranges]
    cut = tuple(tensor for tensor in specs.values() if tensor.layout == BOXES)
    return Division(tuple(ordered) + cut, tuple(map(tuple, ranges)), _given(boxed, loads))


def _append(ranges: list[Range], share: Range) -> None:
    if share[1] and ranges and ranges[-1][0] + ranges[-1][1] == share[0]:
        ranges[-1] = (ranges[-1][0], ranges[-1][1] + share[1])
    elif share[1]:
        ranges.append(share)


_Place = tuple[tuple[int, ...], tuple[int, ...]]  # offsets and sizes


@dataclass(slots=True)
class _Boxed:
    """A distinct box, and the ranks that hold it."""

    box: Box
    nbytes: int
    holders: list[int]


def _collected(
    held: Sequence[Sequence[Item]],
) -> tuple[dict[str, TensorSpec], dict[str, list[int]], list[_Boxed]]:
    """All tensors by name; the holders of the whole ones; each distinct box with its holders."""
    specs: dict[str, TensorSpec] = {}
    holders: dict[str, list[int]] = {}
    boxed: dict[str, dict[_Place, _Boxed]] = {}
    for rank, items in enumerate(held):
        for item in items:
            spec = specs.get(item.name)
            if spec is None:
                spec = specs[item.name] = _spec(item)
            elif item.dtype != spec.dtype or item.shape != spec.shape or (item.box is None) != (spec.layout == FLAT):
                raise StateRefused(_differ(rank, item, spec))
            who = holders.setdefault(item.name, []) if item.box is None else _holders(boxed, item, item.box)
            if who and who[-1] == rank:
                raise StateRefused(f"rank {rank} holds tensor {strict.shown(item.name)} twice: names must be unique")
            who.append(rank)
    return specs, holders, [one for boxes in boxed.values() for one in boxes.values()]


def _holders(boxed: dict[str, dict[_Place, _Boxed]], item: Item, box: Box) -> list[int]:
    boxes = boxed.setdefault(item.name, {})
    place = (box.offsets, box.sizes)
    known = boxes.get(place)
    if known is None:
        known = boxes[place] = _Boxed(box, box.numel * DTYPE_BYTES[item.dtype], [])
    return known.holders


def _layout(item: Item) -> str:
    return FLAT if item.box is None else BOXES


def _spec(item: Item) -> TensorSpec:
    return TensorSpec(item.name, item.dtype, item.shape, _layout(item))


def _differ(rank: int, item: Item, spec: TensorSpec) -> str:
    mine = f"{item.dtype} {list(item.shape)} ({_layout(item)})"
    theirs = f"{spec.dtype} {list(spec.shape)} ({spec.layout})"
    return (
        f"tensor {strict.shown(item.name)} is {mine} on rank {rank} and {theirs} on a lower rank:"
        " give different tensors different names"
    )


def _given(boxed: Sequence[_Boxed], loads: list[int]) -> tuple[tuple[Box, ...], ...]:
    """Each box to the holder with the least to write so far, the large boxes first."""
    loads = list(loads)
    given: list[list[Box]] = [[] for _ in loads]
    for one in sorted(boxed, key=lambda one: -one.nbytes):
        rank = one.holders[0]
        for other in one.holders[1:]:
            if loads[other] < loads[rank]:
                rank = other
        if one.nbytes:
            loads[rank] += one.nbytes
            given[rank].append(one.box)
    return tuple(map(tuple, given))


def describe(items: Iterable[Item]) -> list[Any]:
    """`items` as a JSON value: [name, dtype, shape, null or [offsets, sizes]] each."""
    return [
        [item.name, item.dtype, list(item.shape), [list(item.box.offsets), list(item.box.sizes)] if item.box else None]
        for item in items
    ]


def understood(value: Any) -> tuple[Item, ...]:
    """What `describe` said. Raises StateRefused when it is something else."""
    try:
        return tuple(_understood(row) for row in strict.items(value, "a description"))
    except strict.Unfit as unfit:
        raise StateRefused(f"what another rank says that it holds is not understood: {unfit}") from None


def _understood(row: Any) -> Item:
    row = strict.items(row, "an item")
    if len(row) != 4 or type(row[1]) is not str or row[1] not in DTYPE_BYTES:
        raise strict.Unfit("[name, dtype, shape, box]", row)
    name, shape = strict.text(row[0], "a tensor's name"), strict.integers(row[2], "a shape")
    if row[3] is None:
        return Item(name, row[1], shape)
    box = strict.items(row[3], "a box")
    if len(box) != 2:
        raise strict.Unfit("a box [offsets, sizes]", box)
    return Item(name, row[1], shape, Box(name, strict.integers(box[0], "offsets"), strict.integers(box[1], "sizes")))
