"""Saving: all ranks agree on what is written by whom, write, look whether it is all there, commit, read it back.

No rank is left waiting because another has met trouble: what each one does by itself is tried, and how it went is
told before the next thing that all do together.
"""

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from rankpulse.trainer.checkpoint import consolidated, entries, reader, writer
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
from rankpulse.trainer.checkpoint.parts import listed
from rankpulse.trainer.checkpoint.rows import packed, row_of, shard_of, unpacked
from rankpulse.trainer.checkpoint.state import (
    Captured,
    Decided,
    Part,
    alike,
    captured,
    decided,
    described,
    drifted,
    mapped,
    own_state,
)
from rankpulse.trainer.checkpoint.together import Faults, Together, everywhere, on_first

AUTO: Final = "auto"
OFF: Final = "off"
SHARDED_FROM: Final = 10**9  # bytes of state above which `auto` has every rank write
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that was saved. `bytes`: of its shards. `verified`: read back, and it is what was written."""

    step: int
    path: str
    kind: str
    bytes: int
    shards: int
    save_s: float
    verify_s: float
    verified: bool


@dataclass(frozen=True)
class How:
    """How to save. `room(bytes)` is called on rank 0 before anything is written; its text is why that cannot work."""

    mode: str = AUTO  # "auto", "sharded", "consolidated"
    verify_saved: str = reader.FAST  # "fast", "full", "off"
    files: Files = field(default_factory=Files)
    room: Callable[[int], str] = lambda nbytes: ""
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], float] = time.monotonic
    say: Callable[[str], None] = lambda text: None
    resumed_before_step: int | None = None  # the limit that the load before obeyed, if it had one


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
    with speaking(together) as world:
        return _Save(os.path.abspath(directory), parts, step, metrics or {}, world, how or How()).run()


class _Save:
    """One save. Every method is called by all ranks."""

    def __init__(
        self,
        directory: str,
        parts: Sequence[Part],
        step: int,
        metrics: Mapping[str, float],
        together: Together,
        how: How,
    ) -> None:
        self._directory, self._parts, self._step, self._metrics = directory, parts, step, metrics
        self._together, self._how = together, how
        self._attempt = self._save_id = ""
        self._stands = False  # the manifest is there; on rank 0

    def run(self) -> Saved:
        began = self._how.clock()
        try:
            self._agreed()
            state = self._all(lambda: captured(self._parts))
            state = replace(state, drifted=self._drifted(state))
            plan = replace(self._decided(state), buffers_differ=not self._together.same(state.buffers))
            nbytes = sum(tensor.nbytes for tensor in plan.division.tensors)
            kind = kind_of(self._how.mode, nbytes, self._together.world_size)
            self._begin(nbytes + (self._together.world_size << 16), plan.division.boxes if kind == SHARDED else ())
            shard = self._written(state, plan, kind)
            size, shards = self._committed(shard, plan, kind)
            saved_at = self._how.clock()
            self._read_back(shard)
        except BaseException as error:
            wrong = isinstance(error, CheckpointError) and not isinstance(error, RanksLost)
            whole = self._stands and not wrong  # it was only not read back to the end: a load will verify it
            if self._together.rank == 0 and self._attempt and not whole:
                writer.abandon(self._how.files, self._attempt)
            raise
        verified = self._how.verify_saved != OFF
        verify_s = self._how.clock() - saved_at if verified else 0.0
        return Saved(self._step, self._attempt, kind, size, shards, saved_at - began, verify_s, verified)

    def _all(self, work: Callable[[], T]) -> T:
        return everywhere(self._together, work, self._failed)

    def _first(self, work: Callable[[], Any]) -> Any:
        return on_first(self._together, work, self._failed)

    def _failed(self, faults: Faults) -> Exception:
        texts = "; ".join(map(str, faults[:4])) + (f"; {len(faults) - 4} more" if len(faults) > 4 else "")
        if any(fault.kind == StateRefused.__name__ for fault in faults):
            return StateRefused(texts)
        return SaveFailed(f"step {self._step} was not saved: {texts}")

    def _agreed(self) -> None:
        """Raises StateRefused where ranks are at different steps, or save in different ways: no part of what they
        write would fit another's."""
        mine = {"step": self._step, "mode": self._how.mode, "verify_saved": self._how.verify_saved}
        if self._together.same(json.dumps(mine)):
            return
        every = self._together.gather(mine)
        other = next((rank for rank, theirs in enumerate(every) if theirs != mine), 0)  # on rank 0
        text = self._together.tell(f"rank 0 saves {mine}, rank {other} {every[other]}" if every else "")
        raise StateRefused(f"the ranks do not mean the same: {text}. All must call with the same step and settings.")

    def _drifted(self, state: Captured) -> frozenset[str]:
        """Parameters that should be the same on all ranks and are not: they are taken from rank 0 alone."""
        if self._together.same(json.dumps(state.samples)):
            return frozenset()
        every = self._together.gather(state.samples)
        names = self._together.tell(drifted(every))
        if names and self._together.rank == 0:
            self._how.say(f"ranks have drifted apart in {listed(names)}: the checkpoint has what rank 0 has")
        return frozenset(names)

    def _decided(self, state: Captured) -> Decided:
        """The division, the same on all ranks. Where it had to be told, only rank 0 has the manifest's values."""
        world = self._together.world_size
        mine = self._all(lambda: described(state))
        if self._together.same(json.dumps(mine)) and (world == 1 or alike(mine)):
            return self._all(lambda: decided(state, [mine] * world))
        every = self._together.gather(mine)
        plan: list[Decided] = []

        def divide() -> Any:
            plan.append(decided(state, every))
            return [packed(plan[0].division), plan[0].own]

        division, own = self._first(divide)
        return plan[0] if plan else Decided(unpacked(division), tuple(own), None)

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

    def _written(self, state: Captured, plan: Decided, kind: str) -> Shard | None:
        rank = self._together.rank
        if kind == CONSOLIDATED and self._together.world_size > 1:
            return self._written_by_first(state, plan)
        own = entries.of_own(rank, *own_state(state, plan.own, plan.buffers_differ))

        def write() -> Shard:
            found = [*entries.of_division(state, plan.division, rank), *own]
            return self._write(found, plan.division.ranges[rank], plan.division.boxes[rank])

        return self._all(write)

    def _written_by_first(self, state: Captured, plan: Decided) -> Shard | None:
        """Rank 0 writes one file and asks the others for what it does not have."""
        wire: Any = self._together
        values, tensors = own_state(state, plan.own, plan.buffers_differ)
        own = self._together.gather(values)
        if wire.rank != 0:
            handed = consolidated.served(plan.division, wire.rank, state, tensors.values())
            return self._all(lambda: consolidated.serve(wire, handed))

        def write() -> Shard:
            try:
                total = sum(spec.numel for spec in plan.division.tensors)
                found = consolidated.entries(wire, plan.division, state, own, tensors)
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

    def _committed(self, shard: Shard | None, plan: Decided, kind: str) -> tuple[int, int]:
        """The manifest is written when every shard is there and they cover the state, and seen by all ranks.

        The bytes and the number of the shards. Only rank 0 knows the manifest: reading many boxes takes seconds.
        """
        rows = self._together.gather(shard and row_of(shard))

        def commit() -> list[Any]:
            shards = tuple(shard_of(row) for row in rows if row)
            one = kind == CONSOLIDATED and self._together.world_size > 1
            tensors = consolidated.flat_specs(plan.division) if one else plan.division.tensors
            manifest = self._manifest(shards, tensors, plan.values, kind)
            writer.commit(self._how.files, self._attempt, manifest)
            self._stands = True
            return [sum(one.bytes for one in shards), len(shards), digest_of(reader.manifest_bytes(self._attempt))]

        size, count, digest = self._first(commit)
        self._all(lambda: reader.same_manifest(self._attempt, digest))
        return size, count

    def _manifest(
        self, shards: tuple[Shard, ...], tensors: tuple[TensorSpec, ...], values: Any, kind: str
    ) -> ShardManifest:
        limit = self._how.resumed_before_step
        return ShardManifest(
            kind=kind,
            step=self._step,
            world_size=self._together.world_size,
            save_id=self._save_id,
            wall_clock_seconds=time.time(),
            tensors=tensors,
            shards=shards,
            values=values,
            metrics={str(name): float(value) for name, value in self._metrics.items()},
            resumed_before_step=-1 if limit is None else limit,
            **run_of(self._how.environ),
        )

    def _read_back(self, shard: Shard | None) -> None:
        def read() -> None:
            if shard is not None:
                reader.verify_bytes(self._attempt, shard, self._how.verify_saved)

        if self._how.verify_saved != OFF:
            self._all(read)


def kind_of(mode: str, nbytes: int, world_size: int) -> str:
    """Sharded or consolidated, for a state of so many bytes."""
    if mode != AUTO:
        return mode
    return SHARDED if nbytes > SHARDED_FROM and world_size > 1 else CONSOLIDATED


def run_of(environ: Mapping[str, str]) -> dict[str, Any]:
    """run_uid, run_id and round (-1: none) as the launcher tells them."""
    from rankpulse.trainer.launch import identity

    who = identity(environ)
    return {name: who[name] for name in ("run_uid", "run_id", "round")}
