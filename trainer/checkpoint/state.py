"""What the ranks of a job hold at one moment, and what of it belongs to all and what to each.

Captured: the parts of a program as JSON and tensors (no copies). Described: what one rank says of it to the others.
Decided: from the descriptions of all ranks, who writes what (`division`) and what stands in the manifest. A plain
tensor of one name is meant to be the same on all ranks that have it, as DDP has it; samples of the parameters are
compared, and where ranks have drifted apart rank 0's are saved and never a mixture. What ranks may differ in (running
statistics, a scheduler fed with local losses, a position in the data) is compared at every save, and where it differs
each rank's own is kept for that rank; of buffers the first rank's are kept for all as well, as DDP means them.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch
import xxhash
from torch.distributed.checkpoint import DefaultSavePlanner

from rankpulse.trainer.checkpoint import rng, tensors, tree
from rankpulse.trainer.checkpoint.division import Division, Item, describe, divide, replicated, understood
from rankpulse.trainer.checkpoint.errors import StateRefused
from rankpulse.trainer.checkpoint.manifest import Box, TensorSpec
from rankpulse.trainer.checkpoint.optimizers import part_of
from rankpulse.trainer.checkpoint.parts import Model, Prepared, Put, Values

SAMPLED: Final = 16  # elements of a parameter that are compared between ranks
COMPARED_MAX: Final = 1 << 20  # bytes of a tensor in a loose part up to which its values are compared between ranks


class Part(Protocol):
    name: str
    loose: bool

    def encode(self, put: Put) -> Any: ...

    def prepare(self, saved: Any, specs: Mapping[str, TensorSpec]) -> Prepared: ...


def program(
    model: Any, optimizers: Sequence[Any], schedulers: Sequence[Any], scaler: Any, extra: Mapping[str, Any]
) -> tuple[Part, ...]:
    """The parts of a training program. Raises StateRefused for what cannot be saved."""
    if not isinstance(model, torch.nn.Module):
        raise StateRefused(f"model is a {type(model).__name__}: give the torch.nn.Module (several: as one ModuleList)")
    stepped = [optimizer for optimizer in optimizers if isinstance(optimizer, torch.optim.Optimizer)]
    parts: list[Part] = [Model("model", model, stepped)]
    parts += [part_of(f"optim.{at}", optimizer, model) for at, optimizer in enumerate(optimizers)]
    parts += [Values(f"scheduler.{at}", scheduler) for at, scheduler in enumerate(schedulers)]
    parts += [Values("scaler", scaler)] if scaler is not None else []
    return (*parts, *mapped({f"extra.{name}": held for name, held in extra.items()}))


def mapped(held: Mapping[str, Any]) -> tuple[Part, ...]:
    """Parts by name: modules, objects with state_dict() and load_state_dict(), dicts of tensors and values."""
    return tuple(
        Model(name, value) if isinstance(value, torch.nn.Module) else Values(name, value)
        for name, value in held.items()
    )


@dataclass(frozen=True)
class Held:
    """What this rank has of one tensor: `local`, a plain tensor, is all of it or the box that `item` says. `living`:
    the program's own, whose version counts changes in place."""

    item: Item
    local: Any
    living: Any


@dataclass(frozen=True)
class Captured:
    """The state of this rank, as it is: the tensors are those of the program."""

    values: dict[str, Any]  # by part, as JSON
    held: dict[str, dict[str, Held]]  # by part, by name of the tensor
    first_rank_only: frozenset[str]
    stepped: frozenset[str]  # nothing but an optimizer's step changes these
    compared: dict[str, str]  # what loose parts hold, by part: differs where ranks differ
    buffers: str  # what the buffers hold
    samples: dict[str, str]  # of a few elements of each plain parameter
    rng: Any  # JSON
    rng_tensors: dict[str, Any]
    drifted: frozenset[str] = frozenset()  # parameters in which ranks differ

    def find(self, name: str) -> Held | None:
        return next((part[name] for part in self.held.values() if name in part), None)

    def local(self, name: str) -> Any:
        """What this rank holds of a tensor, as a plain one."""
        return self.named(name).local

    def named(self, name: str) -> Held:
        found = self.find(name)
        if found is None:
            raise KeyError(name)
        return found


