"""`rankpulse ckpt reshard`: the same state for another number of ranks, cut anew on this machine."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

from rankpulse.cli import show
from rankpulse.cli.ckpt_ls import on_disk
from rankpulse.cli.ckpt_place import one
from rankpulse.cli.ckpt_progress import Clock, bar
from rankpulse.cli.failing import Failed
from rankpulse.core.words import size
from rankpulse.trainer.checkpoint import reader, recut
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import ShardManifest

MOST_RANKS: Final = 65536


def run(where: str, to: int, out: str | None, step: int | None, as_json: bool) -> None:
    """Cut anew and tell. Raises `Failed`, `CheckpointError`, OSError."""
    if not 1 <= to <= MOST_RANKS:
        raise Failed(f"--to must be a number of ranks between 1 and {MOST_RANKS}, not {to}")
    path = one(where, step)
    _shared_out(path, reader.read_manifest(path), to)
    target = out or os.path.dirname(os.path.abspath(path))
    _there(target)
    clock, bars = Clock(), Bars(on_disk(path))

    def progress(what: str, amount: int) -> None:
        clock.bytes += amount
        bars.advance(what, amount)

    try:
        with bars:
            done = recut.recut(path, to, target, progress=progress)
    except OSError as error:  # of a full disk it has no file name
        where = show.plain(error.filename or target)
        raise Failed(
            f"{where}: {error.strerror}. Nothing of the new checkpoint stays; choose a place with --out"
        ) from error
    if as_json:
        show.as_json(_told(path, done, clock))
    else:
        _page(path, done, clock)


def _shared_out(path: str, manifest: ShardManifest, to: int) -> None:
    """Raises `Failed` when ranks differed in a part: half of it would be lost, and the new ranks would have none."""
    own = manifest.values.get("own") if isinstance(manifest.values, dict) else None
    if own and isinstance(own, list) and to != manifest.world_size:
        raise Failed(
            f"{show.plain(path)}: {show.plain(', '.join(map(str, own)))} was another on each of"
            f" {manifest.world_size} ranks, and cannot be cut for {to}. A job that loads with allow_reshard=True says"
            " what it can take"
        )


def _there(directory: str) -> None:
    """Made when it is missing, but not what is above it: a slip of the pen is no new tree of directories."""
    if os.path.isdir(directory):
        return
    try:
        Files().mkdir(directory)
        Files().sync_dir(os.path.dirname(os.path.abspath(directory)))
    except OSError as error:
        raise Failed(f"--out: {show.plain(directory)} cannot be made: {error.strerror}") from None


class Bars:
    """A bar for each part of the work, one after the other."""

    def __init__(self, total: int) -> None:
        self._total, self._what, self._stack = total, "", ExitStack()

    def __enter__(self) -> "Bars":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def advance(self, what: str, amount: int) -> None:
        if what != self._what:
            self._stack.close()
            self._what = what
            self._advance = self._stack.enter_context(bar(what, self._total))
        self._advance(amount)


def _told(path: str, done: recut.Recut, clock: Clock) -> dict[str, object]:
    return {
        "from": path,
        "path": done.path,
        "step": done.manifest.step,
        "world_size": done.manifest.world_size,
        "bytes": sum(shard.bytes for shard in done.manifest.shards),
        "seconds": round(clock.seconds, 3),
        "own_kept": done.own_kept,
        "own_lost": done.own_lost,
        "own_missing": done.own_missing,
    }


def _page(path: str, done: recut.Recut, clock: Clock) -> None:
    out = show.console()
    written = sum(shard.bytes for shard in done.manifest.shards)
    out.print(
        f"{show.plain(done.path)}: step {done.manifest.step} for {done.manifest.world_size} ranks, {size(written)}"
    )
    out.print(f"verified before and after: {clock.speed()} read and written")
    if done.own_lost:
        out.print(f"not taken over: the random number generators of {ranks(done.own_lost)}, which are no more")
    if done.own_missing:
        out.print(
            f"{ranks(done.own_missing)} had no random number generators to take over, and keep those they start with"
        )


def ranks(numbers: Sequence[int]) -> str:
    """ "rank 3", "ranks 4-7", "ranks 0, 2, 4-6"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    text = ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)
    return f"rank {text}" if len(numbers) == 1 else f"ranks {text}"
