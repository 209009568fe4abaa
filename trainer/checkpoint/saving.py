"""Saving: all ranks agree on what is written by whom, write, look whether it is all there, commit, read it back.

No rank is left waiting because another has met trouble: what each one does by itself is tried, and how it went is
told before the next thing that all do together. The first part (`begun`) needs the training to stand still. The second
(`Save.run`) needs that only where nothing was copied (`staging`): else it may run in another thread, over a group of
ranks that nobody else speaks over.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from rankpulse.trainer.checkpoint import consolidated, entries, reader, writer
from rankpulse.trainer.checkpoint.agreeing import AUTO, Agreed, Agreement, Known, kind_of
from rankpulse.trainer.checkpoint.entries import Slice
from rankpulse.trainer.checkpoint.errors import CheckpointError, RanksLost, SaveFailed, StateRefused
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.groups import speaking
from rankpulse.trainer.checkpoint.manifest import (
    CONSOLIDATED,
    SHARDED,
    Box,
    Shard,
    ShardManifest,
    TensorSpec,
    digest_of,
    refuse_too_many,
)
from rankpulse.trainer.checkpoint.rows import row_of, shard_of
from rankpulse.trainer.checkpoint.state import Captured, Part, mapped, merged, own_state, told_values
from rankpulse.trainer.checkpoint.together import Faults, Together, everywhere, on_first

__all__ = ["AUTO", "OFF", "Begun", "How", "Save", "Saved", "begun", "kind_of", "save_sharded"]

OFF: Final = "off"
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that was saved. `bytes`: of its shards. `verified`: read back, and it is what was written.

    save_s, verify_s: from the call until it was committed, and until it was read back. stood_s: for how long of that
    the training of this rank stood still.
    """

    step: int
    path: str
    kind: str
    bytes: int
    shards: int
    save_s: float
    verify_s: float
    verified: bool
    stood_s: float = 0.0


@dataclass(frozen=True)
class How:
    """How to save. `room(bytes)` is called on rank 0 before anything is written; its text is why that cannot work.
    known: what was agreed at the save before, where somebody keeps that. heard: told on all ranks what the state is on
    which they have agreed; it may speak with the others."""

    mode: str = AUTO  # "auto", "sharded", "consolidated"
    verify_saved: str = reader.FAST  # "fast", "full", "off"
    files: Files = field(default_factory=Files)
    room: Callable[[int], str] = lambda nbytes: ""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda text: None
    resumed_before_step: int | None = None  # the limit that the load before obeyed, if it had one
    known: Known = field(default_factory=Known)
    onto: Callable[..., "Save"] | None = None  # makes the second part of a save; None: `Save`
    heard: Callable[[Captured, Together], None] = lambda state, together: None


def save_sharded(
    directory: str,
    state: Mapping[str, Any] | Sequence[Part],
    step: int,
    *,
    metrics: Mapping[str, float] | None = None,
    together: Together | None = None,
    how: How | None = None,
) -> Saved:
    """Save `state` as a new checkpoint of `step` in `directory`, which all ranks share. Called by all ranks.

    state: by name modules, objects with state_dict() and load_state_dict(), dicts of tensors and plain values.
    together: the ranks; all of torch.distributed, over a group made for this one save, when it is left out.
    Raises SaveFailed (what was there before is untouched), StateRefused (this state cannot be saved), RanksLost.
    """
    parts = mapped(state) if isinstance(state, Mapping) else tuple(state)
    how = how or How()
    with speaking(together) as world:
        found = begun(parts, step, metrics or {}, world, how)
        saved = second_part(how)(os.path.abspath(directory), found, world, how).run()
    return replace(saved, stood_s=saved.save_s + saved.verify_s)


def second_part(how: How) -> Callable[..., "Save"]:
    """Takes the directory, what was begun, the ranks that speak, and how."""
    return how.onto or Save


