"""Reading checkpoints: what is there, and whether it is what was saved. Nothing is trusted, nothing is followed.

A file is opened without following links and without waiting (a fifo would wait for ever), must be a regular file of
the size that the manifest says, and is read by `pread`: a file that gets shorter meanwhile is an error, not a signal.
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Protocol, Self, TypeAlias

import xxhash

from rankpulse.trainer.checkpoint import layout
from rankpulse.trainer.checkpoint import manifest as manifests
from rankpulse.trainer.checkpoint.coverage import OWN, expected, oversized, uncovered
from rankpulse.trainer.checkpoint.errors import (
    ChecksumDiffers,
    Damaged,
    ForeignShard,
    ManifestInvalid,
    NotCovered,
    NothingVerified,
    Refused,
    ShardMissing,
    Truncated,
)
from rankpulse.trainer.checkpoint.manifest import MANIFEST, SHARDED, Shard, ShardManifest, digest_of
from rankpulse.trainer.checkpoint.strictjson import Unfit, shown

FULL: Final = "full"  # sha256: nobody could have changed a byte
FAST: Final = "fast"  # xxh3: no byte changed by accident; an order of magnitude faster
ASIDE: Final = "aside-"
CHUNK: Final = 8 * 2**20  # bytes read at once
_NAME: Final = re.compile(r"step-([0-9]{8,19})-([0-9a-f]{8,32})")
_SHORT: Final = "Raise the limit (ulimit -n), or find what leaks, and start again."
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


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


class _Open:
    """A regular file, open for reading; every trouble is a Refused that names it."""

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self.fd = os.open(path, _OPEN)
        except OSError as error:
            raise _unreadable(path, error) from None
        self.nbytes = self._regular_bytes()

    def _regular_bytes(self) -> int:
        try:
            found = os.fstat(self.fd)
            if stat.S_ISREG(found.st_mode):
                return found.st_size
        except OSError as error:
            self.close()
            raise _unreadable(self.path, error) from None
        self.close()
        raise Damaged(self.path, "a regular file", "something else")

    def read_into(self, out: memoryview, offset: int) -> None:
        """Exactly `len(out)` bytes from `offset`."""
        done = 0
        while done < len(out):
            try:
                count = os.preadv(self.fd, [out[done : done + CHUNK]], offset + done)
            except OSError as error:
                raise _unreadable(self.path, error) from None
            if not count:
                raise Truncated(self.path, f"{offset + len(out)} bytes", f"{offset + done} bytes")
            done += count

    def read(self, offset: int, count: int) -> bytes:
        data = bytearray(count)
        self.read_into(memoryview(data), offset)
        return bytes(data)

    def forget(self) -> None:
        """What is read next comes from the disk, as far as the system can be asked for that."""
        with suppress(OSError):
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _unreadable(path: str, error: OSError) -> Refused:
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return ShardMissing(path)
    if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):  # this process is short of something, not the file
        return Refused(path, "a file that can be opened", f"an error: {error.strerror}", _SHORT)
    found = "a symbolic link" if error.errno == errno.ELOOP else f"an error: {error.strerror}"
    return Damaged(path, "a regular file that can be read", found)


def manifest_bytes(checkpoint: str) -> bytes:
    """The bytes of a checkpoint's manifest, for `manifest.decode` and `digest_of`. Raises Refused."""
    path = os.path.join(checkpoint, MANIFEST)
    try:
        with _Open(path) as file:
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


class _Hash(Protocol):
    def update(self, data: Any, /) -> object: ...
    def hexdigest(self) -> str: ...


