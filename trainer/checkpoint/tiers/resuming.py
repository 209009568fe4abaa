"""A load from the nearest copies: the newest checkpoint of which everything is somewhere, each file from the own disk,
else from a node that has it, else from the shared directory, else from durable targets.

Everything that a node reads lies on its disk before anything is loaded, and was compared with the manifest on the way
or there. So the load is that of `loading`, of the local directory. What is damaged here is taken from elsewhere before
an older checkpoint is tried.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from rankpulse.trainer.checkpoint import choosing, reader, rotation
from rankpulse.trainer.checkpoint.candidate import Candidate
from rankpulse.trainer.checkpoint.durable import Place as Target
from rankpulse.trainer.checkpoint.errors import Damaged, NothingVerified, ShardMissing
from rankpulse.trainer.checkpoint.loading import Load, Where, as_it_was, why_not, worst
from rankpulse.trainer.checkpoint.manifest import MANIFEST
from rankpulse.trainer.checkpoint.state import Part
from rankpulse.trainer.checkpoint.target import Copy
from rankpulse.trainer.checkpoint.tiers.holdings import (
    SHARED_PLACE,
    UNREAD,
    Held,
    Move,
    Offered,
    Row,
    held,
    held_at,
    moves,
    offered,
    outline,
)
from rankpulse.trainer.checkpoint.tiers.moving import Check, Moving, is_manifest, is_shard_of
from rankpulse.trainer.checkpoint.tiers.placed import Placed
from rankpulse.trainer.checkpoint.tiers.reach import within
from rankpulse.trainer.checkpoint.together import everywhere, on_first

LOOK_S: Final = 60.0  # a place that does not say in this time what it has is taken to be out of reach


@dataclass(frozen=True)
class Places:
    """local: the directory on each node's own disk. targets: by number what every node can read: -1 the shared
    directory, -2 and on the durable ones."""

    local: str
    targets: Mapping[int, Target]
    look_s: float = LOOK_S


class TieredLoad(Load):
    """Every method is called by all ranks, unless it says that it is rank 0's."""

    _together: Placed

    def __init__(self, places: Places, parts: Sequence[Part], together: Placed, where: Where) -> None:
        super().__init__(places.local, parts, together, where)
        self._places = places
        self._moving = Moving(together, where.files, places.local, places.targets)
        self._offered: dict[str, Offered] = {}  # on rank 0

    def _candidates(self) -> list[Any]:
        mine = everywhere(self._together, self._held_here, as_it_was)
        told = self._together.gather(mine and mine.told)
        rows, gone, remarks = on_first(self._together, lambda: self._judged(told), as_it_was)
        self._say(remarks)
        self._say(self._set_aside(gone))
        return list(rows)

    def _held_here(self) -> Held | None:
        return held(self._directory) if self._together.first_here else None

    def _judged(self, told: Sequence[Any]) -> list[Any]:
        """On rank 0: candidates as `Load` takes them, the names to be set aside, and what is to be said."""
        nodes, limit = self._together.nodes, self._limit
        places: dict[int, Held] = {nodes[rank]: Held.of(one) for rank, one in enumerate(told) if one}
        troubles = self._look_further(places)
        every = offered(places)
        late = self._late(every)
        rest = [one for one in every if one.name not in late]
        if not every and troubles:
            raise NothingVerified(
                f"no node has a checkpoint in {self._directory}, and what is elsewhere cannot be known:"
                f" {'; '.join(troubles)}. To start from zero all the same, leave those places out."
            )
        if limit is not None and not rest:  # and nothing is renamed: another limit may be meant
            raise NothingVerified(choosing.nothing_before(self._directory, limit))
        self._offered = {one.name: one for one in rest}
        remarks = troubles + choosing.saved_since([one.found for one in rest], limit)
        aside = sorted({name for one in places.values() for name in one.aside})
        if not rest:
            partial = len({name for one in places.values() for name in one.rows})
            remarks += choosing.none_here(self._directory, partial, len(aside))
        return [[[one.name, one.step, one.refused] for one in rest], [sorted(late), aside], remarks]

    def _late(self, every: Sequence[Offered]) -> set[str]:
        if self._limit is None:
            return set()
        asked = [self._outlined(one) if one.step >= self._limit else one for one in every]
        late = choosing.too_late([one.found for one in asked], self._limit, self._where.environ)
        for found in late:
            reason = f"set aside: to resume before step {self._limit}"
            self._where.tell("refused", step=found.step, reason=reason)
        return {found.path for found in late}

    def _outlined(self, one: Offered) -> Offered:
        """With who has saved it, also where durable targets alone have it."""
        if any(one.rows[place].digest != UNREAD for place in one.manifests):
            return one
        for place in one.manifests:
            with suppress(Exception):  # its file system's own
                return Offered(one.name, {place: self._read(one.name, place, one.rows[place])})
        return one

    def _look_further(self, places: dict[int, Held]) -> list[str]:
        """On rank 0: add what the shared directory and the durable targets have; which could not be looked at."""
        troubles = []
        for place, target in self._places.targets.items():
            try:
                places[place] = within(self._places.look_s, partial(_held_at, place, target))
            except Exception as error:  # its file system's own
                troubles.append(f"{target.url} cannot be looked at: {type(error).__name__}: {error}")
        return troubles

    def _set_aside(self, gone: Sequence[Sequence[str]]) -> list[str]:
        """On every tier. gone: the names that the limit means, and those that were set aside in some place before."""
        (late, before), limit = gone, self._limit
        if not late and not before:
            return []

        def here() -> list[str]:
            said = []
            for name in [*late, *before] if self._together.first_here else ():
                path = os.path.join(self._directory, name)
                if os.path.lexists(path):
                    to = rotation.set_aside(self._where.files, path, f"to resume before step {limit}, as was asked")
                    said.append(f"{name} is set aside: it is kept as {to}")
            return said

        said = everywhere(self._together, here, as_it_was)
        return said + (self._withdrawn([*late, *before]) if self._together.rank == 0 else [])

    def _withdrawn(self, names: Sequence[str]) -> list[str]:
        """On rank 0. What cannot be reached keeps it, and it is left out all the same: nodes remember."""
        said = []
        for target in self._places.targets.values():
            try:
                gone = within(self._places.look_s, partial(_withdrawn, target, names))
                said += [f"{name} was set aside at {target.url}, too: it is kept there" for name in gone]
            except Exception as error:
                said.append(f"what was set aside stays at {target.url}: {type(error).__name__}: {error}")
        return said

    def _none_here_either(self) -> None:
        """All nodes were asked."""

    def _digest(self, path: str, refused: Any) -> str:
        """The manifest comes to every node that has it not, or another."""
        name, tried = os.path.basename(path), set[int]()

        def planned() -> list[Any]:
            return self._manifests(name, path, refused, tried)

        while True:
            digest, told = on_first(self._together, planned, worst)
            failed = self._run(name, [Move(*one) for one in told], is_manifest(path, digest))
            if not failed:
                return str(digest)
            tried.update(move.source for move in failed)

    def _manifests(self, name: str, path: str, refused: Any, tried: Collection[int]) -> list[Any]:
        """On rank 0: the digest that counts, and how the manifest comes to those nodes that do not have it."""
        one = self._offered[name]
        source = next((place for place in one.manifests if place not in tried), None)
        if source is None:
            raise why_not(path, refused) if refused else ShardMissing(os.path.join(path, MANIFEST))
        row = one.rows[source]
        if row.digest == UNREAD:
            row = self._read(name, source, row)
        have = {place for place, other in one.rows.items() if other.digest == row.digest}
        lack = [node for node in range(len(self._together.firsts)) if node not in have]
        return [row.digest, [Move(MANIFEST, row.manifest_bytes, source, node).told for node in lack]]

    def _read(self, name: str, source: int, row: Row) -> Row:
        """On rank 0: what the manifest at a place says of itself. Raises Refused, and what that place raises."""
        copy, target = Copy(name, row.step, {}), self._places.targets[source]
        data = within(self._places.look_s, lambda: b"".join(target.pieces(copy, MANIFEST)))
        return outline(reader.judged(os.path.join(self._directory, name), data), data, row.files)

    def _verify(self, one: Candidate, mine: Sequence[int]) -> None:
        name = os.path.basename(one.path)
        wrong = self._all(lambda: self._wrong(one, mine))
        needs = self._together.gather([sorted({*one.shards, *mine}), wrong])
        search = self._search(one, needs) if self._together.rank == 0 else None
        while told := on_first(self._together, lambda: search and search.next(), worst):
            plan = [Move(*move) for move in told]
            failed = self._run(name, plan, is_shard_of(one.manifest, one.path))
            if search is not None:
                search.settle(plan, failed)

    def _wrong(self, one: Candidate, mine: Sequence[int]) -> list[int]:
        """Which of these shards this node has not, or not as they were saved."""
        found = []
        for number in mine:
            try:
                one.verify([number], self._where.verify)
            except Damaged as damaged:
                found.append(number)
                if not isinstance(damaged, ShardMissing):
                    self._where.say(f"{damaged}: it is looked for elsewhere")
        return found

    def _search(self, one: Candidate, needs: Sequence[Any]) -> "Search":
        """On rank 0."""
        shards, nodes = one.manifest.shards, self._together.nodes
        search = Search(
            one.path, {shard.path: shard.bytes for shard in shards}, self._offered[os.path.basename(one.path)]
        )
        for rank, (needed, wrong) in enumerate(needs):
            search.want(nodes[rank], [shards[number].path for number in needed], [shards[at].path for at in wrong])
        return search

    def _run(self, name: str, plan: Sequence[Move], check: Callable[[str], Check]) -> list[Move]:
        """The moves that failed, on all ranks alike."""
        mine = self._moving.run(name, plan, check)
        told = self._together.gather([[at, text] for at, text in enumerate(mine) if text])
        failed = [row for rows in told for row in rows]
        self._say([f"{plan[at].file} of {name} did not come to node {plan[at].to}: {text}" for at, text in failed])
        return [plan[at] for at in self._together.tell([at for at, _ in failed])]


