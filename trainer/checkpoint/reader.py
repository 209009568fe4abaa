"""Reading checkpoints: what is there, and whether it is what was saved. Nothing is trusted, nothing is followed."""

import os
import re
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from rankpulse.trainer.checkpoint import manifest as manifests
from rankpulse.trainer.checkpoint.coverage import oversized, uncovered
from rankpulse.trainer.checkpoint.errors import (
    ChecksumDiffers,
    ForeignShard,
    ManifestInvalid,
    NotCovered,
    NothingVerified,
    Refused,
    ShardMissing,
)
from rankpulse.trainer.checkpoint.manifest import MANIFEST, ShardManifest, digest_of
from rankpulse.trainer.checkpoint.opened import Opened
from rankpulse.trainer.checkpoint.shards import FAST, FULL, ShardFile, verify_bytes, verify_shard

__all__ = [
    "ASIDE", "FAST", "FULL", "Found", "Listing", "Memo", "ShardFile", "attempts", "count", "judged", "manifest_bytes",
    "name_of", "read_manifest", "same_manifest", "scan", "verify", "verify_bytes", "verify_shard",
]  # fmt: skip

ASIDE: Final = "aside-"
_NAME: Final = re.compile(r"step-([0-9]{8,19})-([0-9a-f]{8,32})")


@dataclass(frozen=True, slots=True)
class Found:
    """A committed checkpoint: its manifest, or why it cannot be used."""

    path: str
    step: int
    save_id: str
    manifest: ShardManifest | None = None
    refused: Refused | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its shards, as its manifest says; 0 when that cannot be read."""
        return sum(shard.bytes for shard in self.manifest.shards) if self.manifest else 0


@dataclass(frozen=True, slots=True)
class Listing:
    """What is in a directory of checkpoints. Paths; `committed` has the newest first."""

    committed: tuple[Found, ...] = ()
    partial: tuple[str, ...] = ()  # attempts without a manifest
    aside: tuple[str, ...] = ()  # kept for people, never loaded


def name_of(step: int, save_id: str) -> str:
    return f"step-{step:08d}-{save_id}"


Memo: TypeAlias = dict[str, tuple[tuple[int, ...], Found]]  # what was read of the manifests at these paths, and when


def scan(directory: str, memo: Memo | None = None) -> Listing:
    """All that is there. A directory that does not exist has nothing; one that cannot be read is NothingVerified.

    memo: manifests that have not changed since the last scan with it are not read again; of those only what a list
    tells is known then, not the tensors.
    """
    committed, partial, aside = [], [], []
    for path, step, save_id in _ours(directory):
        if os.path.basename(path).startswith(ASIDE):
            aside.append(path)
        elif _has_manifest(path):
            committed.append(_found(path, step, save_id) if memo is None else _remembered(memo, path, step, save_id))
        else:
            partial.append(path)
    committed.sort(key=_newest_first)
    if memo is not None:
        for path in memo.keys() - {found.path for found in committed}:
            del memo[path]
    return Listing(tuple(committed), tuple(partial), tuple(aside))


def attempts(directory: str) -> tuple[str, ...]:
    """The directories of saves that never became checkpoints, or are going on. Raises as `scan` does."""
    paths = [path for path, _, _ in _ours(directory) if not os.path.basename(path).startswith(ASIDE)]
    return tuple(path for path in paths if not _has_manifest(path))


def count(directory: str) -> int:
    """How many committed checkpoints are there, damaged ones too: no manifest is read. Raises as `scan` does."""
    paths = [path for path, _, _ in _ours(directory) if not os.path.basename(path).startswith(ASIDE)]
    return sum(_has_manifest(path) for path in paths)


def _ours(directory: str) -> Iterator[tuple[str, int, str]]:
    """The directories in `directory` whose names are ours: path, step, save_id."""
    try:
        names = sorted(os.listdir(directory))
    except FileNotFoundError:
        return
    except OSError as error:
        raise NothingVerified(
            f"{directory}: cannot be listed: {error.strerror}. Is it a directory, and readable?"
        ) from None
    for name in names:
        path = os.path.join(directory, name)
        said = _NAME.fullmatch(name.removeprefix(ASIDE))
        if said and _is_dir(path):
            yield path, int(said[1]), said[2]


def _is_dir(path: str) -> bool:
    """Also what cannot be looked at: a checkpoint must never be taken for nothing."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _has_manifest(path: str) -> bool:
    """Also where that cannot be told (no right, an I/O error): it is a damaged checkpoint then, and no rubbish."""
    try:
        os.lstat(os.path.join(path, MANIFEST))
    except FileNotFoundError:
        return False
    except OSError:
        pass
    return True