def captured(parts: Iterable[Part]) -> Captured:
    """Raises StateRefused. Draws no random numbers, changes nothing."""
    values: dict[str, Any] = {}
    held: dict[str, dict[str, Held]] = {}
    only: set[str] = set()
    stepped: set[str] = set()
    parts = tuple(parts)
    for part in parts:
        put = Put()
        values[part.name] = part.encode(put)
        held[part.name] = held_of(put.tensors)
        only |= put.first_rank_only
        stepped |= put.stepped
    return assembled(parts, values, held, only, stepped, rng.captured())


def assembled(
    parts: Iterable[Part],
    values: dict[str, Any],
    held: dict[str, dict[str, Held]],
    only: Collection[str],
    stepped: Collection[str],
    generators: Mapping[str, Any],
) -> Captured:
    """From what each part holds, and the random number generators as `rng.captured` has them. Raises StateRefused."""
    compared: dict[str, str] = {}
    samples: dict[str, str] = {}
    for part in parts:
        mine = held[part.name]
        samples |= _samples(mine, only) if isinstance(part, Model) else {}
        if part.loose and not any(tensors.is_dtensor(has.living) for has in mine.values()):
            compared[part.name] = _content(values[part.name], mine.values())
    _distinct(held)
    put = Put()
    own = tree.encode(dict(generators), "rng", put.leaf)
    loners = [has for names in held.values() for name, has in names.items() if name in only]
    buffers = _content("", loners)
    return Captured(values, held, frozenset(only), frozenset(stepped), compared, buffers, samples, own, put.tensors)


def held_of(found: Mapping[str, Any]) -> dict[str, Held]:
    """What is here of each of these tensors."""
    boxed = {name: tensor for name, tensor in found.items() if tensors.is_dtensor(tensor) and tensor.numel()}
    held = _boxes(boxed) if boxed else {}
    for name, tensor in found.items():
        if name not in boxed:
            local = tensors.local_part(tensor)
            held[name] = Held(Item(name, tensors.dtype_name(local.dtype), tuple(tensor.shape)), local, tensor)
    return {name: held[name] for name in found if name in held}


def _boxes(boxed: dict[str, Any]) -> dict[str, Held]:
    """DTensors, by torch's planner: which box of each is here. A rank outside a tensor's mesh has none."""
    planner = DefaultSavePlanner(flatten_state_dict=False)
    planner.set_up_planner(boxed, is_coordinator=False)
    held = {}
    for write in planner.create_local_plan().items:
        name, chunk = write.index.fqn, write.tensor_data.chunk
        if chunk.sizes.numel():
            box = Box(name, tuple(chunk.offsets), tuple(chunk.sizes))
            local = planner.resolve_data(write).detach()
            item = Item(name, tensors.dtype_name(local.dtype), tuple(boxed[name].shape), box)
            held[name] = Held(item, local, boxed[name])
    return held


def _distinct(held: Mapping[str, Mapping[str, Held]]) -> None:
    seen: set[str] = set()
    for names in held.values():
        twice = seen & names.keys()
        if twice:
            raise StateRefused(
                f"two parts of the state both name a tensor {min(twice)!r}: give one of them another name"
            )
        seen |= names.keys()


def _content(value: Any, held: Iterable[Held]) -> str:
    hasher = xxhash.xxh3_128(json.dumps(value).encode())
    for has in held:
        if tensors.nbytes(has.local) <= COMPARED_MAX:
            for view in tensors.bytes_of(has.local, 0, has.local.numel()):
                hasher.update(view)
    return hasher.hexdigest()


