"""The parts of a state: a model, an optimizer, anything with state_dict(), a dict of tensors and values.

Each part says what it holds as JSON in which tensors stand by name (`encode`), and takes such JSON back in two steps:
`prepare` checks it against the living object and says into which memory which tensors are to be read; `finish`, called
when all of them have been, gives the object its values. Tensors are read into the memory of the living ones: no second
copy of the state is made.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import get_model_state_dict

from rankpulse.trainer.checkpoint import tensors, tree
from rankpulse.trainer.checkpoint.errors import StateMismatch, StateRefused
from rankpulse.trainer.checkpoint.manifest import TensorSpec

NAME_MAX = 1024  # characters of a tensor's name, as a manifest takes them


@dataclass
class Put:
    """Where parts put the tensors that they come upon: by name, plain ones and DTensors."""

    tensors: dict[str, Any] = field(default_factory=dict)
    first_rank_only: set[str] = field(default_factory=set)  # every rank has one, and rank 0's is meant
    stepped: set[str] = field(default_factory=set)  # nothing but the step of one of torch's optimizers changes these

    def leaf(self, value: Any, path: str) -> Any:
        """For `tree.encode`: the JSON that stands for a tensor, or for what else torch has."""
        if isinstance(value, torch.Tensor):
            return self.tensor(value, path)
        if isinstance(value, torch.Size):
            return {"size": list(value)}
        if isinstance(value, torch.dtype | torch.device):
            return {type(value).__name__: str(value).removeprefix("torch.")}
        return NotImplemented

    def tensor(self, value: Any, path: str) -> str:
        tensors.refuse_unsavable(value, path)
        name = path
        while name in self.tensors:  # {"a.b": x, "a": {"b": y}}
            name += "'"
        if len(name) > NAME_MAX or not tree.writable(name):
            raise StateRefused(f"{path[:60]!r}...: a tensor's name is text of at most {NAME_MAX} characters")
        self.tensors[name] = value
        return name


def taken(payload: Any, found: Mapping[str, Any]) -> Any:
    """What a leaf stands for; `found` has the tensors by name."""
    if isinstance(payload, str):
        return found[payload]
    if isinstance(payload, dict) and len(payload) == 1:
        kind, value = next(iter(payload.items()))
        if kind == "size":
            return torch.Size(value)
        if kind == "dtype" and isinstance(found_dtype := getattr(torch, str(value), None), torch.dtype):
            return found_dtype
        if kind == "device":
            return torch.device(value)
    raise ValueError("not a leaf of a checkpoint")


@dataclass(frozen=True)
class Prepared:
    """`reads`: (name of a saved tensor, tensor to fill). `unused`: what the checkpoint has and this rank does not."""

    reads: list[tuple[str, Any]]
    finish: Callable[[], None]
    unused: tuple[str, ...] = ()


class Values:
    """A tree of tensors and plain values, or an object with state_dict() and load_state_dict().

    `loose`: ranks may differ in it, which is looked for at every save, see `state`.
    """

    loose = True

    def __init__(self, name: str, held: Any) -> None:
        self.name = name
        self._held = held

    def encode(self, put: Put) -> Any:
        return {"value": tree.encode(self._now(), self.name, put.leaf)}

    def prepare(self, saved: Any, specs: Mapping[str, TensorSpec]) -> Prepared:
        live = Put()
        self.encode(live)
        value = member(saved, "value", self.name)
        targets = {name: fitting(live.tensors.get(name), spec_of(specs, name)) for name in named(value)}
        return Prepared(list(targets.items()), lambda: self._give(decoded(value, targets, self.name)))

    def _now(self) -> Any:
        return self._held.state_dict() if _stateful(self._held) else self._held

    def _give(self, value: Any) -> None:
        if _stateful(self._held):
            self._held.load_state_dict(value)
        else:
            _fill(self._held, value, self.name)


def _stateful(held: Any) -> bool:
    return hasattr(held, "state_dict") and hasattr(held, "load_state_dict")


def fitting(live: Any, spec: TensorSpec) -> Any:
    """The living tensor if the saved one fits into it; otherwise a new one, as the saved one was, for the CPU."""
    return live if live is not None and like(live, spec) else tensors.empty(spec.shape, spec.dtype)


def like(live: Any, spec: TensorSpec) -> bool:
    return tuple(live.shape) == spec.shape and tensors.dtype_name(live.dtype) == spec.dtype


def _fill(held: Any, value: Any, path: str) -> None:
    """Put the values of a tree into the containers that the program holds. Tensors of the same shape are filled."""
    if not isinstance(held, dict) or not isinstance(value, Mapping):
        raise StateMismatch(f"{path}: a {type(held).__name__} cannot be loaded into: give a dict")
    for key, item in value.items():
        if isinstance(held.get(key), dict) and isinstance(item, Mapping):
            _fill(held[key], item, f"{path}.{key}")
        else:
            held[key] = item


@dataclass(frozen=True, slots=True)
class Place:
    """The registry of a module's parameters or buffers, and a name in it."""

    registry: Mapping[str, Any]
    key: str
    buffer: bool

    @property
    def now(self) -> Any:
        return self.registry.get(self.key)


