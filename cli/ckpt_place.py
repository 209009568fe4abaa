"""Which checkpoints a person means by a path, and what there is instead when it holds none."""

import os
from dataclasses import dataclass

from rankpulse.cli.failing import Failed
from rankpulse.cli.show import plain
from rankpulse.trainer.checkpoint import reader
from rankpulse.trainer.checkpoint.manifest import MANIFEST


@dataclass(frozen=True, slots=True)
class Chosen:
    """Paths of committed checkpoints, newest first; `directory`: whether a directory of them was named."""

    paths: tuple[str, ...]
    directory: bool


def existing(path: str) -> str:
    """`path` when it is a directory that can be listed. Raises `Failed`."""
    try:
        os.listdir(path)
    except NotADirectoryError:
        raise Failed(
            f"{plain(path)} is a file: name a directory of checkpoints, or one checkpoint (step-...)"
        ) from None
    except FileNotFoundError:
        raise Failed(f"{plain(path)} does not exist: name a directory of checkpoints, or one of them") from None
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Failed(f"{plain(path)} cannot be read: {why}") from None
    return path.rstrip("/") or "/"


def chosen(path: str, step: int | None = None) -> Chosen:
    """What `path` means: itself when it is a checkpoint, else those in it, of `step` when given. Raises `Failed`."""
    path = existing(path)
    if os.path.lexists(os.path.join(path, MANIFEST)):
        if step is not None:
            raise Failed(f"{plain(path)} is one checkpoint: --step chooses among those of a directory")
        return Chosen((path,), directory=False)
    listing = reader.scan(path)
    found = [one for one in listing.committed if step is None or one.step == step]
    if not found:
        raise Failed(_nothing(path, listing, step))
    return Chosen(tuple(one.path for one in found), directory=True)


def one(path: str, step: int | None = None) -> str:
    """The one checkpoint that is meant: of a directory the newest. Raises `Failed`."""
    return chosen(path, step).paths[0]


def _nothing(path: str, listing: reader.Listing, step: int | None) -> str:
    name = os.path.basename(os.path.abspath(path))
    if name.startswith("aside-"):
        return f"{plain(path)} was set aside and is never loaded: `rankpulse ckpt ls` on the directory above says why"
    if name.startswith("step-"):
        return f"{plain(path)} was never committed: it has no {MANIFEST}. A save was cut short, or is still going on"
    if listing.committed:
        steps = sorted({found.step for found in listing.committed}, reverse=True)
        more = ", ..." if len(steps) > 10 else ""
        return f"{plain(path)} holds no checkpoint of step {step}; there are {', '.join(map(str, steps[:10]))}{more}"
    parts = []
    if listing.partial:
        parts.append(f"{len(listing.partial)} that never were committed")
    if listing.aside:
        parts.append(f"{len(listing.aside)} set aside")
    but = f", but {' and '.join(parts)}: see `rankpulse ckpt ls`" if parts else ""
    return f"{plain(path)} holds no checkpoint{but}. Is it the directory that the job's CheckpointManager was given?"
