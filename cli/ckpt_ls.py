"""`rankpulse ckpt ls`: what is in a directory of checkpoints, and in which state. Reads manifests and sizes only."""

import os
from typing import Any, Final

from rankpulse.cli import show
from rankpulse.cli.ckpt_place import existing
from rankpulse.core.words import size
from rankpulse.trainer.checkpoint import reader
from rankpulse.trainer.checkpoint.errors import NewerSchema
from rankpulse.trainer.checkpoint.manifest import MANIFEST, ShardManifest
from rankpulse.trainer.checkpoint.writer import REASON

REASON_MAX: Final = 2000
COMMITTED, DAMAGED, REFUSED, PARTIAL, ASIDE = "committed", "damaged", "refused", "partial", "set aside"


def run(directory: str, as_json: bool) -> None:
    """Print the listing. Raises `Failed` when `directory` cannot be read."""
    directory = existing(directory)
    rows = gather(directory)
    if as_json:
        show.as_json({"directory": os.path.abspath(directory), "checkpoints": rows})
    else:
        _page(directory, rows)


def gather(directory: str) -> list[dict[str, Any]]:
    """A row for everything in `directory` that is of ours: committed ones newest first, then the rest."""
    listing = reader.scan(directory)
    rows = [_committed(found) for found in listing.committed]
    rows += [_row(path, PARTIAL, "never committed: a save cut short, or still going on") for path in listing.partial]
    rows += [_row(path, ASIDE, _why_aside(path)) for path in listing.aside]
    return rows


def _committed(found: reader.Found) -> dict[str, Any]:
    if found.manifest is None:
        state = REFUSED if isinstance(found.refused, NewerSchema) else DAMAGED
        return _row(found.path, state, str(found.refused), found.step)
    why = amiss(found.path, found.manifest)
    return _row(found.path, DAMAGED if why else COMMITTED, why, found.step, found.manifest)


def amiss(path: str, manifest: ShardManifest) -> str:
    """What can be seen to be wrong with the shards without reading them; "" when nothing."""
    for shard in manifest.shards:
        place = os.path.join(path, shard.path)
        try:
            found = os.lstat(place).st_size
        except FileNotFoundError:
            return f"{place}: is missing"
        except OSError as error:
            return f"{place}: cannot be read: {error.strerror}"
        if found != shard.bytes:
            return f"{place}: has the wrong size (a partial write?): expected {shard.bytes} bytes, found {found}"
    return ""


def _row(path: str, state: str, why: str, step: int | None = None, m: ShardManifest | None = None) -> dict[str, Any]:
    return {
        "path": path,
        "step": step,
        "state": state,
        "why": why,
        "kind": m.kind if m else None,
        "world_size": m.world_size if m else None,
        "shards": len(m.shards) if m else None,
        "bytes": sum(shard.bytes for shard in m.shards) if m else on_disk(path),
        "saved_at": m.wall_clock_seconds if m else None,
        "run_id": m.run_id if m else None,
        "run_uid": m.run_uid if m else None,
        "round": m.round if m else None,
        "metrics": m.metrics if m else None,
    }


def _why_aside(path: str) -> str:
    """What was noted when it was set aside; "" when nothing can be read."""
    try:
        fd = os.open(os.path.join(path, REASON), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(fd, REASON_MAX).decode(errors="replace").strip()
    except OSError:
        return ""
    finally:
        os.close(fd)


def on_disk(path: str) -> int:
    """Bytes of the plain files of one checkpoint or attempt, as far as they can be seen; links are not followed."""
    total = 0
    try:
        for entry in os.scandir(path):
            if entry.is_file(follow_symlinks=False):
                total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        return total
    return total


def _page(directory: str, rows: list[dict[str, Any]]) -> None:
    out = show.console()
    if not rows and os.path.lexists(os.path.join(directory, MANIFEST)):
        out.print(f"{show.plain(directory)} is one checkpoint: name the directory that it lies in", soft_wrap=True)
        return
    if not rows:
        out.print(f"{show.plain(directory)} holds no checkpoints", soft_wrap=True)
        return
    columns = ("step", "kind", "ranks", "shards", "size", "saved", "by", "metrics", "state", "name")
    show.table(out, columns, map(_cells, rows))
    if any(row["state"] == DAMAGED for row in rows):
        verify = f"rankpulse ckpt verify {show.plain(directory)}"
        out.print(f"\nSomething is damaged. Which one a restart would load: {verify}", soft_wrap=True)


def _cells(row: dict[str, Any]) -> tuple[object, ...]:
    saved = "-" if row["saved_at"] is None else show.clock_time(row["saved_at"])
    why, _, more = row["why"].removeprefix(row["path"]).lstrip("/: ").partition(": expected ")
    _, unreadable, error = more.partition("found an error: ")
    if unreadable:
        why = f"{why.partition(': ')[0]}: cannot be read: {error}"
    return (
        *("-" if row[name] is None else row[name] for name in ("step", "kind", "world_size", "shards")),
        size(row["bytes"]),
        saved,
        _by(row),
        ", ".join(f"{name}={value:.4g}" for name, value in sorted((row["metrics"] or {}).items())) or "-",
        f"{row['state']}: {why}" if why else row["state"],
        os.path.basename(row["path"]),
    )


def _by(row: dict[str, Any]) -> str:
    name = row["run_id"] or row["run_uid"]
    if not name:
        return "-"
    return f"{name}, round {row['round']}" if row["round"] >= 0 else str(name)
