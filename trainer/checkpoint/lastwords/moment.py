"""The state of one rank at the end of a step, kept so that it can be written later, by another thread.

What only an optimizer's step changes is not copied: while updates are held back (`gate`) the program's own tensors are
that state. Everything else goes on changing while the next forward and backward pass run. So at the end of each step
small things are copied (running statistics, schedulers, scalers, `extra`, random numbers), and of large ones the
version is noted that tensors count of themselves: a change in place is found, and what was changed is not written.

The program's modules are asked for nothing at a step, nor later by the other thread: FSDP2, for one, keeps other
tensors in them during a pass. Where in them things are kept is looked up when ranks agree (`Keeper`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import torch

from rankpulse.trainer.checkpoint import rng, tensors
from rankpulse.trainer.checkpoint.errors import StateRefused
from rankpulse.trainer.checkpoint.optimizers import Optimizer
from rankpulse.trainer.checkpoint.parts import Model, Place, Put, Values
from rankpulse.trainer.checkpoint.state import Captured, Held, Part, assembled, held_of

COPIED_MAX: Final = 1 << 20  # bytes of a tensor that is copied at each step; larger ones must not change


class Watched(NamedTuple):
    """A tensor that is not copied, and how often it had been changed in place; -1: it does not count."""

    name: str
    tensor: Any
    version: int

    @property
    def changed(self) -> bool:
        return self.version >= 0 and self.tensor._version != self.version


@dataclass(frozen=True)
class Moment:
    """What was kept of the end of step `step`. trouble: why that is not enough, "" when it is."""

    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)  # JSON by loose part; of optimizers, their groups
    copies: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by part: tensors by name
    watched: Sequence[Watched] = ()
    generators: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[tuple[Any, Any]] = ()  # CUDA devices, and for each: all work up to the end of the step is done
    trouble: str = ""

    def torn(self) -> str:
        """What has been changed since, by something that is no step of torch's optimizers; "" when nothing has."""
        return next((one.name for one in self.watched if one.changed), "")

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Inside, what is read from CUDA devices goes over streams of its own, and waits for the end of this step and
        for nothing after it: the training's streams may stand behind a collective that never ends."""
        with ExitStack() as stack:
            for device, event in self.events:
                stream = torch.cuda.Stream(device)
                stream.wait_event(event)
                stack.enter_context(torch.cuda.stream(stream))
            yield


