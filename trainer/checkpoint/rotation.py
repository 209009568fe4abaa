"""Which checkpoints go so that the next one has room, and how they go. `surplus` decides, the rest acts.

Nothing here removes the newest checkpoint that is known to be verified, follows a link, or touches a foreign name.
"""

import os
import re
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from rankpulse.trainer.checkpoint.errors import Damaged, NewerSchema, Refused
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import MANIFEST
from rankpulse.trainer.checkpoint.reader import ASIDE, FAST, Found, Memo, attempts, scan, verify
from rankpulse.trainer.checkpoint.writer import ASIDE_MANIFEST, REASON, discard, write_file

_PROBE: Final = re.compile(r"\.rankpulse-[0-9a-f]{8,32}\.probe")


@dataclass(frozen=True, slots=True)
class Room:
    """What `make_room` did. `verified`: the checkpoint that is kept whatever comes, "" when there is none."""

    removed: tuple[str, ...] = ()
    verified: str = ""
    short: int = 0  # bytes that are still missing for the expected size
    failed: str = ""  # why a checkpoint could not be removed, "" when all could


def surplus(committed: Sequence[Found], *, keep: int, verified: str, free: int, needed: int) -> tuple[str, ...]:
    """The paths to remove before a save, in this order.

    committed: newest first. keep: how many stay (at least 1). verified: the path of the newest one that is known to
    be verified, which always stays; when there is none nothing goes. free, needed: bytes; while there are too few,
    more go, the damaged ones and then the oldest. Damaged ones (`refused`) do not count among the kept; those of a
    newer schema are left to it.
    """
    if all(found.path != verified for found in committed):
        return ()
    ours = [found for found in committed if not isinstance(found.refused, NewerSchema)]
    sound = [found for found in ours if not found.refused]
    kept = {found.path for found in sound[: max(1, keep)]} | {verified}
    last = max(index for index, found in enumerate(ours) if found.path in kept)
    newer = {found.path for found in ours[:last]}
    oldest_first = ours[::-1]
    stay = [found for found in oldest_first if found.path in kept or (found.refused and found.path in newer)]
    gone = [found for found in oldest_first if found not in stay]
    free += sum(found.nbytes for found in gone)
    for found in sorted(stay, key=lambda found: not found.refused):  # the damaged ones first
        if free < needed and found.path != verified:
            gone.append(found)
            free += found.nbytes
    return tuple(found.path for found in gone)


def make_room(
    files: Files,
    directory: str,
    *,
    keep: int,
    verified: Collection[str],
    needed: int,
    damaged: Collection[str] = (),
    verify_one: Callable[[str], object] = lambda path: verify(path, FAST),
    memo: Memo | None = None,
) -> Room:
    """Removes what is surplus in `directory`, so that `needed` bytes are free if that is possible.

    verified: paths known to be so (loaded, or saved and read back); without one the newest that verifies is looked
    for with `verify_one`. damaged: paths known to be damaged, though their manifests are not. A checkpoint that
    cannot be removed is said in `failed`, never raised. memo: as `reader.scan` takes it.
    """
    listed = scan(directory, memo).committed
    committed = [_known_damaged(found) if found.path in damaged else found for found in listed]
    anchor = _anchor(committed, verified, verify_one)
    free = free_bytes(directory)
    going = surplus(committed, keep=keep, verified=anchor, free=free, needed=needed)
    if next((found.path for found in committed if not found.refused), "") in going:  # nobody has looked at it yet
        anchor = _anchor(committed, (), verify_one)
        going = surplus(committed, keep=keep, verified=anchor, free=free, needed=needed)
    gone: list[str] = []
    failed = ""
    for path in going:
        try:
            remove(files, path)
            gone.append(path)
        except OSError as error:
            failed = failed or f"{path} cannot be removed: {error.strerror}"
    short = max(0, needed - free_bytes(directory)) if os.path.isdir(directory) else 0
    return Room(tuple(gone), anchor, short, failed)


def _known_damaged(found: Found) -> Found:
    return replace(found, refused=found.refused or Damaged(found.path))


def _anchor(committed: Sequence[Found], verified: Collection[str], verify_one: Callable[[str], object]) -> str:
    for found in committed:
        if found.path in verified and not found.refused:
            return found.path
    for found in committed:
        with suppress(Refused):
            if not found.refused:
                verify_one(found.path)
                return found.path
    return ""


def free_bytes(directory: str) -> int:
    """Bytes that this user may still write there; a huge number when it cannot be told."""
    try:
        found = os.statvfs(directory)
    except OSError:
        return 2**63 - 1
    return found.f_bavail * found.f_frsize if found.f_blocks else 2**63 - 1  # some network file systems tell nothing


def remove(files: Files, path: str) -> None:
    """Removes one checkpoint or attempt. At no instant is half of it taken for a whole one. Raises OSError.

    What somebody else is about to remove is left to them.
    """
    with suppress(FileNotFoundError):
        discard(files, path)


def probe(files: Files, directory: str, token: str) -> int:
    """Now, by the file system's own clock (st_mtime_ns), as `sweep` compares it. `token`: hex, drawn anew. OSError."""
    path = os.path.join(directory, f".rankpulse-{token}.probe")
    fd = files.create(path)
    try:
        return os.fstat(fd).st_mtime_ns
    finally:
        files.close(fd)
        files.unlink(path)


def sweep(files: Files, directory: str, before_ns: int) -> tuple[str, ...]:
    """Removes attempts that never became checkpoints and were last written to before `before_ns` (see `probe`).

    Younger ones are left: somebody may be saving. The paths removed; what cannot be removed is left for the next
    time, never raised.
    """
    swept: list[str] = []
    for path in attempts(directory):
        if _written_ns(path) < before_ns:
            with suppress(OSError):
                discard(files, path)
                swept.append(path)
    with suppress(OSError):
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            if _PROBE.fullmatch(name) and os.lstat(path).st_mtime_ns < before_ns:
                files.unlink(path)
    return tuple(swept)


def _written_ns(attempt: str) -> int:
    """When the attempt or one of its files was last written to; for ever away when that cannot be told."""
    try:
        paths = [attempt, *(os.path.join(attempt, name) for name in os.listdir(attempt))]
        return max(os.lstat(path).st_mtime_ns for path in paths)
    except OSError:
        return 2**63 - 1


def set_aside(files: Files, path: str, reason: str) -> str:
    """Renames a checkpoint so that it is never loaded again, and keeps it for people. Its new path. Raises OSError.

    The first rename does it; what follows tells people why, and may fail (a full disk).
    """
    directory, name = os.path.split(os.path.abspath(path))
    aside = os.path.join(directory, ASIDE + name)
    files.rename(path, aside)
    files.sync_dir(directory)
    with suppress(OSError):
        files.rename(os.path.join(aside, MANIFEST), os.path.join(aside, ASIDE_MANIFEST))
        write_file(files, os.path.join(aside, REASON), [f"{reason}\n".encode()])
    return aside