def _samples(held: Mapping[str, Held], without: Collection[str]) -> dict[str, str]:
    """A digest of a few elements of each tensor that is here as a whole. One copy from each device."""
    picked: dict[Any, list[tuple[str, Any]]] = {}
    for name, has in held.items():
        local = has.local
        if has.item.box is None and name not in without and local.is_contiguous() and local.numel():
            flat = local.view(-1)
            few = flat[:: max(1, flat.numel() // SAMPLED)][:SAMPLED].contiguous().view(torch.uint8)
            picked.setdefault(local.device, []).append((name, few))
    found = {}
    for samples in picked.values():
        copied = torch.cat([few for _, few in samples]).cpu().split([few.numel() for _, few in samples])
        for (name, _), here in zip(samples, copied, strict=True):
            found[name] = xxhash.xxh3_64_hexdigest(bytes(tensors.memory(here)))
    return found


def drifted(told: Sequence[Mapping[str, str]]) -> list[str]:
    """The names of which two ranks gave different samples."""
    seen: dict[str, str] = {}
    return sorted(
        {name for samples in told for name, digest in samples.items() if seen.setdefault(name, digest) != digest}
    )


def structure(state: Captured) -> dict[str, Any]:
    """What this rank tells of its tensors: the same text on ranks that hold the same, and at the next save of a
    program that has not changed."""
    return {
        name: {
            "items": describe(has.item for has in held.values()),
            "one": sorted((state.first_rank_only | state.drifted) & held.keys()),
            "loose": name in state.compared,
        }
        for name, held in state.held.items()
    }


def told_values(state: Captured) -> dict[str, Any]:
    """What this rank tells of what is not a tensor, of the parts in which ranks do not differ as a whole."""
    return {name: value for name, value in state.values.items() if name not in state.compared}


def alike(told: Mapping[str, Any]) -> bool:
    """Whether a structure, if all ranks tell it, needs nobody to divide: it has no boxes."""
    return not any(row[3] for part in told.values() for row in part["items"])


def differing(told: Sequence[Mapping[str, str]]) -> list[str]:
    """The loose parts in which ranks differ: each keeps its own."""
    return [name for name, digest in told[0].items() if any(tells.get(name) != digest for tells in told)]


def divided(told: Sequence[Mapping[str, Any]], own: Sequence[str]) -> Division:
    """Who writes what, from the structures of all ranks in their order; without the parts in `own`.

    The same text from all ranks may be given once for all (`[told] * world_size`). Raises StateRefused.
    """
    _same_parts(told)
    taken: set[str] = set()  # of the buffers: by a lower rank already
    held: list[list[Item]] = []
    known: dict[int, tuple[list[Item], set[str]]] = {}
    for tells in told:
        if id(tells) not in known:
            known[id(tells)] = _items(tells, own)
        items, one = known[id(tells)]
        held.append([item for item in items if item.name not in taken or item.name not in one] if taken else items)
        taken |= one
    same = len(known) == 1 and not taken and alike(told[0])
    return replicated(held[0], len(held)) if same else divide(held)


def _same_parts(told: Sequence[Mapping[str, Any]]) -> None:
    for rank, tells in enumerate(told):
        if list(tells) != list(told[0]):
            raise StateRefused(
                f"rank {rank} was given other parts of a state ({list(tells)}) than rank 0 ({list(told[0])})"
            )


def _items(tells: Mapping[str, Any], own: Sequence[str]) -> tuple[list[Item], set[str]]:
    items = [item for name, part in tells.items() if name not in own for item in understood(part["items"])]
    return items, {one for name, part in tells.items() if name not in own for one in part["one"]}


def merged(first: Captured, own: Sequence[str], told: Sequence[Mapping[str, Any]]) -> Any:
    """What a manifest says beside tensors: `first` is the state of rank 0, `told` the values of all ranks (or of one,
    where all told the same)."""
    values = {name: _merged(name, first, told) for name in first.values if name not in own}
    return {"parts": values, "own": list(own)}


def _merged(name: str, first: Captured, told: Sequence[Mapping[str, Any]]) -> Any:
    """The values of one part: rank 0's, and what others have beyond it: a part of an optimizer, of a pipeline."""
    value = first.values[name]
    if name in first.compared or not isinstance(value, dict) or "state" not in value:
        return value
    state = dict(value["state"])
    groups = [{**group, "params": list(group["params"])} for group in value.get("groups", ())]
    for tells in told[1:]:
        other = tells[name]
        state = {**other["state"], **state}
        for group, more in zip(groups, other.get("groups", ()), strict=False):
            known = set(group["params"])
            group["params"] += [param for param in more["params"] if param not in known]
    return {**value, "state": state, **({"groups": groups} if groups else {})}


def own_state(state: Captured, parts: Sequence[str], buffers: bool) -> tuple[Any, dict[str, Any]]:
    """What belongs to this rank alone (`parts`, and its buffers if ranks differ in them): JSON, and plain tensors."""
    names = sorted(state.first_rank_only) if buffers else []
    values = {"rng": state.rng, "parts": {name: state.values[name] for name in parts}, "buffers": names}
    found = state.rng_tensors | {name: state.local(name) for name in names}
    for name in parts:
        found |= {held: has.local for held, has in state.held[name].items()}
    shapes = {name: [tensors.dtype_name(tensor.dtype), list(tensor.shape)] for name, tensor in found.items()}
    return {**values, "tensors": shapes}, found
