"""`rankpulse ckpt verify`: every byte against the checksums, from the newest checkpoint on."""

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rankpulse.cli import show
from rankpulse.cli.ckpt_ls import on_disk
from rankpulse.cli.ckpt_place import chosen
from rankpulse.cli.ckpt_progress import Clock, bar
from rankpulse.trainer.checkpoint import reader
from rankpulse.trainer.checkpoint.errors import CheckpointError, NewerSchema, Refused


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one checkpoint. `trouble` is None when it is good."""

    path: str
    step: int | None
    trouble: Exception | None

    @property
    def ends_a_load(self) -> bool:
        """Whether a job's load, from the newest on, goes no further than this: it is good, or of a newer schema."""
        return self.trouble is None or isinstance(self.trouble, NewerSchema)

    def told(self) -> dict[str, Any]:
        told: dict[str, Any] = {"path": self.path, "step": self.step, "good": self.trouble is None}
        if self.trouble is not None:
            told["trouble"] = str(self.trouble)
        if isinstance(self.trouble, Refused):
            told |= {"file": self.trouble.path, "expected": self.trouble.expected, "found": self.trouble.found}
        return told


def run(where: str, level: str, step: int | None, everything: bool, as_json: bool) -> int:
    """Verify and tell. Returns 0 when all that was looked at is good, else 1. Raises `Failed`."""
    meant = chosen(where, step)
    clock, verdicts = Clock(), []
    for path in meant.paths:
        verdicts.append(examined(path, level, clock))
        if not as_json:
            _tell(verdicts[-1])
        if verdicts[-1].ends_a_load and not everything and step is None:
            break
    newest = next((one.path for one in verdicts if one.trouble is None), None)
    stopped = _stopped(verdicts) if meant.directory and step is None else None
    rest = len(meant.paths) - len(verdicts)
    if as_json:
        told = {"level": level, "bytes": clock.bytes, "seconds": round(clock.seconds, 3), "not_looked_at": rest}
        rows = [one.told() for one in verdicts]
        show.as_json({"newest_good": newest, "load_stops_at": stopped, **told, "checkpoints": rows})
    else:
        _sum_up(level, clock, newest, rest, meant.directory)
        if stopped is not None:
            show.console().print(
                f"a job that loads from here stops at {show.plain(stopped)}: it was written by a newer version, which"
                " a load never passes over. Use that version, or move it away",
                soft_wrap=True,
            )
    return 0 if all(one.trouble is None for one in verdicts) else 1


def _stopped(verdicts: Sequence[Verdict]) -> str | None:
    """The checkpoint of a newer schema at which a load would stop before it came to a good one."""
    last = next((one for one in verdicts if one.ends_a_load), None)
    return last.path if last is not None and last.trouble is not None else None


def examined(path: str, level: str, clock: Clock) -> Verdict:
    """Verify one checkpoint, with a bar; `clock` counts the bytes. Never raises for what it finds."""
    with bar(os.path.basename(path), on_disk(path)) as advance:

        def progress(size: int) -> None:
            clock.bytes += size
            advance(size)

        try:
            manifest = reader.verify(path, level, progress)
        except (CheckpointError, OSError) as error:
            return Verdict(path, None, error)
    return Verdict(path, manifest.step, None)


def _tell(verdict: Verdict) -> None:
    out = show.console()
    if verdict.trouble is None:
        out.print(f"good     {show.plain(verdict.path)}", soft_wrap=True)
    else:
        word = "refused" if isinstance(verdict.trouble, NewerSchema) else "damaged"
        out.print(f"{word}  {show.plain(verdict.path)}\n         {show.plain(verdict.trouble)}", soft_wrap=True)
    sys.stdout.flush()


def _sum_up(level: str, clock: Clock, newest: str | None, rest: int, directory: bool) -> None:
    out = show.console()
    how = "sha256" if level == "full" else "xxh3"
    out.print(f"read {clock.speed()} ({how})")
    if directory and newest is not None:
        out.print(f"newest that verifies: {show.plain(newest)}", soft_wrap=True)
    elif newest is None:
        out.print("none of these can be loaded")
    if rest:
        out.print(f"{rest} older not looked at: --all reads every one")
