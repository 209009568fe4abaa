"""Which checkpoints may be loaded, and who verifies which file."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from rankpulse.trainer.checkpoint.errors import NothingVerified
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.manifest import ShardManifest
from rankpulse.trainer.checkpoint.reader import Found
from rankpulse.trainer.checkpoint.rotation import set_aside as put_aside
from rankpulse.trainer.checkpoint.together import Together
from rankpulse.trainer.launch import identity

LIMIT: Final = "RANKPULSE_RESUME_BEFORE_STEP"
ASKED_IN: Final = "RANKPULSE_RESUME_BEFORE_ROUND"  # set with it by our rendezvous; 0: before the first round


def limit_of(given: int | None, environ: Mapping[str, str]) -> int | None:
    """Only checkpoints of steps below it are loaded: as the program says, else as the monitor does. None: all are."""
    if given is not None:
        return given
    text = environ.get(LIMIT, "").strip()
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        raise NothingVerified(
            f"{LIMIT} is {text[:40]!r}, which is no step: nothing is loaded. Set it to a number, or unset it."
        )
    return int(text)


def too_late(committed: Sequence[Found], limit: int, environ: Mapping[str, str]) -> tuple[Found, ...]:
    """Those of step `limit` or later. What the run has saved since it was asked for is not meant: to obey once more,
    after another crash, sets nothing aside of that. Where the round of the asking is told, rounds say what was saved
    since; else (a limit in the program or the environment stays there) whether its saver had obeyed the same limit."""
    who = identity(environ)
    asked_in = environ.get(ASKED_IN, "").strip()
    told = asked_in.isascii() and asked_in.isdigit() and len(asked_in) <= 9

    def saved_since(manifest: ShardManifest) -> bool:
        if told and who["round"] >= 0:
            first = min(who["round"], int(asked_in) + 1)
            return bool(manifest.run_uid == who["run_uid"] and manifest.round >= first)
        return manifest.resumed_before_step == limit and _same_run(manifest, who)

    return tuple(
        found for found in committed if found.step >= limit and not (found.manifest and saved_since(found.manifest))
    )


def _same_run(manifest: ShardManifest, who: Mapping[str, Any]) -> bool:
    """The same launch where that is known, else the same label (torchrun's own rendezvous, Slurm)."""
    return bool(manifest.run_uid == who["run_uid"] and manifest.run_id == who["run_id"])


def saved_since(rest: Sequence[Found], limit: int | None) -> list[str]:
    """What is said of checkpoints that a limit does not mean, though their steps are not below it."""
    steps = [found.step for found in rest if limit is not None and found.step >= limit]
    if not steps:
        return []
    return [f"checkpoints up to step {max(steps)} were saved since this run resumed before step {limit}: they stay"]


def set_aside(files: Files, late: Sequence[Found], limit: int) -> list[str]:
    """Rename them, so that no later start takes them either; what to say of it. Raises OSError."""
    said = []
    for found in late:
        to = put_aside(files, found.path, f"to resume before step {limit}, as was asked")
        said.append(f"checkpoint of step {found.step} is set aside, to resume before step {limit}: it is kept as {to}")
    return said


def nothing_before(directory: str, limit: int) -> str:
    return (
        f"{directory} has no checkpoint of a step before {limit}, and none of a later one may be loaded."
        f" Start again with a later step, or without a limit (that of `rankpulse restart` ends with the launch;"
        f" {LIMIT}, where a person set it, must go), or in an empty directory."
    )


def none_here(directory: str, partial: int, aside: int) -> list[str]:
    """What is said of a fresh start in a directory where something is nevertheless."""
    saves = "one save" if partial == 1 else f"{partial} saves"
    said = [f"{saves} in {directory} did not end, and no checkpoint is there: a fresh start"] if partial else []
    if aside:
        said.append(f"all checkpoints in {directory} were set aside ({aside}), and none is loaded: a fresh start")
    return said


def to_verify(needed: Collection[int], shared: Sequence[int], nobodys: Sequence[int], together: Together) -> list[int]:
    """The shards that this rank verifies. Those that all ranks read are shared out on each node, one rank each; those
    that nobody reads are shared out over all, for damage anywhere counts; the rest are verified by who reads them."""
    mine = [number for at, number in enumerate(shared) if at % together.local_world_size == together.local_rank]
    mine += [number for at, number in enumerate(nobodys) if at % together.world_size == together.rank]
    return sorted({*mine, *(set(needed) - set(shared))})
