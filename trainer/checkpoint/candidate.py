"""One checkpoint in the eyes of one rank: compared with the program, verified, read into it."""

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from rankpulse.trainer.checkpoint import reader, rng
from rankpulse.trainer.checkpoint.errors import ChecksumDiffers, ShardMissing, StateMismatch, WorldSizeChanged
from rankpulse.trainer.checkpoint.manifest import MANIFEST, ShardManifest, TensorSpec, digest_of
from rankpulse.trainer.checkpoint.parts import Prepared, decoded, fitting, listed, named
from rankpulse.trainer.checkpoint.reading import Reads, Source, own_specs
from rankpulse.trainer.checkpoint.state import Part
from rankpulse.trainer.checkpoint.surviving import ranks_were
from rankpulse.trainer.checkpoint.writer import SHARED

_EXTRA: Final = "extra."
_NO_RESHARD: Final = "Give allow_reshard=True to load it all the same, or start as many ranks"


class Candidate:
    """Used in the order of its methods; a context manager. Every method is called on all ranks; none talks to others.

    `remarks`: what is to be said of it when it is loaded.
    """

    def __init__(self, path: str, rank: int, world_size: int) -> None:
        self.path = path
        self.remarks: list[str] = []
        self._rank, self._world_size = rank, world_size
        self._stack: list[Source] = []
        self._prepared: list[Prepared] = []
        self._own_parts: list[Part] = []
        self._rng: Any = None

    def open(self, digest: str, parts: Sequence[Part], allow_reshard: bool) -> None:
        """Raises Refused, WorldSizeChanged and StateMismatch. Nothing of the program has changed afterwards."""
        path = f"{self.path}/{MANIFEST}"
        if self._rank and not os.path.lexists(path):
            raise ShardMissing(path, "the file that rank 0 reads", f"none where rank {self._rank} runs", SHARED)
        data = reader.manifest_bytes(self.path)
        if (found := digest_of(data)) != digest:
            raise ChecksumDiffers(path, f"{digest or 'a digest'}, as rank 0 reads it", found)
        self.manifest: ShardManifest = reader.judged(self.path, data)
        if self.manifest.world_size != self._world_size and not allow_reshard:
            raise WorldSizeChanged(
                self.path, f"{self._world_size} ranks, as there are now", self.manifest.world_size, _NO_RESHARD
            )
        self.source = Source(self.path, self.manifest)
        self._stack.append(self.source)
        self._prepare(parts)
        self._reads = Reads(self.source, [read for prepared in self._prepared for read in prepared.reads])

    def _prepare(self, parts: Sequence[Part]) -> None:
        values = self.manifest.values if isinstance(self.manifest.values, dict) else {}
        shared, own = values.get("parts"), values.get("own")
        if not isinstance(shared, dict) or not isinstance(own, list):
            raise StateMismatch(f"{self.path} has no program's state: it was not saved by a CheckpointManager")
        for part in parts:
            if part.name in own:
                self._own_parts.append(part)
            elif part.name in shared:
                self._prepared.append(part.prepare(shared[part.name], self.source.specs))
            else:
                raise StateMismatch(f"{self.path} has no {part.name}: it was saved without one")
        beyond = sorted({*shared, *map(str, own)} - {part.name for part in parts})
        if beyond:
            self.remarks.append(f"{self.path} also has {listed(beyond)}, which this program does not ask for")
        self._look_at_own()
        if self.manifest.absent:
            self.remarks.append(
                f"{self.path} was written by survivors: {ranks_were(self.manifest.absent)} gone, and the random numbers"
                " there are derived from a survivor's (or are its own, where they had been the same); what differed"
                " between ranks is a survivor's, too"
            )

    def _look_at_own(self) -> None:
        """What ranks had each for themselves has no heir in another world, except where rank 0's will do."""
        if self.manifest.world_size == self._world_size:
            return
        for part in self._own_parts:
            if part.name.startswith(_EXTRA) or not part.loose:
                raise StateMismatch(
                    f"{self.path}: {part.name} was another on each of {self.manifest.world_size} ranks, which"
                    f" {self._world_size} ranks cannot share out: load without it, or save what all ranks have alike"
                )
            self.remarks.append(f"{part.name} differed between ranks: all take that of rank 0")
        if self._world_size > self.manifest.world_size:
            self.remarks.append(
                f"ranks from {self.manifest.world_size} on have no random number generators in {self.path}:"
                " they keep those that the program has seeded"
            )

    @property
    def shards(self) -> set[int]:
        """The shards that this rank reads from."""
        return self._reads.shards | self.source.own_shard(self._rank) | self.source.own_shard(self._heir)

    @property
    def _heir(self) -> int:
        """The rank whose parts this one takes where ranks differed."""
        return self._rank if self.manifest.world_size == self._world_size else 0

    @property
    def unused(self) -> list[str]:
        """What the checkpoint has of this program's parts and this rank does not."""
        return [name for prepared in self._prepared for name in prepared.unused]

    def verify(self, shards: Sequence[int], level: str) -> None:
        """Raises Refused unless all bytes of these shards are those that were saved."""
        for number in shards:
            reader.verify_shard(self.path, self.manifest, self.manifest.shards[number], level)

    def read(self) -> None:
        """Into the program's memory. From here on the program holds something between, until `finish`."""
        self._reads.run()
        if self._own_parts:
            self._read_own_parts()
        self._read_own()

    def _read_own_parts(self) -> None:
        values, specs = self._own_of(self._heir)
        for part in self._own_parts:
            saved = values.get("parts", {}).get(part.name)
            if saved is None:
                raise StateMismatch(f"{self.path} has no {part.name} for rank {self._heir}")
            prepared = part.prepare(saved, specs)
            for name, target in prepared.reads:
                self.source.own_tensor(self._heir, name, specs[name], target)
            self._prepared.append(prepared)

    def _read_own(self) -> None:
        """The random number generators, and the buffers if ranks differed in them."""
        values, specs = self._own_of(self._rank)
        if self.manifest.world_size == self._world_size:
            live = {name: target for prepared in self._prepared for name, target in prepared.reads}
            for name in set(values.get("buffers", ())) & live.keys():
                self.source.own_tensor(self._rank, name, specs[name], live[name])
        if "rng" not in values:
            return
        targets = {name: fitting(None, specs[name]) for name in named(values["rng"])}
        for name, target in targets.items():
            self.source.own_tensor(self._rank, name, specs[name], target)
        self._rng = decoded(values["rng"], targets, "the state of the random number generators")

    def _own_of(self, rank: int) -> tuple[Mapping[str, Any], Mapping[str, TensorSpec]]:
        values = self.source.own_values(rank)
        if values is None:
            return {}, {}
        try:
            return values, own_specs(values)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise StateMismatch(f"{self.path}: what rank {rank} kept for itself is not understood") from None

    def finish(self) -> None:
        """The program has all values of the checkpoint; what it draws next is what it would have drawn then."""
        for prepared in self._prepared:
            prepared.finish()
        if self._rng is not None:
            self.remarks += rng.restore(self._rng)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *about: object) -> None:
        while self._stack:
            self._stack.pop().__exit__(*about)
