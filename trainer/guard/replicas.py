"""Which tensors of this rank others hold alike, and who these are.

Of DTensors (FSDP2's hybrid sharding, tensor parallel) the mesh and the placements say it; of DDP its process group.
What each rank holds alone (a shard of plain FSDP) nobody can compare.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
import xxhash
from torch.nn.parallel import DistributedDataParallel


@dataclass
class Group:
    """Tensors that the ranks `members` (of the world) hold alike. `id`: the same number on all of them."""

    members: tuple[int, ...]
    names: list[str] = field(default_factory=list)
    tensors: list[Any] = field(default_factory=list)

    @property
    def id(self) -> int:
        shapes = [list(tensor.shape) for tensor in self.tensors]
        return int(xxhash.xxh3_64_intdigest(json.dumps([self.members, self.names, shapes]).encode()))

    @property
    def bytes(self) -> int:
        return int(sum(tensor.numel() * tensor.element_size() for tensor in self.tensors))


def groups(model: Any, optimizers: Sequence[Any] = (), replicas: Sequence[int] | None = None) -> list[Group]:
    """The groups of this rank, the largest first. `replicas`: ranks that hold all of it alike, this one among them.

    Raises ValueError where nothing says who holds a plain model alike.
    """
    everywhere = tuple(sorted(replicas)) if replicas is not None else _of_ddp(model)
    alone = _left_to_ranks(model) if replicas is None else set()
    found: dict[tuple[int, ...], Group] = {}
    for name, tensor, parameter in _named(model, optimizers):
        members = _of_mesh(tensor) if _is_dtensor(tensor) else None if parameter in alone else everywhere
        if replicas is not None:
            members = everywhere
        if members is None or len(members) < 2:
            continue
        group = found.setdefault(members, Group(members))
        group.names.append(name)
        group.tensors.append(tensor.to_local() if _is_dtensor(tensor) else tensor)
    return sorted(found.values(), key=lambda group: (-group.bytes, group.members))


def _named(model: Any, optimizers: Iterable[Any]) -> Iterator[tuple[str, Any, Any]]:
    """Parameters, and what an optimizer has of the shape of one: its name, itself, and the parameter."""
    names: dict[Any, str] = {}
    for name, parameter in model.named_parameters():
        names[parameter] = name
        yield name, parameter, parameter
    for at, optimizer in enumerate(optimizers):
        for parameter, state in getattr(optimizer, "state", {}).items():
            for key in sorted(state, key=str):
                value = state[key]
                if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
                    yield f"{at}.{names.get(parameter, '?')}.{key}", value, parameter


def _is_dtensor(tensor: Any) -> bool:
    return hasattr(tensor, "device_mesh") and hasattr(tensor, "placements")


def _of_mesh(tensor: Any) -> tuple[int, ...] | None:
    """Who has the same part of a DTensor: those that differ from this rank in replicated dimensions only."""
    mesh, place = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    if place is None or any(placement.is_partial() for placement in tensor.placements):
        return None
    where = tuple(
        slice(None) if placement.is_replicate() else at for placement, at in zip(tensor.placements, place, strict=True)
    )
    return tuple(sorted(int(rank) for rank in mesh.mesh[where].reshape(-1).tolist()))


def _of_ddp(model: Any) -> tuple[int, ...] | None:
    """The ranks of DDP, however deep it is wrapped; None for what is not under DDP."""
    for module in model.modules():
        if isinstance(module, DistributedDataParallel):
            return tuple(sorted(dist.get_process_group_ranks(module.process_group)))
    return None


def _left_to_ranks(model: Any) -> set[Any]:
    """Parameters that DDP was told to ignore (experts, mostly): each rank has its own."""
    every = (module for module in model.modules() if isinstance(module, DistributedDataParallel))
    return {
        parameter
        for ddp in every
        for name, parameter in ddp.module.named_parameters()
        if name in getattr(ddp, "parameters_to_ignore", ())
    }