def _found(path: str, step: int, save_id: str) -> Found:
    try:
        return Found(path, step, save_id, manifest=read_manifest(path))
    except Refused as refused:
        return Found(path, step, save_id, refused=refused)


def _remembered(memo: Memo, path: str, step: int, save_id: str) -> Found:
    try:
        seen = os.lstat(os.path.join(path, MANIFEST))
    except OSError:
        return _found(path, step, save_id)
    mark = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
    known = memo.get(path)
    if known is None or known[0] != mark:
        found = _found(path, step, save_id)
        if found.manifest:
            found = replace(found, manifest=_outline(found.manifest))
        known = memo[path] = (mark, found)
    return known[1]


def _outline(manifest: ShardManifest) -> ShardManifest:
    """Without what makes a manifest large."""
    shards = tuple(replace(shard, ranges=(), boxes=()) for shard in manifest.shards)
    return replace(manifest, tensors=(), values=None, shards=shards)


def _newest_first(found: Found) -> tuple[float, float, str]:
    return -found.step, -(found.manifest.wall_clock_seconds if found.manifest else 0.0), found.save_id


def manifest_bytes(checkpoint: str) -> bytes:
    """The bytes of a checkpoint's manifest, for `manifest.decode` and `digest_of`. Raises Refused."""
    path = os.path.join(checkpoint, MANIFEST)
    try:
        with Opened(path) as file:
            if file.nbytes > manifests.MAX_BYTES:
                raise ManifestInvalid(path, f"at most {manifests.MAX_BYTES} bytes", file.nbytes)
            return file.read(0, file.nbytes)
    except ShardMissing:
        raise ManifestInvalid(path, "a file", "none: this is no checkpoint, or a save that did not end") from None


def read_manifest(checkpoint: str) -> ShardManifest:
    """The manifest of the checkpoint at this path, sound in itself: of this step and save, covering the state.

    Raises Refused. The shards are not looked at: see `verify`.
    """
    return judged(checkpoint, manifest_bytes(checkpoint))


def judged(checkpoint: str, data: bytes) -> ShardManifest:
    """The manifest in `data`, which was read from the checkpoint at this path. Raises Refused."""
    path = os.path.join(checkpoint, MANIFEST)
    manifest = manifests.decode(data, path)
    name = os.path.basename(os.path.abspath(checkpoint)).removeprefix(ASIDE)
    if _NAME.fullmatch(name) and name != (said := name_of(manifest.step, manifest.save_id)):
        raise ForeignShard(path, name, said)
    if trouble := oversized(manifest):
        raise ManifestInvalid(path, "shards as large as what they hold", trouble)
    if trouble := uncovered(manifest):
        raise NotCovered(path, "every element of every tensor once", trouble)
    return manifest


def same_manifest(checkpoint: str, digest: str) -> None:
    """Raises Refused when the manifest at this path is not the one with this digest."""
    found = digest_of(manifest_bytes(checkpoint))
    if found != digest:
        raise ChecksumDiffers(os.path.join(checkpoint, MANIFEST), digest, found or "none")


def verify(checkpoint: str, level: str = FULL, progress: Callable[[int], None] | None = None) -> ShardManifest:
    """The manifest of a checkpoint of which every byte is what was saved. Raises Refused."""
    manifest = read_manifest(checkpoint)
    for shard in manifest.shards:
        verify_shard(checkpoint, manifest, shard, level, progress)
    return manifest
