"""What all ranks agree on before a save, while training stands still: the state, and who writes what of it.

Where nothing has changed since the save before, and ranks hold what they should, that takes one exchange of a few
bytes. Only what turns out to differ is told.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import xxhash

from rankpulse.trainer.checkpoint.division import Division
from rankpulse.trainer.checkpoint.errors import StateRefused
from rankpulse.trainer.checkpoint.manifest import CONSOLIDATED, SHARDED
from rankpulse.trainer.checkpoint.parts import listed
from rankpulse.trainer.checkpoint.rows import packed, unpacked
from rankpulse.trainer.checkpoint.state import (
    Captured,
    Part,
    alike,
    captured,
    differing,
    divided,
    drifted,
    structure,
    told_values,
)
from rankpulse.trainer.checkpoint.together import Faults, Together, everywhere, on_first

AUTO: Final = "auto"
SHARDED_FROM: Final = 10**9  # bytes of state above which `auto` has every rank write


@dataclass(frozen=True)
class Agreed:
    """The state of this rank and who writes what.

    own: parts in which ranks differ, of which each keeps its own. same_values: whether all ranks hold the same of what
    is not a tensor; if not, their values are still to be told to rank 0. nbytes: of all tensors.
    """

    state: Captured
    division: Division
    own: tuple[str, ...]
    buffers_differ: bool
    same_values: bool
    kind: str
    nbytes: int


@dataclass
class Known:
    """What was agreed at the last save. Empty at first."""

    structure: str = ""
    own: tuple[str, ...] = ()
    division: Division | None = None


@dataclass
class Agreement:
    """One save's. Every method is called by all ranks. `known` is kept from save to save by who has many."""

    together: Together
    settings: dict[str, Any]  # the same on all ranks, or the save is refused
    mode: str
    judge: Callable[[Faults], Exception]
    say: Callable[[str], None] = lambda text: None
    known: Known = field(default_factory=Known)

    def reach(self, parts: Sequence[Part]) -> Agreed:
        """Raises what `judge` makes of the faults of ranks, StateRefused, RanksLost."""
        state, trouble = _captured(parts)
        tells = structure(state)
        mark = _digest(tells)
        mine = {
            "meant": json.dumps(self.settings),
            "whole": f"trouble on {self.together.rank}" if trouble is not None else "",
            "structure": mark,
            "known": "" if self.known.division is not None and mark == self.known.structure else f"anew: {mark}",
            "compared": json.dumps(state.compared),
            "samples": json.dumps(state.samples),
            "buffers": state.buffers,
            "values": _digest(told_values(state)),
        }
        same = dict(zip(mine, self.together.same_each(list(mine.values())), strict=True))
        if not same["meant"]:
            self._refuse()
        if trouble is not None or not same["whole"]:
            everywhere(self.together, lambda: _raise(trouble), self.judge)
        own = () if same["compared"] else self._own(state)
        known = same["known"] and not mine["known"] and own == self.known.own
        if not same["samples"]:
            state = self._drifted(state)
            tells, known = structure(state), known and not state.drifted
        division = self._division(tells, own, same=same["structure"], known=known)
        if not state.drifted:
            self.known.structure, self.known.own, self.known.division = mark, own, division
        nbytes = sum(tensor.nbytes for tensor in division.tensors)
        kind = kind_of(self.mode, nbytes, self.together.world_size)
        return Agreed(state, division, own, not same["buffers"], same["values"], kind, nbytes)

    def _refuse(self) -> None:
        """Raises StateRefused where ranks are at different steps, or save in different ways: no part of what they
        write would fit another's."""
        every = self.together.gather(self.settings)
        other = next((rank for rank, theirs in enumerate(every) if theirs != self.settings), 0)  # on rank 0
        text = self.together.tell(f"rank 0 saves {self.settings}, rank {other} {every[other]}" if every else "")
        raise StateRefused(f"the ranks do not mean the same: {text}. All must call with the same step and settings.")

    def _own(self, state: Captured) -> tuple[str, ...]:
        """The loose parts in which ranks differ."""
        every = self.together.gather(state.compared)
        return tuple(self.together.tell(differing(every) if every else None))

    def _drifted(self, state: Captured) -> Captured:
        """Parameters that should be the same on all ranks and are not: they are taken from rank 0 alone."""
        every = self.together.gather(state.samples)
        names = self.together.tell(drifted(every))
        if names and self.together.rank == 0:
            self.say(f"ranks have drifted apart in {listed(names)}: the checkpoint has what rank 0 has")
        return replace(state, drifted=frozenset(names))

    def _division(self, tells: dict[str, Any], own: Sequence[str], *, same: bool, known: bool) -> Division:
        if known and self.known.division is not None:
            return self.known.division
        if same and (self.together.world_size == 1 or alike(tells)):
            every = [tells] * self.together.world_size
            return everywhere(self.together, lambda: divided(every, own), self.judge)
        every = self.together.gather(tells)
        return unpacked(on_first(self.together, lambda: packed(divided(every, own)), self.judge))


def kind_of(mode: str, nbytes: int, world_size: int) -> str:
    """Sharded or consolidated, for a state of so many bytes."""
    if mode != AUTO:
        return mode
    return SHARDED if nbytes > SHARDED_FROM and world_size > 1 else CONSOLIDATED


def _digest(value: Any) -> str:
    return xxhash.xxh3_128_hexdigest(json.dumps(value).encode())


def _captured(parts: Sequence[Part]) -> tuple[Captured, Exception | None]:
    """An empty state and the trouble, where there is any: it is told before anything is raised."""
    try:
        return captured(parts), None
    except Exception as error:
        return captured(()), error


def _raise(trouble: Exception | None) -> None:
    if trouble is not None:
        raise trouble
