"""`rankpulse webhook-receiver`: takes signed events and starts jobs again. Commands here only parse and hand over."""

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from rankpulse.cli.failing import Failed

if TYPE_CHECKING:
    from rankpulse.receiver.settings import ReceiverSettings

PLACES: Final = ("receiver.toml", "/etc/rankpulse/receiver.toml")
HELP = """
Take signed events of monitors, and start jobs again through Slurm, Kubernetes, systemd or a program of yours.

\b
  rankpulse webhook-receiver --check             are the settings good?
  rankpulse webhook-receiver --dry-run           say what would be done, do nothing
  rankpulse webhook-receiver                     serve until Ctrl-C
  rankpulse webhook-receiver audit               what was asked, and what was done about it

Only jobs that stand in its settings are touched. Each decision is acted by once.

Settings: --config, else RANKPULSE_RECEIVER_CONFIG, else ./receiver.toml, else /etc/rankpulse/receiver.toml.
"""
receiver_app = typer.Typer(help=HELP, invoke_without_command=True, rich_markup_mode=None)

Config = Annotated[str | None, typer.Option("--config", "-c", metavar="FILE", help="TOML file with the settings.")]


@receiver_app.callback()
def serve(
    ctx: typer.Context,
    config: Config = None,
    listen: Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Where events are taken.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Look at the settings and their files, then leave.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, do nothing.")] = False,
) -> None:
    if ctx.invoked_subcommand is not None:
        ctx.obj = config
        return
    settings = _settings(config, listen=listen, dry_run=dry_run or None)
    from rankpulse.receiver import main

    if check:
        if wrong := main.bad_files(settings):
            from rankpulse.core.settings import BadSettings

            raise BadSettings(wrong)
        typer.echo(f"good: {len(settings.jobs)} entries of jobs, events at {settings.listen}/rankpulse")
        return
    raise typer.Exit(asyncio.run(main.main(settings)))


@receiver_app.command("audit")
def audit(
    ctx: typer.Context,
    event: Annotated[str, typer.Argument(metavar="[EVENT]", help="Only of ids that hold this.")] = "",
    config: Config = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="So many lines, the last.")] = 200,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")] = False,
) -> None:
    """What was asked of the receiver and what it did about it, the last line last. It may be running meanwhile.

    Example: rankpulse webhook-receiver audit i0003-0001
    """
    from rankpulse.cli import show
    from rankpulse.receiver import journal

    try:
        lines = list(journal.audit(_settings(config or ctx.obj).state_file, event, limit))
    except journal.BadJournal as error:
        raise Failed(str(error)) from None
    if as_json:
        show.as_json([one._asdict() for one in lines])
    else:
        rows = [(show.clock_time(one.at), one.id, one.what, one.text) for one in lines]
        show.table(show.console(), ("at", "event", "what", "text"), rows)


def _settings(config: str | None, **flags: Any) -> "ReceiverSettings":
    """Raises `BadSettings` with every problem, each line naming its file."""
    from rankpulse.cli.config import read
    from rankpulse.core.settings import BadSettings
    from rankpulse.receiver.settings import parse

    named = config or os.environ.get("RANKPULSE_RECEIVER_CONFIG")
    path = named or next((place for place in PLACES if os.path.lexists(place)), None)
    if path is None:
        raise BadSettings([f"no settings: name a file with --config, or write {PLACES[-1]}; see docs/receiver.md"])
    tree = {**read(Path(path)), **{key: value for key, value in flags.items() if value is not None}}
    try:
        return parse(tree)
    except BadSettings as error:
        raise BadSettings([f"{path}: {problem}" for problem in error.problems]) from error
