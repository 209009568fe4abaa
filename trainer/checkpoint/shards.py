"""Whether a shard is what its manifest says: size, checksum, step, save, rank and entries; and its bytes."""

import hashlib
import os
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Protocol, Self

import xxhash

from rankpulse.trainer.checkpoint import layout
from rankpulse.trainer.checkpoint.coverage import OWN, expected
from rankpulse.trainer.checkpoint.errors import ChecksumDiffers, Damaged, ForeignShard, NotCovered, Refused, Truncated
from rankpulse.trainer.checkpoint.manifest import SHARDED, Shard, ShardManifest
from rankpulse.trainer.checkpoint.opened import CHUNK, Opened
from rankpulse.trainer.checkpoint.strictjson import Unfit, shown

FULL: Final = "full"  # sha256: nobody could have changed a byte
FAST: Final = "fast"  # xxh3: no byte changed by accident; an order of magnitude faster


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
    with Opened(path) as file:
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
    with Opened(os.path.join(checkpoint, shard.path)) as file:
        _check_size(file, shard)
        file.forget()
        _check_hash(file, shard, level, None)


def _check_size(file: Opened, shard: Shard) -> None:
    if file.nbytes != shard.bytes:
        raise Truncated(file.path, f"{shard.bytes} bytes", f"{file.nbytes} bytes")


def _header(file: Opened) -> layout.Header:
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


def _check_hash(file: Opened, shard: Shard, level: str, progress: Callable[[int], None] | None) -> None:
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


class ShardFile:
    """A shard, open for reading: its size, its header and its entries are what the manifest says, or Refused.

    The bytes are not verified here: see `verify_shard`. `keys` are the entries by key.
    """

    def __init__(self, checkpoint: str, manifest: ShardManifest, shard: Shard) -> None:
        self._file = Opened(os.path.join(checkpoint, shard.path))
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
