"""What every rank of a life knows of every other: what it holds, said once while all were there.

A layout is what `state.structure` says, as text; ranks that hold the same have the same one, so replicas cost nothing.
Kept packed: of a job that is sharded over a thousand ranks there are a thousand.
"""

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import xxhash

from rankpulse.trainer.checkpoint.division import Item, understood
from rankpulse.trainer.checkpoint.state import Captured, differing, structure
from rankpulse.trainer.checkpoint.tensors import memory
from rankpulse.trainer.checkpoint.together import Together


@dataclass(frozen=True)
class Layouts:
    """Of one life, which is named `life` by all its ranks.

    marks: by rank, which layout it has. texts: these layouts, packed. generators: by rank, a digest of its random
    numbers when this was agreed. own: parts of which each rank had its own then.
    """

    life: str
    marks: tuple[str, ...]
    texts: Mapping[str, bytes]
    generators: tuple[str, ...]
    own: tuple[str, ...] = ()
    _items: dict[str, list[Item]] = field(default_factory=dict)
    _tells: dict[str, Any] = field(default_factory=dict)

    @property
    def world(self) -> int:
        return len(self.marks)

    def tells(self, rank: int) -> dict[str, Any]:
        """What this rank said that it holds: the same object for ranks that hold the same."""
        mark = self.marks[rank]
        if mark not in self._tells:
            self._tells[mark] = json.loads(zlib.decompress(self.texts[mark]))
        found: dict[str, Any] = self._tells[mark]
        return found

    def items(self, rank: int) -> list[Item]:
        """What it holds of the parts in which ranks do not differ as a whole."""
        mark = self.marks[rank]
        if mark not in self._items:
            parts = [part for part in self.tells(rank).values() if not part["loose"]]
            self._items[mark] = [item for part in parts for item in understood(part["items"])]
        return self._items[mark]


def mark_of(state: Captured) -> str:
    """Which layout this rank has."""
    return digest(structure(state))


def generators_of(state: Captured) -> str:
    """A digest of its random number generators."""
    hasher = xxhash.xxh3_128(json.dumps(state.rng).encode())
    for tensor in state.rng_tensors.values():
        hasher.update(memory(tensor.cpu().contiguous()))
    return hasher.hexdigest()


def agreed(together: Together, state: Captured | None, life: str) -> Layouts | str:
    """What all ranks hold, or why that is not known: one of them could not say (`state` None). Called by all.

    life: proposed by rank 0, taken by all. Raises RanksLost.
    """
    text = "" if state is None else json.dumps(structure(state))
    mine: list[Any] = [None, "", {}] if state is None else [_mark(text), generators_of(state), state.compared]
    rows, life = together.tell([together.gather(mine), life])
    silent = [rank for rank, row in enumerate(rows) if row[0] is None]
    if silent:
        return f"rank {silent[0]} cannot say what it holds"
    first = {row[0]: rank for rank, row in reversed(list(enumerate(rows)))}
    texts = _texts(together, rows, first, text)
    own = differing([row[2] for row in rows])
    return Layouts(life, tuple(row[0] for row in rows), texts, tuple(row[1] for row in rows), tuple(own))


def _texts(together: Together, rows: Sequence[Any], first: Mapping[str, int], text: str) -> dict[str, bytes]:
    """All layouts. Where there is one, everybody has it."""
    if len(first) == 1:
        return {rows[0][0]: _packed(text)}
    said = together.gather(text if first[rows[together.rank][0]] == together.rank else "")
    every = together.tell([one for one in said if one])
    return {_mark(one): _packed(one) for one in every}


def packed(state: Captured) -> bytes:
    """A rank's layout, as `Layouts.texts` has it."""
    return _packed(json.dumps(structure(state)))


def _packed(text: str) -> bytes:
    return zlib.compress(text.encode(), 1)


def digest(value: Any) -> str:
    """Of any JSON value."""
    return _mark(json.dumps(value))


def _mark(text: str) -> str:
    return xxhash.xxh3_128_hexdigest(text.encode())
