"""Copies of what is to be saved, in the memory of the host, taken so that no update of the training gets between.

What anything may change (running statistics, a scheduler's tensors) is copied before the save lets training go on.
What only an optimizer's step changes (its parameters and its state, nearly all of the bytes) is copied while the next
forward and backward pass run; a step that comes earlier waits. On CPUs the writer thread copies and the step waits for
it. On CUDA devices a stream of our own copies into pinned memory, and a step makes its stream wait: the host goes on.

The buffers are kept from save to save.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from threading import Event, Lock
from typing import Any, Final

import torch

from rankpulse.trainer.checkpoint import tensors
from rankpulse.trainer.checkpoint.entries import Slice
from rankpulse.trainer.checkpoint.errors import SaveFailed

BLOCK: Final = 64 << 20  # bytes of a buffer that small copies share
_ALIGN: Final = 64
TORN: Final = (
    "parameters were changed in place while they were copied, by something that is no step of torch's optimizers:"
    " call before_update() of the manager before you change them"
)


class Arena:
    """Host memory handed out piece by piece, all of it anew for each save: the same demand meets the same buffers."""

    def __init__(self) -> None:
        self._blocks: list[list[Any]] = []  # [buffer, bytes taken]
        self._pinned = False

    @property
    def nbytes(self) -> int:
        return sum(block.numel() for block, _ in self._blocks)

    def reset(self, pinned: bool) -> None:
        """All pieces come back. `pinned`: copies from a device are to be made asynchronously."""
        if pinned != self._pinned:
            self._blocks, self._pinned = [], pinned
        for block in self._blocks:
            block[1] = 0

    def piece(self, like: Any) -> Any:
        """A one-dimensional tensor for the elements of `like`."""
        size = tensors.nbytes(like)
        if not size:
            return torch.empty(0, dtype=like.dtype)
        block = next((one for one in self._blocks if one[0].numel() - one[1] >= size), None)
        if block is None:
            block = [torch.empty(max(size, BLOCK), dtype=torch.uint8, pin_memory=self._pinned), 0]
            self._blocks.append(block)
        start = block[1]
        block[1] = -(-(start + size) // _ALIGN) * _ALIGN
        return block[0][start : start + size].view(like.dtype)


@dataclass
class Pairs:
    """Copies to be made: from these tensors to those."""

    sources: list[Any] = field(default_factory=list)
    targets: list[Any] = field(default_factory=list)

    def add(self, source: Any, target: Any) -> None:
        self.sources.append(source)
        self.targets.append(target)

    def make(self, non_blocking: bool = False) -> None:
        """In one call, during which other threads run. Lists of one device."""
        if self.sources:
            torch._foreach_copy_(self.targets, self.sources, non_blocking)


class Stage:
    """The copies of one save at a time. `begin` and `before_update` are the training's, `finish` the writer thread's.

    A program that updates parameters by hand and does not call `before_update` is found by the version that tensors
    keep of themselves: that save is refused. (A fused optimizer does not count versions, but is stopped by its hook.)
    """

    def __init__(self) -> None:
        self.arena = Arena()
        self._lock = Lock()
        self._clear()

    def _clear(self) -> None:
        self._now: dict[Any, Pairs] = {}  # by device
        self._later: dict[Any, Pairs] = {}
        self._flying: list[Pairs] = []  # held: memory that is freed would be given away while it is still read
        self._versions: list[tuple[Any, int]] = []
        self._events: list[tuple[Any, Any]] = []  # of CUDA devices: that all copies are made
        self._copied = Event()
        self._judged, self._trouble = False, ""  # why these copies are worth nothing
        self._process = os.getpid()

    def begin(self, slices: Iterable[Slice]) -> dict[Slice, Slice]:
        """Where each slice is copied to; what may change at any time is copied when this returns."""
        self._clear()
        slices = list(slices)
        self.arena.reset(any(one.tensor.device.type == "cuda" for one in slices))
        with torch.no_grad():
            found = {one: self._placed(one) for one in slices}
            for device, pairs in self._now.items():
                self._copy(device, pairs)
            for device in list(self._later):
                if device.type != "cpu":
                    self._flying.append(self._later.pop(device))
                    self._copy(device, self._flying[-1], waited_for=False)
        self._versions = [(one.living, version) for one in slices if (version := _version(one)) is not None]
        return found

    def _placed(self, one: Slice) -> Slice:
        source = tensors.flat(one.tensor, one.start, one.numel)
        target = self.arena.piece(source)
        pairs = self._later if one.stepped else self._now
        pairs.setdefault(source.device, Pairs()).add(source, target)
        return replace(one, tensor=target.view(_shape(one)), start=0, living=target)

    def _copy(self, device: Any, pairs: Pairs, waited_for: bool = True) -> None:
        if device.type != "cuda":
            pairs.make()
            return
        training = torch.cuda.current_stream(device)
        ours = torch.cuda.Stream(device)
        ours.wait_stream(training)  # what the training has begun is in the copy
        with torch.cuda.stream(ours):
            pairs.make(non_blocking=True)
        event = ours.record_event()
        self._events.append((device, event))
        if waited_for:  # by the device: the next forward pass changes running statistics
            training.wait_event(event)

    def before_update(self) -> None:
        """Returns when an update cannot tear the copies any more. Without a save under way it does nothing."""
        if self._copied.is_set() or not (self._later or self._events) or self._process != os.getpid():
            return  # a forked child has memory of its own, and nobody who copies
        if self._later:
            self._copied.wait()
        self._judge()
        for device, event in self._events:
            torch.cuda.current_stream(device).wait_event(event)

    def give_up(self) -> None:
        """Nobody may wait for these copies any more: `begin`, or what follows it, was broken off."""
        self._trouble = "the save was broken off"
        self._later, self._now, self._events = {}, {}, []
        self.arena = Arena()  # a device may still write into the one before
        self._copied.set()

    def finish(self) -> None:
        """Make the copies that are left. When it returns all are made; raises SaveFailed when one may be torn."""
        try:
            with torch.no_grad():
                for pairs in self._later.values():
                    self._make(pairs)
            for _, event in self._events:
                event.synchronize()
            self._judge()
        finally:
            self._copied.set()  # whatever happened: nobody waits for ever
            self._later, self._now, self._flying, self._events = {}, {}, [], []  # nothing of the program is held longer
        if self._trouble:
            raise SaveFailed(self._trouble)

    def _make(self, pairs: Pairs) -> None:
        pairs.make()

    def _judge(self) -> None:
        """Once, by whoever comes first: before the first update that is allowed, or when the copies are made."""
        with self._lock:
            if not self._judged:
                self._judged = True
                if any(living._version != version for living, version in self._versions):
                    self._trouble = TORN
                self._versions = []


def _version(one: Slice) -> int | None:
    """How often it was changed in place; None where nobody counts, and for what was copied already."""
    return None if not one.stepped or one.living.is_inference() else int(one.living._version)


def _shape(one: Slice) -> tuple[int, ...]:
    return tuple(one.tensor.shape) if one.numel == one.tensor.numel() else (one.numel,)