class Model:
    """A module, however it is wrapped (DDP, FSDP2, torch.compile): names are those of the bare module."""

    loose = False

    def __init__(self, name: str, module: Any, optimizers: Sequence[Any] = ()) -> None:
        """optimizers: those of torch's that step the module's parameters."""
        self.name = name
        self._module, self._optimizers = module, tuple(optimizers)
        refuse_fsdp1(module, name)

    def encode(self, put: Put) -> Any:
        """Tied tensors are kept once. Of buffers rank 0's are meant, as DDP does: running statistics differ by rank."""
        seen: dict[tuple[Any, ...], str] = {}
        state: dict[str, Any] = {}
        buffers, stepped = self._buffers(), self._stepped()
        for fqn, value in self._now().items():
            path = f"{self.name}.{fqn}"
            place = tensors.where(value) if isinstance(value, torch.Tensor) and _placed(value) else None
            if place in seen:
                state[fqn] = {"$": "leaf", "v": seen[place]}
                continue
            state[fqn] = tree.encode(value, path, put.leaf)
            if place is not None:
                seen[place] = state[fqn]["v"]
                if place[0] in stepped:
                    put.stepped.add(state[fqn]["v"])
                if place in buffers and not tensors.is_dtensor(value):
                    put.first_rank_only.add(state[fqn]["v"])
        return {"state": state}

    def places(self) -> dict[tuple[Any, ...], Place]:
        """Where in which module each parameter and buffer is kept, by `tensors.where` of it."""
        found: dict[tuple[Any, ...], Place] = {}
        for module in self._module.modules():
            for registry, buffer in ((module._parameters, False), (module._buffers, True)):
                for key, value in registry.items():
                    if value is not None and _placed(value):
                        found.setdefault(tensors.where(value), Place(registry, key, buffer))
        return found

    def prepare(self, saved: Any, specs: Mapping[str, TensorSpec]) -> Prepared:
        state, now = member(saved, "state", self.name), self._now()
        missing = [fqn for fqn in now if fqn not in state]
        if missing:
            raise StateMismatch(f"the checkpoint has no {listed(missing, self.name)}: is it of another model?")
        reads: list[tuple[str, Any]] = []
        extra: dict[str, Any] = {}
        for fqn, value in now.items():
            if _is_read(fqn, value):
                reads.append((self._fitting(fqn, value, state[fqn], specs), value))
            else:
                extra |= {name: fitting(None, spec_of(specs, name)) for name in named(state[fqn])}
        unused = tuple(f"{self.name}.{fqn}" for fqn in state if fqn not in now)
        return Prepared([*reads, *extra.items()], lambda: self._give(now, state, extra), unused)

    def _now(self) -> dict[str, Any]:
        if not self._module.state_dict():
            return {}
        return dict(get_model_state_dict(self._module))

    def _stepped(self) -> set[Any]:
        """The memory of the parameters that are in an optimizer."""
        every = (
            parameter
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for parameter in group["params"]
        )
        return {tensors.where(parameter)[0] for parameter in every if _placed(parameter)}

    def _buffers(self) -> set[tuple[Any, ...]]:
        found = {tensors.where(buffer) for buffer in self._module.buffers() if _placed(buffer)}
        return found - {tensors.where(parameter) for parameter in self._module.parameters() if _placed(parameter)}

    def _fitting(self, fqn: str, live: Any, saved: Any, specs: Mapping[str, TensorSpec]) -> str:
        path = f"{self.name}.{fqn}"
        tensors.refuse_unsavable(live, path)
        if not tree.is_leaf(saved) or not isinstance(saved["v"], str):
            raise StateMismatch(f"{path} is a tensor here and was none when it was saved")
        spec = spec_of(specs, saved["v"])
        if not like(live, spec):
            here = f"{tensors.dtype_name(live.dtype)} {list(live.shape)}"
            raise StateMismatch(f"{path} is {here} here and {spec.dtype} {list(spec.shape)} in the checkpoint")
        return saved["v"]

    def _give(self, now: dict[str, Any], state: Mapping[str, Any], extra: Mapping[str, Any]) -> None:
        """The tensors are in place already; this is for get_extra_state, and for the model's own hooks.

        Not by torch's helper: it does not find a module that a wrapped model has under two names.
        """
        for fqn, value in now.items():
            if not _is_read(fqn, value):
                now[fqn] = decoded(state[fqn], extra, f"{self.name}.{fqn}")
        raw = self._module.state_dict()
        renamed = iter([fqn for fqn in now if fqn not in raw])  # in the order of those that have another name here
        self._module.load_state_dict({key: now[key if key in now else next(renamed)] for key in raw})


