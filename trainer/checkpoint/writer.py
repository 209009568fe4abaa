"""Writing a checkpoint, so that a crash at any instant leaves the ones before it as they were.

An attempt is a directory with a name never used before. Each shard is written under a temporary name, forced to the
disk, renamed. The manifest comes last, the same way: with it the directory is a checkpoint, without it rubbish.
"""

import errno
import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import xxhash

from rankpulse.trainer.checkpoint import layout
from rankpulse.trainer.checkpoint import manifest as manifests
from rankpulse.trainer.checkpoint.coverage import OWN, uncovered
from rankpulse.trainer.checkpoint.errors import ManifestInvalid, NotCovered, ShardMissing, StateRefused
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import DTYPE_BYTES, MANIFEST, Box, Shard, ShardManifest
from rankpulse.trainer.checkpoint.reader import ShardFile, name_of

__all__ = ["OWN", "Entry", "Written", "abandon", "begin", "commit", "ensure", "shard_name", "write_file", "write_shard"]

PIECE: Final = 8 * 2**20  # bytes hashed and written at once: memory stays flat
ASIDE_MANIFEST: Final = "manifest.aside.json"
REASON: Final = "reason.txt"
_OURS: Final = re.compile(
    r"manifest\.json|manifest\.aside\.json|reason\.txt|shard-[0-9]{5,7}\.safetensors"
    r"|\.(manifest\.json|reason\.txt|shard-[0-9]{5,7}\.safetensors)\.tmp"
)
SHARED: Final = "The directory must be shared by all nodes."