class Search:
    """On rank 0: what is still missing where, of one checkpoint, and which copies were no good."""

    def __init__(self, path: str, sizes: Mapping[str, int], offered: Offered) -> None:
        self._path, self._sizes = path, sizes
        self._rows = {place: replace(row, files=dict(row.files)) for place, row in offered.rows.items()}
        self._wanted: set[tuple[int, str]] = set()
        self._bad: set[tuple[int, str]] = set()

    def want(self, node: int, needed: Sequence[str], wrong: Sequence[str]) -> None:
        """A rank of this node reads these files, and has found some of them not to be as they were saved."""
        self._bad |= {(node, file) for file in wrong}
        have = self._rows[node].files if node in self._rows else {}
        self._wanted |= {(node, file) for file in needed if have.get(file) != self._sizes[file]}
        self._wanted |= {(node, file) for file in wrong}

    def next(self) -> list[Any]:
        """The next moves; none when all is where it is needed. Raises Damaged where nobody has a good copy."""
        found, missing = moves(self._wanted, self._sizes, self._rows, self._bad)
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            files = ", ".join(missing[:3]) + more
            raise ShardMissing(self._path, "each file whole on a node or in a place behind them", f"none of {files}")
        return [move.told for move in found]

    def settle(self, plan: Sequence[Move], failed: Sequence[Move]) -> None:
        for move in plan:
            if move in failed:
                self._bad.add((move.source, move.file))
                continue
            row = self._rows.setdefault(move.to, Row(-1))
            self._rows[move.to] = replace(row, files={**row.files, move.file: move.bytes})
            self._wanted.discard((move.to, move.file))
            self._bad.discard((move.to, move.file))


def _withdrawn(target: Target, names: Sequence[str]) -> list[str]:
    return [name for name in names if target.withdraw(name)]


def _held_at(place: int, target: Target) -> Held:
    """The shared directory says as much of itself as a local one."""
    return held(target.url) if place == SHARED_PLACE else held_at(target.copies())
