"""A save onto the disks of nodes: each has the shards of its own ranks, and the manifest of all.

It is a checkpoint when every node has the manifest, and no manifest is written before all shards of all nodes are on
their disks. So wherever one is found, all shards were whole once; whether they still are is for the load to see.
"""

import os
from collections.abc import Sequence
from typing import Any

from rankpulse.trainer.checkpoint import manifest as manifests
from rankpulse.trainer.checkpoint import reader, writer
from rankpulse.trainer.checkpoint.coverage import uncovered
from rankpulse.trainer.checkpoint.errors import (
    CheckpointError,
    ManifestInvalid,
    NotCovered,
    RanksLost,
    SaveFailed,
    StateRefused,
)
from rankpulse.trainer.checkpoint.manifest import (
    MANIFEST,
    SHARDED,
    Box,
    Shard,
    ShardManifest,
    digest_of,
    refuse_too_many,
)
from rankpulse.trainer.checkpoint.rows import row_of, shard_of
from rankpulse.trainer.checkpoint.saving import Save

NOT_ITS_OWN = "The local directory must be each node's own: the shared one is given as the first argument"


class LocalSave(Save):
    """`directory` is the local one; `together` has a node for each (`placed`). `How.room` is asked on every node."""

    def _begin(self, needed: int, boxes: Sequence[Sequence[Box]]) -> None:
        def named() -> str:
            refuse_too_many(boxes)
            return os.urandom(4).hex()

        self._save_id = self._first(named)
        self._attempt = os.path.join(self._directory, reader.name_of(self._step, self._save_id))
        self._all(lambda: self._made(self._share(needed)))

    def _share(self, needed: int) -> int:
        """Bytes that this node's ranks write of so many."""
        if self._agreed.kind == SHARDED:
            return needed * self._together.local_world_size // self._together.world_size
        return needed if self._together.nodes[self._together.rank] == 0 else 0

    def _made(self, needed: int) -> None:
        if self._together.local_rank:
            return
        if trouble := self._how.room(needed):
            raise SaveFailed(trouble)
        writer.ensure(self._how.files, self._directory)
        try:
            self._how.files.mkdir(self._attempt)
        except FileExistsError:  # the name was drawn a moment ago
            raise StateRefused(f"{self._directory} is seen by more than one node. {NOT_ITS_OWN}.") from None
        self._how.files.sync_dir(self._directory)

    def _committed(self, shard: Shard | None, values: Any) -> tuple[int, int]:
        rows = self._together.gather(shard and row_of(shard))
        size, count, text = self._first(lambda: self._sealed(rows, values))
        self._stands = True  # from here on some node may have it: what others have of it is not thrown away
        data = text.encode()
        self._all(lambda: self._placed(data))
        self._all(lambda: reader.same_manifest(self._attempt, digest_of(data)))
        return size, count

    def _sealed(self, rows: Sequence[Any], values: Any) -> list[Any]:
        """On rank 0: bytes and number of the shards, and the manifest."""
        from rankpulse.trainer.checkpoint import consolidated

        shards = tuple(shard_of(row) for row in rows if row)
        division = self._agreed.division
        tensors = consolidated.flat_specs(division) if self._begun.by_first else division.tensors
        data = sealed(self._manifest(shards, tensors, values), os.path.join(self._attempt, MANIFEST))
        return [sum(one.bytes for one in shards), len(shards), data.decode()]

    def _placed(self, data: bytes) -> None:
        if self._together.local_rank == 0:
            writer.write_file(self._how.files, os.path.join(self._attempt, MANIFEST), [data])

    def _abandon(self, error: BaseException) -> None:
        """Nobody is left to say what became of it where ranks are lost: the load will see."""
        wrong = isinstance(error, CheckpointError) and not isinstance(error, RanksLost)
        if self._together.local_rank == 0 and self._attempt and (wrong or not self._stands):
            writer.abandon(self._how.files, self._attempt)


def sealed(manifest: ShardManifest, path: str) -> bytes:
    """The manifest as bytes that can be read again. Raises NotCovered, StateRefused."""
    if trouble := uncovered(manifest):
        raise NotCovered(path, "every element of every tensor once", trouble)
    data = manifests.encode(manifest)
    try:
        manifests.decode(data, path)
    except ManifestInvalid as invalid:
        raise StateRefused(f"this state cannot be told in a manifest: {invalid}") from None
    return data
