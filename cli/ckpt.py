"""`rankpulse ckpt`: look at checkpoints, verify, compare, cut anew and thin them out. Needs neither torch nor a store.

Commands here only parse and hand over; what reads checkpoints is imported when a command needs it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from rankpulse.cli.failing import Failed

HELP = """
Look at checkpoints: list, verify, compare, cut for another number of ranks, thin out.

\b
  rankpulse ckpt ls checkpoints                    what is there, and in which state
  rankpulse ckpt verify checkpoints                the newest one that can be trusted; exit code 1: something is damaged
  rankpulse ckpt verify checkpoints --all          every one of them
  rankpulse ckpt diff OLD NEW                      what differs, tensor by tensor; exit code 1: something does
  rankpulse ckpt reshard CHECKPOINT --to 4         the same state for a world of 4 ranks
  rankpulse ckpt prune checkpoints --keep 3        remove old ones, never the newest that verifies
\b
A checkpoint is a directory step-...; DIR is the directory of them that the job's CheckpointManager was given. No torch
is needed: any machine that sees the files will do.
"""
ckpt_app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

Where = Annotated[str, typer.Argument(metavar="DIR|CHECKPOINT", help="A directory of checkpoints, or one of them.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]
Step = Annotated[int | None, typer.Option("--step", metavar="N", help="Only the checkpoint of this step.")]
OLD_HELP = "A checkpoint, or a directory: its newest."


@contextmanager
def _said() -> Iterator[None]:
    """What goes wrong with checkpoints and files, as the sentence that it is."""
    from rankpulse.cli.show import plain
    from rankpulse.trainer.checkpoint.errors import CheckpointError

    try:
        yield
    except CheckpointError as error:
        raise Failed(plain(error)) from error
    except OSError as error:
        if error.filename is None:  # our own output has no place: told elsewhere
            raise
        raise Failed(plain(f"{error.filename}: {error.strerror}")) from error


@ckpt_app.command("ls")
def ls(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A directory of checkpoints.")],
    as_json: Json = False,
) -> None:
    """List a directory of checkpoints, newest first.

    Step, size, when it was saved and by which run, and in which state it is. Only manifests and file sizes are looked
    at; `rankpulse ckpt verify` reads every byte.

    Example: rankpulse ckpt ls checkpoints
    """
    from rankpulse.cli.ckpt_ls import run

    with _said():
        run(directory, as_json)


@ckpt_app.command("verify")
def verify(
    where: Where,
    fast: Annotated[bool, typer.Option("--fast", help="The fast checksum (xxh3) in place of sha256.")] = False,
    step: Step = None,
    everything: Annotated[bool, typer.Option("--all", help="Every checkpoint, not only down to a good one.")] = False,
    as_json: Json = False,
) -> None:
    """Compare every byte with the checksums.

    In a directory, from the newest on until one is good: the one that a restart would load. Exit code 0: all that was
    looked at is good; 1: something is damaged, or of a newer version; 2: there is nothing to verify.

    Example: rankpulse ckpt verify checkpoints; rankpulse ckpt verify checkpoints/step-00000100-3fa9c2d1 --fast
    """
    from rankpulse.cli.ckpt_verify import run

    with _said():
        raise typer.Exit(run(where, "fast" if fast else "full", step, everything, as_json))


@ckpt_app.command("diff")
def diff(
    a: Annotated[str, typer.Argument(metavar="A", help=OLD_HELP)],
    b: Annotated[str, typer.Argument(metavar="B", help=OLD_HELP)],
    as_json: Json = False,
) -> None:
    """Show what differs between two checkpoints.

    Tensors (names, types, shapes, bytes, and how far their numbers are apart) and other values. They may be cut for
    different numbers of ranks: the states are compared, not the files. Step, time, run and metrics are shown and not
    compared. Exit code 0: the states are equal; 1: they differ; 2: they could not be compared.

    Example: rankpulse ckpt diff checkpoints/step-00000100-3fa9c2d1 checkpoints/step-00000200-77ab01c4
    """
    from rankpulse.cli.ckpt_diff import run

    with _said():
        raise typer.Exit(run(a, b, as_json))


@ckpt_app.command("reshard")
def reshard(
    checkpoint: Where,
    to: Annotated[int, typer.Option("--to", metavar="N", help="How many ranks the new one is for.")],
    out: Annotated[str | None, typer.Option(metavar="DIR", help="Where to; default: beside the old one.")] = None,
    step: Step = None,
    as_json: Json = False,
) -> None:
    """Write the same state anew for a world of N ranks. The old checkpoint stays as it is.

    It is verified before and the new one afterwards. Of what belongs to single ranks (random number generators), that
    of the ranks both worlds have is kept. A job can do the same while loading: load with allow_reshard=True.

    Example: rankpulse ckpt reshard checkpoints/step-00000100-3fa9c2d1 --to 4 --out for-four
    """
    from rankpulse.cli.ckpt_reshard import run

    with _said():
        run(checkpoint, to, out, step, as_json)


@ckpt_app.command("prune")
def prune(
    directory: Annotated[str, typer.Argument(metavar="DIR", help="A directory of checkpoints.")],
    keep: Annotated[int, typer.Option(metavar="N", help="How many of the newest stay.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    partial: Annotated[
        bool, typer.Option("--partial", help="Also saves that were never committed, untouched for an hour.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> None:
    """Remove old checkpoints, all but the N newest.

    It verifies first: the newest that verifies always stays, and nothing is removed when none does. What was set aside
    stays: remove it by hand when nobody needs it.

    Example: rankpulse ckpt prune checkpoints --keep 3 --dry-run
    """
    from rankpulse.cli.ckpt_prune import run

    with _said():
        run(directory, keep, partial, dry_run, yes, as_json)