@dataclass(frozen=True, slots=True)
class Entry:
    """One tensor, or part of one, of a shard. `data` gives its bytes when they are written, one entry at a time."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    data: Callable[[], Iterable[memoryview]]


@dataclass(frozen=True, slots=True)
class Written:
    """A file as it was written."""

    bytes: int
    sha256: str
    xxh3: str


def shard_name(rank: int) -> str:
    return f"shard-{rank:05d}.safetensors"


def begin(files: Files, directory: str, step: int, save_id: str) -> str:
    """The path of a new attempt in `directory`, which is made when it is not there. Raises OSError."""
    ensure(files, directory)
    attempt = os.path.join(directory, name_of(step, save_id))
    files.mkdir(attempt)
    files.sync_dir(directory)
    return attempt


def ensure(files: Files, directory: str) -> None:
    """Makes a directory, and those above it, and forces their names to the disk. Raises OSError."""
    directory = os.path.abspath(directory)
    if os.path.isdir(directory):
        return
    parent = os.path.dirname(directory)
    ensure(files, parent)
    with suppress(FileExistsError):  # somebody else was faster
        files.mkdir(directory)
    files.sync_dir(parent)


def write_file(
    files: Files,
    path: str,
    parts: Iterable[memoryview | bytes],
    check: Callable[[str, Written], None] = lambda temporary, written: None,
) -> Written:
    """The atomic writer: after it, `path` is on the disk with all of `parts`; before, or after a crash, as it was.

    check: called when all is written, with where it lies; what it raises keeps it from getting its name.
    Two writers of the same path at once are not meant. Raises OSError (the disk is full, ...), and then the
    temporary file is gone if the disk allows it.
    """
    directory, name = os.path.split(os.path.abspath(path))
    temporary = os.path.join(directory, f".{name}.tmp")
    fd = _created(files, temporary)
    try:
        try:
            written = _poured(files, fd, parts)
            files.fsync(fd)
        finally:
            files.close(fd)
        check(temporary, written)
        files.rename(temporary, path)
    except BaseException as error:
        with suppress(OSError):
            files.unlink(temporary)
        if isinstance(error, OSError):
            error.filename = error.filename or path  # a full disk does not say which
        raise
    files.sync_dir(directory)
    return written


def _created(files: Files, path: str) -> int:
    try:
        return files.create(path)
    except FileExistsError:  # a writer of this path was killed
        files.unlink(path)
        return files.create(path)


def _poured(files: Files, fd: int, parts: Iterable[memoryview | bytes]) -> Written:
    sha, xxh, count = hashlib.sha256(), xxhash.xxh3_128(), 0
    for part in parts:
        for piece in _in_pieces(part):
            sha.update(piece)
            xxh.update(piece)
            count += len(piece)
            while piece:
                piece = piece[files.write(fd, piece) :]
    return Written(count, sha.hexdigest(), xxh.hexdigest())


def _in_pieces(part: memoryview | bytes) -> Iterator[memoryview]:
    view = memoryview(part)
    if view.nbytes:  # a view with a zero in its shape cannot be cast
        view = view.cast("B")
        for start in range(0, len(view), PIECE):
            yield view[start : start + PIECE]


def write_shard(
    files: Files,
    attempt: str,
    *,
    rank: int,
    world_size: int,
    step: int,
    save_id: str,
    entries: Sequence[Entry],
    ranges: Sequence[tuple[int, int]] = (),
    boxes: Sequence[Box] = (),
    own: bool = False,
) -> Shard:
    """One rank's file. The entries of the widest dtypes come first, so that all lie aligned.

    Raises OSError, and StateRefused when an entry gives another number of bytes than its shape says.
    """
    ordered = sorted(entries, key=lambda entry: -DTYPE_BYTES[entry.dtype])
    label = layout.Label(step, save_id, rank, world_size)
    header = layout.packed(label, ((entry.key, entry.dtype, entry.shape) for entry in ordered))
    name = shard_name(rank)
    if not os.path.isdir(attempt):
        raise FileNotFoundError(f"{attempt} is not there. {SHARED}")
    written = write_file(files, os.path.join(attempt, name), _parts(header, ordered))
    return Shard(
        rank, name, written.bytes, written.sha256, written.xxh3, tuple((at, n) for at, n in ranges), tuple(boxes), own
    )


def _parts(header: bytes, entries: Iterable[Entry]) -> Iterator[memoryview | bytes]:
    yield header
    for entry in entries:
        size, given = layout.size_of(entry.dtype, entry.shape), 0
        for view in entry.data():
            given += view.nbytes
            yield view
        if given != size:
            raise StateRefused(f"{entry.key!r} gave {given} bytes, its dtype and shape say {size}")


def commit(files: Files, attempt: str, manifest: ShardManifest) -> None:
    """Makes the attempt a checkpoint, if its shards are there, whole, of this save, and cover the state.

    Raises Refused (NotCovered, ShardMissing, Truncated, ForeignShard, ...), StateRefused and OSError: then it is none.
    """
    path = os.path.join(attempt, MANIFEST)
    if trouble := uncovered(manifest):
        raise NotCovered(path, "every element of every tensor once", trouble)
    for shard in manifest.shards:
        try:
            ShardFile(attempt, manifest, shard).close()
        except ShardMissing as missing:
            raise ShardMissing(missing.path, f"the file that rank {shard.rank} wrote", "none here", SHARED) from None
    data = manifests.encode(manifest)
    try:
        manifests.decode(data, path)  # what could not be read again is not committed
    except ManifestInvalid as invalid:
        raise StateRefused(f"this state cannot be told in a manifest: {invalid}") from None
    if os.path.lexists(path):
        raise FileExistsError(f"{path} is there already: a save never changes a checkpoint")
    write_file(files, path, [data])


def abandon(files: Files, attempt: str) -> None:
    """Removes an attempt that will be no checkpoint, as far as the disk allows. Never raises."""
    with suppress(OSError):
        discard(files, attempt)


def discard(files: Files, attempt: str) -> None:
    """Removes the files of ours in a directory of ours, the manifest first, and the directory if it is empty then.

    The manifest is gone from the disk before anything else goes: never is half a checkpoint taken for a whole one.
    Links are removed, never followed; what has a foreign name stays. Raises OSError.
    """
    if not stat.S_ISDIR(os.lstat(attempt).st_mode):
        return
    names = sorted(filter(is_ours, os.listdir(attempt)))
    if MANIFEST in names:
        names.remove(MANIFEST)
        files.unlink(os.path.join(attempt, MANIFEST))
        files.sync_dir(attempt)
    failed: OSError | None = None
    for name in names:
        try:
            files.unlink(os.path.join(attempt, name))
        except OSError as error:  # the others may go nevertheless: space is what is wanted
            failed = failed or error
    try:
        files.rmdir(attempt)
    except OSError as error:
        failed = failed or (None if error.errno == errno.ENOTEMPTY else error)
    files.sync_dir(os.path.dirname(os.path.abspath(attempt)))
    if failed:
        raise failed


def is_ours(name: str) -> bool:
    """Whether a name in a checkpoint's directory is one that we gave."""
    return bool(_OURS.fullmatch(name))