class Keeper:
    """Keeps moments of a program whose state was captured when all ranks agreed on it.

    trouble: why that cannot be done for this program, "" when it can.
    """

    def __init__(self, parts: Iterable[Part], base: Captured) -> None:
        self._parts, self._base = tuple(parts), base
        self._fixed: list[tuple[str, Place, Any]] = []  # parameters, and buffers that are too large to be copied
        self._trees: list[tuple[str, Mapping[str, Any], tuple[Any, ...]]] = []  # which modules are in which
        self._small: list[tuple[str, str, Place]] = []  # (part, name, place) of buffers
        self._cuda = sorted({has.local.device for has in _all(base) if has.local.device.type == "cuda"}, key=str)
        self.trouble = next(filter(None, map(self._prepared, self._parts)), "")

    def _prepared(self, part: Part) -> str:
        if isinstance(part, Model):
            return self._placed(part)
        if isinstance(part, Values) and part.name.startswith("optim."):
            return f"{part.name} keeps its state in a way of its own"
        return ""

    def _placed(self, part: Model) -> str:
        if any(fqn.endswith("_extra_state") for fqn in self._base.values[part.name]["state"]):
            return f"{part.name} has modules with get_extra_state"
        places = part.places()
        self._trees += [(part.name, registry, known) for registry, known in part.children()]
        for name, has in self._base.held[part.name].items():
            if not has.local.numel():
                continue
            place = places.get(tensors.where(has.living))
            if place is None:
                return f"{name} is made anew by a state_dict hook"
            if place.buffer and tensors.nbytes(has.local) <= COPIED_MAX:
                self._small.append((part.name, name, place))
            else:
                self._fixed.append((name, place, place.now))
        return ""

    def keep(self, step: int, metrics: Mapping[str, float]) -> Moment:
        """Called by the training when a step is done. Raises nothing: what goes wrong is the moment's trouble."""
        try:
            with torch.no_grad():
                return self._kept(step, metrics)
        except Exception as error:  # of a state_dict() of the program's, mostly
            return Moment(step, trouble=f"the state at the end of step {step} could not be kept: {error}")

    def _kept(self, step: int, metrics: Mapping[str, float]) -> Moment:
        if self.trouble:
            return Moment(step, trouble=self.trouble)
        for part_name, registry, modules in self._trees:
            if tuple(registry.values()) != modules:
                return Moment(
                    step, trouble=f"a module in {part_name} was replaced since all ranks agreed on their state"
                )
        watched = []
        for name, place, known in self._fixed:
            if place.now is not known:
                return Moment(step, trouble=f"{name} was replaced since all ranks agreed on their state")
            watched.append(Watched(name, known, _version(known)))
        copies: dict[str, dict[str, Any]] = {}
        for part_name, name, place in self._small:  # whether it changed is not asked: batch norm counts no versions
            copies.setdefault(part_name, {})[name] = tensors.local_part(place.now).clone()
        values: dict[str, Any] = {}
        for part in self._parts:
            if isinstance(part, Model):
                continue
            put = Put()
            values[part.name] = part.encode_groups(put) if isinstance(part, Optimizer) else part.encode(put)
            copies[part.name] = {name: _small_copy(name, tensor, watched) for name, tensor in put.tensors.items()}
        events = [(device, _event(device)) for device in self._cuda]
        return Moment(step, metrics, values, copies, watched, rng.captured(), events)

    def captured(self, moment: Moment) -> Captured:
        """The state at that moment; to be called while updates are held back. Raises StateRefused.

        The tensors are partly the program's own: `Moment.torn` says afterwards whether they were left alone.
        """
        if moment.trouble:
            raise StateRefused(moment.trouble)
        with moment.aside():
            return self._captured(moment)

    def _captured(self, moment: Moment) -> Captured:
        values: dict[str, Any] = {}
        held: dict[str, dict[str, Held]] = {}
        stepped: set[str] = set()
        for part in self._parts:
            if isinstance(part, Model):
                values[part.name] = self._base.values[part.name]
                held[part.name] = self._of_model(part.name, moment.copies.get(part.name, {}))
                stepped |= self._base.stepped & held[part.name].keys()
            elif isinstance(part, Optimizer):
                values[part.name], held[part.name] = self._of_optimizer(part, moment)
                stepped |= held[part.name].keys() - moment.copies[part.name].keys()
            else:
                values[part.name] = moment.values[part.name]
                held[part.name] = held_of(moment.copies[part.name])
        return assembled(self._parts, values, held, self._base.first_rank_only, stepped, moment.generators)

    def _of_model(self, name: str, copies: Mapping[str, Any]) -> dict[str, Held]:
        found = {}
        for tensor, has in self._base.held[name].items():
            copy = copies.get(tensor)
            if copy is not None and (copy.shape != has.local.shape or copy.dtype != has.local.dtype):
                raise StateRefused(f"{tensor} has another shape or type than when all ranks agreed on their state")
            found[tensor] = has if copy is None else replace(has, local=copy, living=copy)
        for tensor, _, known in self._fixed:
            if tensor in found and tensors.local_part(known).data_ptr() != found[tensor].local.data_ptr():
                raise StateRefused(f"{tensor} was given other memory since all ranks agreed on their state")
        return found

    def _of_optimizer(self, part: Optimizer, moment: Moment) -> tuple[Any, dict[str, Held]]:
        """Its state as it is, for nothing changes it meanwhile; its groups as they were."""
        put, before = Put(), self._base.held[part.name]
        state = part.encode_state(put)
        known = {
            name: before[name] for name, one in put.tensors.items() if name in before and before[name].living is one
        }
        copies = moment.copies[part.name]
        fresh = held_of({**{name: one for name, one in put.tensors.items() if name not in known}, **copies})
        names = [*put.tensors, *copies]
        found = {name: known.get(name) or fresh[name] for name in names if name in known or name in fresh}
        return {"kind": state["kind"], "groups": moment.values[part.name], "state": state["state"]}, found


def _all(state: Captured) -> Iterable[Held]:
    return (has for part in state.held.values() for has in part.values())


def _version(tensor: Any) -> int:
    return -1 if tensor.is_inference() else int(tensor._version)


def _small_copy(name: str, tensor: Any, watched: list[Watched]) -> Any:
    if tensors.is_dtensor(tensor) or tensors.nbytes(tensor) > COPIED_MAX:
        watched.append(Watched(name, tensor, _version(tensor)))
        return tensor
    return tensor.detach().clone()


def _event(device: Any) -> Any:
    event = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event
