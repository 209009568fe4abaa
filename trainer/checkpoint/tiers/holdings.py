"""What lies where, and from where each missing file is taken. Values only, but for `held`.

A row tells of one checkpoint at one place: what its manifest says of itself, and which shards are there in which size.
Rows are JSON: nodes tell theirs to rank 0.
"""

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from rankpulse.trainer.checkpoint import reader
from rankpulse.trainer.checkpoint.errors import Refused
from rankpulse.trainer.checkpoint.manifest import SHARDED, ShardManifest, digest_of
from rankpulse.trainer.checkpoint.reader import Found
from rankpulse.trainer.checkpoint.target import Copy, step_of
from rankpulse.trainer.checkpoint.together import Fault

Place: TypeAlias = int  # a node from 0 on; -1: the shared directory; -2, -3, ...: durable targets, in their order
SHARED_PLACE: Final = -1


@dataclass(frozen=True, slots=True)
class Row:
    """digest: of the manifest, "" where there is none that can be used; `refused`: why. files: bytes by name."""

    step: int
    clock: float = 0.0
    digest: str = ""
    run: Sequence[Any] = ("", "", -1, -1)  # run_uid, run_id, round, resumed_before_step
    refused: Any = None
    files: Mapping[str, int] = field(default_factory=dict)
    manifest_bytes: int = 0

    @property
    def told(self) -> list[Any]:
        return [self.step, self.clock, self.digest, list(self.run), self.refused, dict(self.files), self.manifest_bytes]


@dataclass(frozen=True, slots=True)
class Held:
    """rows: by the name of the checkpoint. aside: names that were set aside there."""

    rows: Mapping[str, Row] = field(default_factory=dict)
    aside: Sequence[str] = ()

    @property
    def told(self) -> list[Any]:
        return [{name: row.told for name, row in self.rows.items()}, list(self.aside)]

    @classmethod
    def of(cls, told: Any) -> "Held":
        rows, aside = told
        return cls({name: Row(*row) for name, row in rows.items()}, tuple(aside))


def held(directory: str) -> Held:
    """What is in a directory. Raises NothingVerified where it cannot be listed."""
    listing = reader.scan(directory)
    rows = {os.path.basename(found.path): _row(found) for found in listing.committed}
    for path in listing.partial:
        name = os.path.basename(path)
        rows[name] = Row(step_of(name), files=_files(path))
    return Held(rows, tuple(os.path.basename(path).removeprefix(reader.ASIDE) for path in listing.aside))


UNREAD: Final = "?"  # a manifest that is there, and was not read


def held_at(copies: Sequence[Copy]) -> Held:
    """What a durable target has: its manifests are not read to be listed."""
    return Held({copy.name: Row(copy.step, digest=UNREAD, files=dict(copy.files)) for copy in copies})


def _row(found: Found) -> Row:
    files = _files(found.path)
    manifest = found.manifest
    if manifest is None:
        refused = Fault.of(0, found.refused).row if found.refused else None
        return Row(found.step, refused=refused, files=files)
    try:
        data = reader.manifest_bytes(found.path)
    except Refused as error:
        return Row(found.step, refused=Fault.of(0, error).row, files=files)
    return outline(manifest, data, files)


def outline(manifest: ShardManifest, data: bytes, files: Mapping[str, int]) -> Row:
    """data: the manifest's own bytes."""
    run = (manifest.run_uid, manifest.run_id, manifest.round, manifest.resumed_before_step)
    return Row(manifest.step, manifest.wall_clock_seconds, digest_of(data), run, None, files, len(data))


def _files(path: str) -> dict[str, int]:
    sizes = {}
    try:
        for entry in os.scandir(path):
            if entry.name.endswith(".safetensors") and not entry.name.startswith("."):
                sizes[entry.name] = entry.stat(follow_symlinks=False).st_size
    except OSError:
        return {}
    return sizes


@dataclass(frozen=True, slots=True)
class Offered:
    """One checkpoint, wherever parts of it lie."""

    name: str
    rows: Mapping[Place, Row]

    @property
    def step(self) -> int:
        return next(iter(self.rows.values())).step

    @property
    def manifests(self) -> list[Place]:
        """Where a manifest is that can be used, the nearest first."""
        return nearest((place for place, row in self.rows.items() if row.digest), 0)

    @property
    def refused(self) -> Any:
        """Why no manifest can be used; None where one can."""
        if self.manifests:
            return None
        return next((row.refused for row in self.rows.values() if row.refused), None)

    @property
    def found(self) -> Found:
        """As the rules about limits want it."""
        known = [row for place in self.manifests if (row := self.rows[place]).digest != UNREAD]
        save_id = self.name.rpartition("-")[2]
        if not known:
            return Found(self.name, self.step, save_id)
        uid, run_id, round_, limit = known[0].run
        outline = ShardManifest(
            SHARDED, self.step, 0, save_id, known[0].clock, (), (), run_uid=uid, run_id=run_id, round=round_,
            resumed_before_step=limit,
        )  # fmt: skip
        return Found(self.name, self.step, save_id, manifest=outline)


def offered(places: Mapping[Place, Held]) -> list[Offered]:
    """The checkpoints of which a manifest is anywhere, and nowhere set aside; the newest first."""
    aside = {name for one in places.values() for name in one.aside}
    rows: dict[str, dict[Place, Row]] = {}
    for place, one in places.items():
        for name, row in one.rows.items():
            if name not in aside:
                rows.setdefault(name, {})[place] = row
    found = [Offered(name, by) for name, by in rows.items() if any(row.digest or row.refused for row in by.values())]
    return sorted(found, key=_newest_first)


def _newest_first(one: Offered) -> tuple[int, float, str]:
    return -one.step, -max(row.clock for row in one.rows.values()), one.name


def nearest(places: Iterable[Place], to: Place) -> list[Place]:
    """In the order in which one asks: nodes, those that come next first (they hold the copies), then the shared
    directory, then durable targets."""
    return sorted(places, key=lambda place: (place < 0, place < to, abs(place)))


@dataclass(frozen=True, slots=True)
class Move:
    """One file, from one place to a node."""

    file: str
    bytes: int
    source: Place
    to: int

    @property
    def told(self) -> list[Any]:
        return [self.file, self.bytes, self.source, self.to]


def moves(
    wanted: Collection[tuple[int, str]],
    sizes: Mapping[str, int],
    rows: Mapping[Place, Row],
    bad: Collection[tuple[Place, str]],
) -> tuple[list[Move], list[str]]:
    """How the next of the wanted (node, file) come there, and the files of which nobody has a copy that may be good.

    sizes: bytes of each file, as the manifest says. bad: (place, file) that were tried, or found damaged. No node sends
    one file twice in one call: who has received it sends it on in the next, so that what all need spreads by doubling.
    """
    found, missing = [], []
    used: set[tuple[Place, str]] = set()
    for node, file in sorted(wanted):
        have = [place for place, row in rows.items() if row.files.get(file) == sizes[file] and place != node]
        sources = [place for place in nearest(have, node) if (place, file) not in bad]
        free = [place for place in sources if (place, file) not in used]
        if free and (free[0] >= 0 or sources[0] < 0):  # what a node will have in a moment is not read from afar
            found.append(Move(file, sizes[file], free[0], node))
            used |= {(free[0], file)} if free[0] >= 0 else set()
        elif not sources:
            missing.append(file)
    return found, sorted(set(missing))
