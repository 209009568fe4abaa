"""One writer's part of last words: its file, those of absent ranks that fall to it, and, for the lowest, the commit.

What the files hold is what an ordinary sharded save would have written, divided among the writers alone. An absent rank
gets a file of its own all the same, with what is its alone as a writer has it: so whoever reads the checkpoint needs no
rule for it.
"""

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from rankpulse.trainer.checkpoint import entries, rng, tree, writer
from rankpulse.trainer.checkpoint.division import Division
from rankpulse.trainer.checkpoint.errors import SaveFailed
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.lastwords.judging import heirs
from rankpulse.trainer.checkpoint.lastwords.layouts import Layouts
from rankpulse.trainer.checkpoint.lastwords.moment import Moment
from rankpulse.trainer.checkpoint.lastwords.words import Plan, Row
from rankpulse.trainer.checkpoint.manifest import (
    LAST_WORDS,
    SCHEMA_ABSENT,
    Shard,
    ShardManifest,
    refuse_too_many,
)
from rankpulse.trainer.checkpoint.parts import Put
from rankpulse.trainer.checkpoint.reader import name_of
from rankpulse.trainer.checkpoint.state import Captured, divided, merged, own_state, told_values


@dataclass(frozen=True)
class Part:
    """What one writer has: its state at the end of the plan's step."""

    rank: int
    state: Captured
    moment: Moment


def division(layouts: Layouts, plan: Plan) -> Division:
    """Who writes what, by rank: the same for all who have the same plan. Raises StateRefused."""
    told = [layouts.tells(rank) for rank in plan.writers]
    if plan.first_only:
        known = {id(one): _first_only(one) for one in told}
        told = [known[id(one)] for one in told]
    among = divided(told, plan.own)
    refuse_too_many(among.boxes)
    nothing: tuple[Any, ...] = ()
    places = {rank: at for at, rank in enumerate(plan.writers)}
    ranges = tuple(among.ranges[places[rank]] if rank in places else nothing for rank in range(layouts.world))
    boxes = tuple(among.boxes[places[rank]] if rank in places else nothing for rank in range(layouts.world))
    return Division(among.tensors, ranges, boxes)


def _first_only(tells: Mapping[str, Any]) -> dict[str, Any]:
    """A layout in which all that is whole is meant to be taken from the lowest rank that has it."""
    return {
        name: {**part, "one": sorted(row[0] for row in part["items"] if row[3] is None)} for name, part in tells.items()
    }


def needed_bytes(shares: Division) -> int:
    return sum(spec.nbytes for spec in shares.tensors) + (len(shares.ranges) << 16)


def attempt_of(directory: str, plan: Plan) -> str:
    return os.path.join(directory, name_of(plan.step, plan.save_id))


def write(files: Files, directory: str, layouts: Layouts, plan: Plan, part: Part) -> Row:
    """This writer's files. Raises OSError, SaveFailed, StateRefused."""
    with part.moment.aside():
        return _written(files, directory, layouts, plan, part)


def _written(files: Files, directory: str, layouts: Layouts, plan: Plan, part: Part) -> Row:
    shares, state = division(layouts, plan), part.state
    values, found = own_state(state, plan.own, plan.buffers_differ)
    mine = [*entries.of_division(state, shares, part.rank), *_own(part.rank, values, found)]
    shards = [_shard(files, directory, layouts, plan, part.rank, mine, shares)]
    for rank, (heir, same) in heirs(layouts, plan).items():
        if heir == part.rank:
            theirs = state if same else _with_generators(state, part.moment, rank)
            values, found = own_state(theirs, plan.own, plan.buffers_differ)
            shards.append(_shard(files, directory, layouts, plan, rank, _own(rank, values, found), shares))
    if name := part.moment.torn():
        raise SaveFailed(
            f"{name} was changed after the end of step {plan.step} by something that is no optimizer's step"
        )
    return Row(part.rank, tuple(shards), told_values(state) if plan.told else None)


def _own(rank: int, values: Any, found: Mapping[str, Any]) -> list[writer.Entry]:
    return entries.of_own(rank, values, {name: entries.whole(tensor) for name, tensor in found.items()})


def _with_generators(state: Captured, moment: Moment, rank: int) -> Captured:
    put = Put()
    encoded = tree.encode(rng.derived(dict(moment.generators), rank), "rng", put.leaf)
    return replace(state, rng=encoded, rng_tensors=put.tensors)


def _shard(
    files: Files,
    directory: str,
    layouts: Layouts,
    plan: Plan,
    rank: int,
    found: Sequence[writer.Entry],
    shares: Division,
) -> Shard:
    return writer.write_shard(
        files,
        attempt_of(directory, plan),
        rank=rank,
        world_size=layouts.world,
        step=plan.step,
        save_id=plan.save_id,
        entries=found,
        ranges=shares.ranges[rank],
        boxes=shares.boxes[rank],
        own=True,
    )


def commit(
    files: Files,
    directory: str,
    layouts: Layouts,
    plan: Plan,
    part: Part,
    rows: Sequence[Row],
    run: Mapping[str, Any],
    limit: int | None,
) -> int:
    """By the lowest writer, when all rows are there. Bytes of the shards. Raises Refused, StateRefused, OSError."""
    shards = tuple(sorted((shard for row in rows for shard in row.shards), key=lambda shard: shard.rank))
    told = [row.values for row in rows if row.values is not None] if plan.told else []
    manifest = ShardManifest(
        kind=LAST_WORDS,
        step=plan.step,
        world_size=layouts.world,
        save_id=plan.save_id,
        wall_clock_seconds=time.time(),
        tensors=division(layouts, plan).tensors,
        shards=shards,
        values=merged(part.state, plan.own, told),
        metrics={str(name): float(value) for name, value in part.moment.metrics.items()},
        resumed_before_step=-1 if limit is None else limit,
        schema_version=SCHEMA_ABSENT,
        absent=plan.absent,
        **run,
    )
    writer.commit(files, attempt_of(directory, plan), manifest)
    return sum(shard.bytes for shard in shards)


def give_up(files: Files, directory: str, plan: Plan) -> None:
    """The attempt becomes no checkpoint. Raises nothing."""
    with suppress(OSError):
        writer.abandon(files, attempt_of(directory, plan))