def _is_read(fqn: str, value: Any) -> bool:
    """Whether it is a tensor of the model's own, to be read in place. get_extra_state may return one, too."""
    return isinstance(value, torch.Tensor) and not fqn.endswith("_extra_state")


def _placed(tensor: Any) -> bool:
    """Whether it has memory that can be compared with another's."""
    part = tensors.local_part(tensor) if type(tensor) is not torch.nn.UninitializedParameter else None
    return part is not None and part.layout is torch.strided and part.device.type != "meta"


def refuse_fsdp1(module: Any, name: str) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    if any(isinstance(part, FullyShardedDataParallel) for part in module.modules()):
        raise StateRefused(f"{name} is wrapped in FullyShardedDataParallel (FSDP1): use fully_shard (FSDP2) instead")


def named(value: Any) -> list[str]:
    """The names of the tensors in an encoded value."""
    return [name for name in tree.leaves(value) if isinstance(name, str)]


def spec_of(specs: Mapping[str, TensorSpec], name: str) -> TensorSpec:
    found = specs.get(name)
    if found is None:
        raise StateMismatch(f"the checkpoint names tensor {name!r} and does not have it")
    return found


def member(saved: Any, key: str, name: str) -> Any:
    if not isinstance(saved, dict) or key not in saved:
        raise StateMismatch(f"{name} was saved as another kind of object")
    return saved[key]


def decoded(value: Any, found: Mapping[str, Any], name: str) -> Any:
    try:
        return tree.decode(value, lambda payload: taken(payload, found))
    except (ValueError, KeyError, RuntimeError) as error:
        raise StateMismatch(f"{name} cannot be read back from the checkpoint: {error}") from None


def listed(names: Iterable[str], prefix: str = "") -> str:
    """Names for people: the first few."""
    every = [f"{prefix}.{name}" if prefix else name for name in names]
    return ", ".join(every[:5]) + (f" and {len(every) - 5} more" if len(every) > 5 else "")
