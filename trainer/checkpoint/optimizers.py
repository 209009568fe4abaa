"""Optimizers as parts of a state: by the names of parameters, as they are, without a step being made.

torch's helpers make a step to have a state to look at, which would count in Adam's bias correction (a save before the
first step changes the training) and in everything that counts steps. So only names are asked of them, through a probe.
"""

import sys
from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any

import torch
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.tensor import DTensor, Replicate

from rankpulse.trainer.checkpoint import tensors, tree
from rankpulse.trainer.checkpoint.errors import StateMismatch, StateRefused
from rankpulse.trainer.checkpoint.manifest import TensorSpec
from rankpulse.trainer.checkpoint.parts import (
    Prepared,
    Put,
    Values,
    decoded,
    fitting,
    like,
    listed,
    member,
    named,
    spec_of,
)


def part_of(name: str, optimizer: Any, model: Any) -> Any:
    """The part for any optimizer. One that keeps its state elsewhere than torch's own do is taken by state_dict()."""
    inner = _zero_inner(optimizer)
    if inner is not None:
        return Optimizer(name, optimizer, model, inner)
    if type(optimizer).state_dict is torch.optim.Optimizer.state_dict:
        return Optimizer(name, optimizer, model, optimizer)
    return Values(name, optimizer)


def _zero_inner(optimizer: Any) -> Any:
    """The optimizer in which a ZeroRedundancyOptimizer has this rank's part; None for any other.

    Its module is not imported for that: it compiles TorchScript, a third of a second at every start.
    """
    module = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
    kind = getattr(module, "ZeroRedundancyOptimizer", None)
    return optimizer.optim if kind is not None and isinstance(optimizer, kind) else None


def names_of(model: Any, parameters: Sequence[Any], part: str) -> dict[Any, str]:
    """The name of each parameter in the bare model, as torch's state-dict helper gives it.

    A probe is shown to it whose state is not empty, so that it makes no step, and says which is which.
    """
    known = set(model.parameters())
    foreign = [parameter for parameter in parameters if parameter not in known]
    if foreign:
        shapes = ", ".join(str(tuple(parameter.shape)) for parameter in foreign[:3])
        raise StateRefused(
            f"{part} optimizes {len(foreign)} tensors (shapes {shapes}) that are not parameters of the model"
        )
    if not parameters:
        return {}
    probe = torch.optim.SGD(list(parameters), lr=0.0)
    for at, parameter in enumerate(parameters):
        probe.state[parameter] = {"at": at}
    found = get_optimizer_state_dict(model, probe)["state"]
    return {parameters[state["at"]]: fqn for fqn, state in found.items()}


