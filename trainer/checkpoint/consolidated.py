"""A consolidated save: one file, written by rank 0, of a state that may be spread over ranks.

Rank 0 asks for a tensor when it comes to write it; the others serve until they are told that it is over. So rank 0 has
one tensor in memory beyond its own, and may stop at any time (its disk is full) without leaving anybody waiting.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Protocol

import torch

from rankpulse.trainer.checkpoint import tensors
from rankpulse.trainer.checkpoint.coverage import OWN
from rankpulse.trainer.checkpoint.division import Division
from rankpulse.trainer.checkpoint.entries import Slice, held, json_entry, key_of_whole, of_own, whole_entry
from rankpulse.trainer.checkpoint.errors import SaveFailed
from rankpulse.trainer.checkpoint.flat import Flat
from rankpulse.trainer.checkpoint.manifest import FLAT, Box, TensorSpec
from rankpulse.trainer.checkpoint.state import Captured
from rankpulse.trainer.checkpoint.writer import Entry

_OVER: Final = -1
_READY: Final = 1


class Wire(Protocol):
    """What `groups.Group` has beyond `Together`."""

    def send(self, data: Any, to: int) -> None: ...

    def receive(self, data: Any, of: int) -> None: ...


@dataclass(frozen=True)
class Source:
    """A whole tensor (`box` None) or a box of one is on `rank`, which serves it under `number`."""

    rank: int
    number: int
    box: Box | None = None


def flat_specs(division: Division) -> tuple[TensorSpec, ...]:
    """The tensors of a consolidated checkpoint: all in one piece."""
    return tuple(TensorSpec(tensor.name, tensor.dtype, tensor.shape, FLAT) for tensor in division.tensors)


def serves(division: Division, rank: int) -> list[tuple[str, Box | None]]:
    """What a rank hands out: the boxes that it would write, and the whole tensors whose first element it would."""
    flat = Flat(division.tensors).pieces(division.ranges[rank])
    return [
        *((piece.name, None) for piece in flat if piece.start == 0),
        *((box.name, box) for box in division.boxes[rank]),
    ]


def served(division: Division, rank: int, state: Captured, own: Iterable[Slice]) -> list[Slice]:
    """The same, to be asked for by number, and then this rank's own tensors."""
    return [*(held(state, name) for name, _ in serves(division, rank)), *own]


@dataclass(frozen=True)
class Holds:
    """What rank 0 has by itself, by name: whole tensors, the boxes that it serves, and those of it alone."""

    whole: Mapping[str, Slice]
    boxes: Mapping[str, Slice]
    own: Mapping[str, Slice]

    def slices(self) -> Iterator[Slice]:
        for part in (self.whole, self.boxes, self.own):
            yield from part.values()

    def moved(self, to: Mapping[Slice, Slice]) -> "Holds":
        """The same, in other memory."""
        return Holds(*({name: to[one] for name, one in part.items()} for part in (self.whole, self.boxes, self.own)))


def holds(division: Division, state: Captured, own: Mapping[str, Slice]) -> Holds:
    names = [spec.name for spec in division.tensors if spec.numel]
    whole = {name: held(state, name) for name in names if (has := state.find(name)) and has.item.box is None}
    boxes = {name: held(state, name) for name, box in serves(division, 0) if box is not None}
    return Holds(whole, boxes, own)


def serve(wire: Wire, handed: Sequence[Slice]) -> None:
    """Hand out what rank 0 asks for, until it says that it is over. Raises then what went wrong here, if anything."""
    trouble: Exception | None = None
    asked = torch.empty(8, dtype=torch.uint8)
    while True:
        wire.receive(asked, 0)
        number = int(asked.view(torch.int64).item())
        if number == _OVER:
            if trouble is not None:
                raise trouble
            return
        data = None
        try:
            data = _packed(handed[number].tensor)
        except Exception as error:
            trouble = error
        wire.send(torch.tensor([0 if data is None else _READY], dtype=torch.uint8), 0)
        if data is not None:
            wire.send(data, 0)


