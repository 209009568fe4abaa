"""Room on a node's own disk: which local checkpoints go. `going` decides, `make_room` acts.

What is still being brought elsewhere stays if it can: else a slow shared directory would never get one whole.
"""

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from rankpulse.trainer.checkpoint import reader, rotation
from rankpulse.trainer.checkpoint.errors import NewerSchema
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.reader import Found, Memo


@dataclass(frozen=True, slots=True)
class Wanted:
    """keep: how many stay. anchors: paths that stay whatever comes: the newest verified one. busy: on their way
    elsewhere. needed: bytes to be free afterwards. damaged: paths that a load has refused."""

    keep: int
    anchors: Collection[str] = ()
    busy: Collection[str] = ()
    needed: int = 0
    damaged: Collection[str] = ()


def going(committed: Sequence[Found], wanted: Wanted, sizes: dict[str, int], free: int) -> list[str]:
    """The paths to remove, in this order. committed: newest first. sizes: bytes by path, as they lie here.

    The oldest go that are beyond `keep` and nobody needs. While too little is free, more go: damaged ones, then the
    oldest, those on their way last, and never an anchor (without one, the newest sound one is it).
    """
    ours = [found for found in committed if not isinstance(found.refused, NewerSchema)]
    sound = [found.path for found in ours if not found.refused and found.path not in wanted.damaged]
    anchors = set(wanted.anchors) & set(sound) or set(sound[:1])
    stay = {*sound[: max(1, wanted.keep)], *anchors, *wanted.busy}
    paths = [found.path for found in ours]
    last = max((at for at, path in enumerate(paths) if path in stay), default=-1)
    gone = [path for at, path in reversed([*enumerate(paths)]) if path not in stay and (path in sound or at > last)]
    oldest = paths[::-1]
    free += sum(sizes.get(path, 0) for path in gone)
    for path in sorted((one for one in oldest if one not in gone), key=lambda one: (one in sound, one in wanted.busy)):
        if free < wanted.needed and path not in anchors:
            gone.append(path)
            free += sizes.get(path, 0)
    return gone


def make_room(files: Files, directory: str, wanted: Wanted, memo: Memo) -> tuple[int, str]:
    """Bytes that are missing nevertheless, and why one could not be removed ("" when all could)."""
    committed = reader.scan(directory, memo).committed
    sizes = {found.path: held_bytes(found.path) for found in committed}
    failed = ""
    for path in going(committed, wanted, sizes, rotation.free_bytes(directory)):
        try:
            rotation.remove(files, path)
        except OSError as error:
            failed = failed or f"{path} cannot be removed: {error.strerror}"
    return max(0, wanted.needed - rotation.free_bytes(directory)), failed


def held_bytes(path: str) -> int:
    """What a checkpoint takes here: a node has parts of it only."""
    total = 0
    with suppress(OSError):
        for name in os.listdir(path):
            with suppress(OSError):
                total += os.lstat(os.path.join(path, name)).st_size
    return total