@dataclass(frozen=True)
class Begun:
    """A save that all ranks agree on. What this rank gives to it: entries of a file of its own; or, where rank 0 writes
    all, what it is asked for (`served`) or has by itself (`holds`). `own`: its own values, as JSON."""

    step: int
    metrics: Mapping[str, float]
    agreed: Agreed
    began: float  # by the clock of `How`
    own: Any
    entries: tuple[writer.Entry, ...] = ()
    served: tuple[Slice, ...] = ()
    holds: consolidated.Holds | None = None

    @property
    def by_first(self) -> bool:
        """Whether rank 0 writes it all, and has to ask others."""
        return self.agreed.kind == CONSOLIDATED and len(self.agreed.division.ranges) > 1

    def slices(self) -> Iterator[Slice]:
        """All that is read from memory."""
        yield from (entry.data for entry in self.entries if isinstance(entry.data, Slice))
        yield from self.served
        if self.holds is not None:
            yield from self.holds.slices()

    def moved(self, to: Mapping[Slice, Slice]) -> "Begun":
        """The same, read from other memory."""
        return replace(
            self,
            entries=tuple(
                replace(entry, data=to[entry.data]) if isinstance(entry.data, Slice) else entry
                for entry in self.entries
            ),
            served=tuple(to[one] for one in self.served),
            holds=self.holds and self.holds.moved(to),
        )


def begun(parts: Sequence[Part], step: int, metrics: Mapping[str, float], together: Together, how: How) -> Begun:
    """What all ranks agree on, and what this one gives. Called by all. Raises SaveFailed, StateRefused, RanksLost."""
    began = how.clock()
    settings = {"step": step, "mode": how.mode, "verify_saved": how.verify_saved}
    agreement = Agreement(together, settings, how.mode, lambda faults: failed(step, faults), how.say, how.known)
    agreed = agreement.reach(parts)
    how.heard(agreed.state, together)
    rank, state = together.rank, agreed.state
    values, tensors = own_state(state, agreed.own, agreed.buffers_differ)
    mine = {name: entries.whole(tensor) for name, tensor in tensors.items()}
    found = Begun(step, metrics, agreed, began, values)
    if not found.by_first:
        both = (*entries.of_division(state, agreed.division, rank), *entries.of_own(rank, values, mine))
        return replace(found, entries=both)
    if rank:
        return replace(found, served=tuple(consolidated.served(agreed.division, rank, state, mine.values())))
    return replace(found, holds=consolidated.holds(agreed.division, state, mine))


def failed(step: int, faults: Faults) -> Exception:
    """What the faults of ranks come to."""
    texts = "; ".join(map(str, faults[:4])) + (f"; {len(faults) - 4} more" if len(faults) > 4 else "")
    if any(fault.kind == StateRefused.__name__ for fault in faults):
        return StateRefused(texts)
    return SaveFailed(f"step {step} was not saved: {texts}")


