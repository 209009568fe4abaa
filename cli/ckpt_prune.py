"""`rankpulse ckpt prune`: remove old checkpoints, and never the one that a restart would load."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import typer

from rankpulse.cli import show
from rankpulse.cli.ckpt_ls import on_disk
from rankpulse.cli.ckpt_place import existing
from rankpulse.cli.ckpt_progress import Clock
from rankpulse.cli.ckpt_verify import examined
from rankpulse.cli.failing import Failed
from rankpulse.core.words import size
from rankpulse.trainer.checkpoint import reader, rotation
from rankpulse.trainer.checkpoint.errors import Refused
from rankpulse.trainer.checkpoint.files import Files

UNTOUCHED_S: Final = 3600.0  # a save that is still going on touches its files more often


@dataclass(frozen=True, slots=True)
class Going:
    """What is to be removed, and why."""

    path: str
    why: str
    bytes: int


def run(directory: str, keep: int, partial: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Decide, ask, remove, tell. Raises `Failed` when nothing may be removed, `CheckpointError`, OSError."""
    if keep < 1:
        raise Failed(f"--keep must be 1 or more, not {keep}: the newest checkpoint that verifies always stays")
    directory = existing(directory)
    listing = reader.scan(directory)
    committed, verified = list(listing.committed), ""
    if len(committed) > keep:
        committed, verified = _verified(committed)
    old = rotation.surplus(committed, keep=keep, verified=verified, free=0, needed=0)
    going = [Going(path, "old", on_disk(path)) for path in old]
    if partial:
        going += [Going(path, "never committed", on_disk(path)) for path in listing.partial if untouched(path)]
    if not as_json:
        _tell(committed, going, verified, dry_run)
        _tell_left(len(listing.partial) - sum(one.path in listing.partial for one in going), partial)
    removed = bool(going) and not dry_run
    if removed:
        _agreed(going, yes)
        for one in going:
            rotation.remove(Files(), one.path)
    if as_json:
        rows = [{"path": one.path, "why": one.why, "bytes": one.bytes} for one in going]
        show.as_json({"removed": removed, "verified": verified or None, "checkpoints": rows})
    elif removed:
        show.console().print(f"removed {len(going)}, {size(sum(one.bytes for one in going))}")


def untouched(path: str) -> bool:
    """Whether nothing in a partial attempt changed for an hour; generous, for the clock may be another machine's."""
    try:
        names = [path, *(entry.path for entry in os.scandir(path))]
        newest = max(os.lstat(name).st_mtime for name in names)
    except OSError:
        return False
    return time.time() - newest > UNTOUCHED_S


def _verified(committed: Sequence[reader.Found]) -> tuple[list[reader.Found], str]:
    """The newest that verifies, and all with what was found amiss on the way. Raises `Failed` when none does."""
    clock, seen = Clock(), list(committed)
    for number, found in enumerate(committed):
        trouble = examined(found.path, reader.FULL, clock).trouble
        if trouble is None:
            return seen, found.path
        print(f"damaged: {show.plain(trouble)}", file=sys.stderr)
        seen[number] = replace(found, refused=found.refused or Refused(found.path))
    raise Failed("not one of these checkpoints verifies: nothing is removed. Look with `rankpulse ckpt verify --all`")


def _tell(committed: Sequence[reader.Found], going: Sequence[Going], verified: str, dry_run: bool) -> None:
    out = show.console()
    gone = {one.path for one in going}
    for found in committed:
        if found.path not in gone:
            note = "  (the newest that verifies)" if found.path == verified else "  (damaged)" if found.refused else ""
            out.print(f"stays    {show.plain(found.path)}{note}", soft_wrap=True)
    for one in going:
        verb = "would go" if dry_run else "goes    "
        out.print(f"{verb} {show.plain(one.path)}  {size(one.bytes)}, {one.why}", soft_wrap=True)
    if not going:
        out.print("nothing to remove")


def _tell_left(attempts: int, partial: bool) -> None:
    """Of attempts that stay."""
    why = "touched within the last hour" if partial else "--partial removes those that nobody touched for an hour"
    if attempts:
        show.console().print(f"{attempts} not committed, left alone: {why}")


def _agreed(going: Sequence[Going], yes: bool) -> None:
    """Raises `Failed` unless a person said so."""
    if yes:
        return
    question = f"remove {len(going)} ({size(sum(one.bytes for one in going))})?"
    if not sys.stdin.isatty():
        raise Failed(f"{question} Nobody is here to ask: say --yes, or --dry-run to see only")
    if not typer.confirm(question, err=True):
        raise Failed("nothing was removed")
