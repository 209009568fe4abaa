"""`rankpulse webhook`: try targets out, see what they were not told, have it tried anew.

Commands here only parse and hand over. The leading monitor sends, with its settings and from its machine.
"""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rankpulse.core.settings import Settings

HELP = """
Webhooks: who is told of pages, restarts and their end. Targets are settings, [[webhook.targets]].

\b
  rankpulse webhook test --reason 'new key'      tell every target of a test; exit code 1: one was not told
  rankpulse webhook ls                           what was told to whom, and what could not be
  rankpulse webhook retry --reason 'it is back'  what was given up is tried anew
\b
The leading monitor sends, with the settings and secret files on its own machine.
"""
webhook_app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

Config = Annotated[str | None, typer.Option("--config", "-c", metavar="FILE", help="TOML file with the settings.")]
Cluster = Annotated[str | None, typer.Option(help="Name of the cluster: its prefix in the store.")]
Store = Annotated[list[str] | None, typer.Option(metavar="HOST:PORT", help="An etcd endpoint; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why; others will read it.")]


def _settings(config: str | None, cluster: str | None, store: list[str] | None) -> "Settings":
    from rankpulse.cli.config import Flags, load

    return load(Flags(config=config, cluster=cluster, store=tuple(store or ())))


@webhook_app.command("test")
def try_out(
    reason: Reason,
    target: Annotated[str, typer.Argument(metavar="[TARGET]", help="Only this one; default: all.")] = "",
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Have the leading monitor tell targets of a test, once, and say what came of it.

    Exit code 1 when one of them was not told. A test pages nobody at Alertmanager (severity info); at PagerDuty it
    opens an incident of severity info that a person closes.

    Example: rankpulse webhook test pager --reason 'new signing key'
    """
    from rankpulse.cli import show, webhooks

    letters = asyncio.run(webhooks.test(_settings(config, cluster, store), target, reason))
    show.as_json([webhooks.row(one) for one in letters]) if as_json else webhooks.page(letters)
    raise typer.Exit(0 if all(one.state == "delivered" for one in letters) else 1)


@webhook_app.command("ls")
def ls(
    everything: Annotated[bool, typer.Option("--all", help="Also what was delivered.")] = False,
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """What targets are still to be told, and what was given up (dead); with --all also what they were told."""
    from rankpulse.cli import show, webhooks

    letters = asyncio.run(webhooks.every(_settings(config, cluster, store), everything=everything))
    show.as_json([webhooks.row(one) for one in letters]) if as_json else webhooks.page(letters)


@webhook_app.command("retry")
def retry(
    reason: Reason,
    event: Annotated[
        str, typer.Argument(metavar="[EVENT[/TARGET]]", help="Only this one, as `ls` names it; default: all.")
    ] = "",
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
) -> None:
    """Have what was given up tried anew.

    Example: rankpulse webhook retry i0003-0001-page/pager --reason 'the receiver is back'
    """
    from rankpulse.cli import webhooks

    told: Any = asyncio.run(webhooks.retry(_settings(config, cluster, store), event, reason))
    typer.echo(told)