def verify_shard(
    checkpoint: str,
    manifest: ShardManifest,
    shard: Shard,
    level: str = FULL,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Raises Refused when the shard's file is not what was saved.

    level: "full" (sha256) or "fast" (xxh3). progress: called with the bytes read since its last call.
    """
    path = os.path.join(checkpoint, shard.path)
    with _Open(path) as file:
        _check_size(file, shard)
        header, trouble = None, None
        try:
            header = _header(file)
            _check_label(path, header.label, manifest, shard)
        except ForeignShard:
            raise
        except Refused as refused:  # most likely a flipped bit, which the checksum says more plainly
            trouble = refused
        _check_hash(file, shard, level, progress)
        if trouble or not header:
            raise trouble or Damaged(path)
        _check_keys(path, header, manifest, shard)


def verify_bytes(checkpoint: str, shard: Shard, level: str = FAST) -> None:
    """Raises Refused when the file does not hold the bytes that its writer has counted: for that writer itself.

    The system is asked to drop its cached copy first, so that it is the disk that is read.
    """
    with _Open(os.path.join(checkpoint, shard.path)) as file:
        _check_size(file, shard)
        file.forget()
        _check_hash(file, shard, level, None)


def _check_size(file: _Open, shard: Shard) -> None:
    if file.nbytes != shard.bytes:
        raise Truncated(file.path, f"{shard.bytes} bytes", f"{file.nbytes} bytes")


def _header(file: _Open) -> layout.Header:
    try:
        length = layout.header_bytes(file.read(0, min(layout.LENGTH_BYTES, file.nbytes)), file.nbytes)
        return layout.understood(file.read(layout.LENGTH_BYTES, length), file.nbytes, file.path)
    except Unfit as unfit:
        raise Damaged(file.path, unfit.expected, unfit.found) from None


def _check_label(path: str, label: layout.Label, manifest: ShardManifest, shard: Shard) -> None:
    for name in ("step", "save_id", "world_size"):
        if getattr(label, name) != getattr(manifest, name):
            raise ForeignShard(path, f"{name} {getattr(manifest, name)}", shown(getattr(label, name)))
    if label.rank != shard.rank:
        raise ForeignShard(path, f"rank {shard.rank}", label.rank)


def _check_keys(path: str, header: layout.Header, manifest: ShardManifest, shard: Shard) -> None:
    """The file holds what the manifest says, and what belongs to ranks alone, and nothing else."""
    must = expected(manifest, shard)
    for key, (dtype, shape) in must.items():
        slot = header.slots.get(key)
        if slot is None:
            raise NotCovered(path, f"an entry {shown(key)}", "none")
        if (slot.dtype, slot.shape) != (dtype, shape):
            raise NotCovered(path, f"{dtype} {list(shape)} for {shown(key)}", f"{slot.dtype} {list(slot.shape)}")
    for key in header.slots.keys() - must.keys():
        if not shard.own or not key.startswith(OWN) or not _is_own(key, manifest, shard):
            raise ForeignShard(path, "the entries that the manifest says", shown(key))


def _is_own(key: str, manifest: ShardManifest, shard: Shard) -> bool:
    rank = key.removeprefix(OWN).partition(".")[0]
    if not rank.isascii() or not rank.isdecimal() or len(rank) > 7:
        return False
    return int(rank) == shard.rank if manifest.kind == SHARDED else int(rank) < manifest.world_size


def _check_hash(file: _Open, shard: Shard, level: str, progress: Callable[[int], None] | None) -> None:
    if level not in (FULL, FAST):
        raise ValueError(f'level "{FULL}" or "{FAST}", not {level!r}')
    hasher: _Hash = hashlib.sha256() if level == FULL else xxhash.xxh3_128()
    buffer = memoryview(bytearray(min(CHUNK, file.nbytes)))
    for offset in range(0, file.nbytes, CHUNK):
        part = buffer[: min(CHUNK, file.nbytes - offset)]
        file.read_into(part, offset)
        hasher.update(part)
        if progress:
            progress(len(part))
    said = shard.sha256 if level == FULL else shard.xxh3
    if hasher.hexdigest() != said:
        raise ChecksumDiffers(file.path, said, hasher.hexdigest())


def verify(checkpoint: str, level: str = FULL, progress: Callable[[int], None] | None = None) -> ShardManifest:
    """The manifest of a checkpoint of which every byte is what was saved. Raises Refused."""
    manifest = read_manifest(checkpoint)
    for shard in manifest.shards:
        verify_shard(checkpoint, manifest, shard, level, progress)
    return manifest


class ShardFile:
    """A shard, open for reading: its size, its header and its entries are what the manifest says, or Refused.

    The bytes are not verified here: see `verify_shard`. `keys` are the entries by key.
    """

    def __init__(self, checkpoint: str, manifest: ShardManifest, shard: Shard) -> None:
        self._file = _Open(os.path.join(checkpoint, shard.path))
        try:
            _check_size(self._file, shard)
            header = _header(self._file)
            _check_label(self._file.path, header.label, manifest, shard)
            _check_keys(self._file.path, header, manifest, shard)
        except BaseException:
            self._file.close()
            raise
        self.keys = header.slots

    def read_into(self, key: str, start_byte: int, out: memoryview) -> None:
        """Fills `out` (bytes) with those of entry `key` from `start_byte` on. Raises Refused; KeyError: no such key."""
        slot = self.keys[key]
        if start_byte < 0 or start_byte + out.nbytes > slot.nbytes:
            raise ValueError(f"bytes {start_byte} to {start_byte + out.nbytes} of {key!r}, which has {slot.nbytes}")
        self._file.read_into(out.cast("B") if out.nbytes else out, slot.start + start_byte)

    def read(self, key: str) -> bytes:
        """All bytes of a small entry, such as the ranks' own ones."""
        data = bytearray(self.keys[key].nbytes)
        self.read_into(key, 0, memoryview(data))
        return bytes(data)

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