class Save:
    """The second part of one save. Every method is called by all ranks."""

    def __init__(self, directory: str, begun: Begun, together: Together, how: How) -> None:
        self._directory, self._begun, self._together, self._how = directory, begun, together, how
        self._step, self._agreed = begun.step, begun.agreed
        self._attempt = self._save_id = ""
        self._stands = False  # the manifest is there; on rank 0

    def run(self, ready: Callable[[], None] = lambda: None) -> Saved:
        """ready: waits on this rank until what it gives can be read; what it raises ends the save for all."""
        try:
            self._all(ready)
            boxes = self._agreed.division.boxes if self._agreed.kind == SHARDED else ()
            self._begin(self._agreed.nbytes + (self._together.world_size << 16), boxes)
            values = self._values()
            shard = self._written()
            size, shards = self._committed(shard, values)
            saved_at = self._how.clock()
            self._read_back(shard)
        except BaseException as error:
            self._abandon(error)
            raise
        verified = self._how.verify_saved != OFF
        verify_s = self._how.clock() - saved_at if verified else 0.0
        save_s = saved_at - self._begun.began
        return Saved(self._step, self._attempt, self._agreed.kind, size, shards, save_s, verify_s, verified)

    def _abandon(self, error: BaseException) -> None:
        wrong = isinstance(error, CheckpointError) and not isinstance(error, RanksLost)
        whole = self._stands and not wrong  # it was only not read back to the end: a load will verify it
        if self._together.rank == 0 and self._attempt and not whole:
            writer.abandon(self._how.files, self._attempt)

    def _all(self, work: Callable[[], T]) -> T:
        return everywhere(self._together, work, lambda faults: failed(self._step, faults))

    def _first(self, work: Callable[[], Any]) -> Any:
        return on_first(self._together, work, lambda faults: failed(self._step, faults))

    def _values(self) -> Any:
        """What the manifest says beside tensors; on rank 0, elsewhere nobody reads it."""
        state = self._agreed.state
        told = [] if self._agreed.same_values else self._together.gather(told_values(state))
        return merged(state, self._agreed.own, told) if self._together.rank == 0 else None

    def _begin(self, needed: int, boxes: Sequence[Sequence[Box]]) -> None:
        """A new attempt, where there is room for so many bytes, and in a manifest for these boxes."""

        def begin() -> list[str]:
            refuse_too_many(boxes)
            trouble = self._how.room(needed)
            if trouble:
                raise SaveFailed(trouble)
            save_id = os.urandom(4).hex()
            return [writer.begin(self._how.files, self._directory, self._step, save_id), save_id]

        self._attempt, self._save_id = self._first(begin)

    def _written(self) -> Shard | None:
        rank, division = self._together.rank, self._agreed.division
        if self._begun.by_first:
            return self._written_by_first()
        return self._all(lambda: self._write(self._begun.entries, division.ranges[rank], division.boxes[rank]))

    def _written_by_first(self) -> Shard | None:
        """Rank 0 writes one file and asks the others for what it does not have."""
        wire: Any = self._together
        own = self._together.gather(self._begun.own)
        holds, division = self._begun.holds, self._agreed.division
        if holds is None:
            return self._all(lambda: consolidated.serve(wire, self._begun.served))

        def write() -> Shard:
            try:
                total = sum(spec.numel for spec in division.tensors)
                found = consolidated.entries(wire, division, holds, own)
                return self._write(found, [(0, total)] if total else [], [])
            finally:
                consolidated.over(wire, wire.world_size)

        return self._all(write)

    def _write(self, found: Sequence[writer.Entry], ranges: Sequence[tuple[int, int]], boxes: Sequence[Box]) -> Shard:
        return writer.write_shard(
            self._how.files,
            self._attempt,
            rank=self._together.rank,
            world_size=self._together.world_size,
            step=self._step,
            save_id=self._save_id,
            entries=found,
            ranges=ranges,
            boxes=boxes,
            own=True,
        )

    def _committed(self, shard: Shard | None, values: Any) -> tuple[int, int]:
        """The manifest is written when every shard is there and they cover the state, and seen by all ranks.

        The bytes and the number of the shards. Only rank 0 knows the manifest: reading many boxes takes seconds.
        """
        rows = self._together.gather(shard and row_of(shard))

        def commit() -> list[Any]:
            shards = tuple(shard_of(row) for row in rows if row)
            division = self._agreed.division
            tensors = consolidated.flat_specs(division) if self._begun.by_first else division.tensors
            manifest = self._manifest(shards, tensors, values)
            writer.commit(self._how.files, self._attempt, manifest)
            self._stands = True
            return [sum(one.bytes for one in shards), len(shards), digest_of(reader.manifest_bytes(self._attempt))]

        size, count, digest = self._first(commit)
        self._all(lambda: reader.same_manifest(self._attempt, digest))
        return size, count

    def _manifest(self, shards: tuple[Shard, ...], tensors: tuple[TensorSpec, ...], values: Any) -> ShardManifest:
        limit = self._how.resumed_before_step
        return ShardManifest(
            kind=self._agreed.kind,
            step=self._step,
            world_size=self._together.world_size,
            save_id=self._save_id,
            wall_clock_seconds=time.time(),
            tensors=tensors,
            shards=shards,
            values=values,
            metrics={str(name): float(value) for name, value in self._begun.metrics.items()},
            resumed_before_step=-1 if limit is None else limit,
            **run_of(self._how.environ),
        )

    def _read_back(self, shard: Shard | None) -> None:
        def read() -> None:
            if shard is not None:
                reader.verify_bytes(self._attempt, shard, self._how.verify_saved)

        if self._how.verify_saved != OFF:
            self._all(read)


def run_of(environ: Mapping[str, str]) -> dict[str, Any]:
    """run_uid, run_id and round (-1: none) as the launcher tells them."""
    from rankpulse.trainer.launch import identity

    who = identity(environ)
    return {name: who[name] for name in ("run_uid", "run_id", "round")}