class Optimizer:
    """One of torch's optimizers, or this rank's part of a ZeRO one (`inner`, which differs from `outer` then)."""

    loose = False

    def __init__(self, name: str, outer: Any, model: Any, inner: Any) -> None:
        self.name = name
        self._outer, self._model, self._inner = outer, model, inner
        self._known: tuple[list[Any], dict[Any, str]] = ([], {})

    def encode(self, put: Put) -> Any:
        """{"kind", "groups": [values with "params": names], "state": {name: values}}, the latter for what this rank
        holds."""
        found = self.encode_state(put)
        return {"kind": found["kind"], "groups": self.encode_groups(put), "state": found["state"]}

    def encode_state(self, put: Put) -> dict[str, Any]:
        """What nothing but the optimizer's step changes: {"kind", "state"}."""
        state = {}
        for parameter, fqn in self._names().items():
            held = self._inner.state.get(parameter)
            if held:
                state[fqn] = tree.encode(dict(held), f"{self.name}.{fqn}", put.leaf)
        put.stepped |= set(put.tensors)
        return {"kind": _kind(self._inner), "state": state}

    def encode_groups(self, put: Put) -> list[Any]:
        """What schedulers change as well. Cheap: the values of groups, and names that are known."""
        names = self._names()
        return [self._group(at, group, names, put) for at, group in enumerate(self._groups())]

    def prepare(self, saved: Any, specs: Mapping[str, TensorSpec]) -> Prepared:
        groups, state = member(saved, "groups", self.name), member(saved, "state", self.name)
        names = self._names()
        self._check_kind(saved.get("kind"))
        self._check_groups(groups, names)
        mine = self._mine(names)
        targets: dict[str, Any] = {}
        for fqn in mine:
            if fqn in state:
                targets |= self._targets(fqn, mine[fqn], state[fqn], groups, specs)
        targets |= self._group_targets(groups, names, specs)
        unused = tuple(f"{self.name}.{fqn}" for fqn in state if fqn not in mine)
        return Prepared(list(targets.items()), lambda: self._give(mine, groups, state, targets), unused)

    def _group_targets(self, groups: Any, names: Mapping[Any, str], specs: Mapping[str, TensorSpec]) -> dict[str, Any]:
        """For the tensors among the values of groups: a learning rate may be one."""
        live = Put()
        for at, group in enumerate(self._groups()):
            self._group(at, group, names, live)
        every = [name for group in groups for name in named(group["values"])]
        return {name: fitting(live.tensors.get(name), spec_of(specs, name)) for name in every}

    def _groups(self) -> list[dict[str, Any]]:
        return list(self._outer.param_groups)

    def _names(self) -> dict[Any, str]:
        """Asked of torch once for the same parameters: it takes tens of milliseconds for a thousand of them."""
        every = [parameter for group in self._groups() for parameter in group["params"]]
        if len(every) != len(self._known[0]) or not all(map(is_, every, self._known[0])):
            self._known = every, names_of(self._model, every, self.name)
        return self._known[1]

    def _mine(self, names: Mapping[Any, str]) -> dict[str, Any]:
        """The parameters by name whose state is this rank's."""
        return {names[parameter]: parameter for group in self._inner.param_groups for parameter in group["params"]}

    def _group(self, at: int, group: Mapping[str, Any], names: Mapping[Any, str], put: Put) -> Any:
        values = {key: value for key, value in group.items() if key != "params"}
        params = [names[parameter] for parameter in group["params"]]
        return {"values": tree.encode(values, f"{self.name}.group{at}", put.leaf), "params": params}

    def _check_kind(self, saved: Any) -> None:
        """torch takes the state of one kind into another without a word, and the settings with it."""
        here = _kind(self._inner)
        if here and saved and here != saved:
            raise StateMismatch(f"{self.name} is {here} here and was {saved} when it was saved")

    def _check_groups(self, groups: Any, names: Mapping[Any, str]) -> None:
        live = self._groups()
        if not isinstance(groups, list) or len(groups) != len(live):
            found = len(groups) if isinstance(groups, list) else "no"
            raise StateMismatch(f"{self.name} has {len(live)} parameter groups here and {found} in the checkpoint")
        for at, group in enumerate(live):
            missing = {names[parameter] for parameter in group["params"]} - set(member(groups[at], "params", self.name))
            if missing:
                raise StateMismatch(
                    f"group {at} of {self.name} has {listed(sorted(missing))} here and not in the checkpoint"
                )

    def _targets(
        self, fqn: str, parameter: Any, state: Any, groups: Any, specs: Mapping[str, TensorSpec]
    ) -> dict[str, Any]:
        """Where the tensors of one parameter's state are to be read: the living ones, or new ones."""
        live = Put()
        tree.encode(dict(self._inner.state.get(parameter) or {}), f"{self.name}.{fqn}", live.leaf)
        flags = any(_on_device(group["values"]) for group in groups if fqn in group["params"])
        targets = {}
        for key, value in state.items() if isinstance(state, dict) and "$" not in state else [("", state)]:
            for name in named(value):
                spec, found = spec_of(specs, name), live.tensors.get(name)
                fits = found is not None and key != "step" and like(found, spec)
                targets[name] = found if fits else _made(spec, parameter, key == "step" and not flags)
        return targets

    def _give(self, mine: Mapping[str, Any], groups: Any, state: Any, targets: Mapping[str, Any]) -> None:
        """Through the optimizer's own load_state_dict (its hooks, its defaults), then exactly what was saved.

        torch casts what it loads to the parameter's type, and fp32 moments of bf16 parameters would lose bits.
        """
        numbers = {parameter: at for at, parameter in enumerate(_parameters(self._inner))}
        values = {fqn: decoded(state[fqn], targets, f"{self.name}.{fqn}") for fqn in mine if fqn in state}
        saved_groups = [decoded(group["values"], targets, self.name) for group in groups]
        self._inner.load_state_dict(
            {
                "state": {numbers[mine[fqn]]: value for fqn, value in values.items()},
                "param_groups": [
                    {**saved, "params": [numbers[parameter] for parameter in group["params"]]}
                    for saved, group in zip(saved_groups, self._inner.param_groups, strict=True)
                ],
            }
        )
        for fqn, value in values.items():
            self._inner.state[mine[fqn]].update({key: item for key, item in value.items() if _has_tensors(item)})
        if self._outer is not self._inner:
            for outer, inner in zip(self._outer.param_groups, self._inner.param_groups, strict=True):
                outer.update({key: value for key, value in inner.items() if key != "params"})


def _kind(optimizer: Any) -> str:
    """Which of torch's own optimizers it is; "" for a class of the program's, which may be renamed."""
    kind = type(optimizer)
    return kind.__name__ if kind.__module__.startswith("torch.optim.") else ""


def _parameters(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _on_device(values: Any) -> bool:
    """Whether the optimizer keeps its step counters on the device."""
    return isinstance(values, dict) and bool(values.get("capturable") or values.get("fused"))


def _made(spec: TensorSpec, parameter: Any, on_cpu: bool) -> Any:
    """A new tensor for a state that the optimizer does not have yet, placed as torch would have."""
    dtype = tensors.dtype_of(spec.dtype)
    if spec.shape == tuple(parameter.shape) and not on_cpu:
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    made = torch.empty(spec.shape, dtype=dtype, device="cpu" if on_cpu else parameter.device)
    if isinstance(parameter, DTensor) and not on_cpu:
        mesh = parameter.device_mesh
        return DTensor.from_local(made, mesh, [Replicate()] * mesh.ndim, run_check=False)
    return made


def _has_tensors(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return True
    if isinstance(value, Mapping):
        return any(map(_has_tensors, value.values()))
    return isinstance(value, list | tuple) and any(map(_has_tensors, value))