def _packed(tensor: Any) -> Any:
    dense = tensor.detach().cpu().contiguous().resolve_conj().resolve_neg()
    return dense.reshape(-1).view(torch.uint8) if dense.numel() else torch.empty(0, dtype=torch.uint8)


def over(wire: Wire, world_size: int) -> None:
    """Rank 0 has all that it wanted, or gives up."""
    for rank in range(1, world_size):
        wire.send(torch.tensor([_OVER], dtype=torch.int64).view(torch.uint8), rank)


def entries(wire: Wire, division: Division, has: Holds, own: Sequence[Any]) -> list[Entry]:
    """All that goes into the one file, on rank 0. `own`: by rank what its own things are."""
    sources: dict[str, list[Source]] = {}
    firsts = []
    for rank in range(len(division.ranges)):
        handed = serves(division, rank)
        firsts.append(len(handed))
        for number, (name, box) in enumerate(handed):
            sources.setdefault(name, []).append(Source(rank, number, box))
    found = [_tensor_entry(wire, spec, sources.get(spec.name, []), has) for spec in flat_specs(division) if spec.numel]
    for rank, values in enumerate(own):
        found += _own_entries(wire, rank, firsts[rank], values, has.own)
    return found


def _tensor_entry(wire: Wire, spec: TensorSpec, sources: Sequence[Source], has: Holds) -> Entry:
    here = has.whole.get(spec.name)
    if here is not None:
        return whole_entry(spec, here)
    return Entry(key_of_whole(spec), spec.dtype, spec.shape, partial(_gathered, wire, spec, sources, has.boxes))


def _own_entries(wire: Wire, rank: int, first: int, values: Any, mine: Mapping[str, Slice]) -> list[Entry]:
    if rank == 0:
        return of_own(0, values, mine)
    found = [json_entry(f"{OWN}{rank}.values", values)]
    for number, (name, (dtype, shape)) in enumerate(values["tensors"].items(), first):
        spec = TensorSpec(name, dtype, tuple(shape))
        data = partial(_asked_bytes, wire, spec, Source(rank, number))
        found.append(Entry(f"{OWN}{rank}.{name}", dtype, spec.shape, data))
    return found


def _asked_bytes(wire: Wire, spec: TensorSpec, source: Source) -> Iterator[memoryview]:
    yield from tensors.bytes_of(_asked(wire, spec.dtype, spec.shape, source), 0, spec.numel)


def _asked(wire: Wire, dtype: str, shape: Sequence[int], source: Source) -> Any:
    """A piece from another rank, as a CPU tensor."""
    found = tensors.empty(tuple(shape), dtype)
    wire.send(torch.tensor([source.number], dtype=torch.int64).view(torch.uint8), source.rank)
    ready = torch.empty(1, dtype=torch.uint8)
    wire.receive(ready, source.rank)
    if int(ready.item()) != _READY:
        raise SaveFailed(f"rank {source.rank} could not copy a tensor to the CPU")
    if found.numel():
        wire.receive(found.reshape(-1).view(torch.uint8), source.rank)
    return found


def _gathered(
    wire: Wire, spec: TensorSpec, sources: Sequence[Source], boxes: Mapping[str, Slice]
) -> Iterator[memoryview]:
    """The bytes of a whole tensor from where its parts are."""
    whole = tensors.empty(spec.shape, spec.dtype) if any(source.box for source in sources) else None
    for source in sources:
        shape = source.box.sizes if source.box else spec.shape
        part = boxes[spec.name].tensor if source.rank == 0 else _asked(wire, spec.dtype, shape, source)
        if whole is None or source.box is None:
            whole = part
        else:
            whole[
                tuple(slice(at, at + size) for at, size in zip(source.box.offsets, source.box.sizes, strict=True))
            ] = part
    if whole is not None:
        yield from tensors.bytes_of(whole, 0, spec.numel)
