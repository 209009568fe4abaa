"""`rankpulse store`: users and roles in etcd. Commands here only parse and hand over."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rankpulse.core.settings import Settings

HELP = """
The store: who may read and write what in etcd.

\b
  rankpulse store init --nodes nodes.txt --dry-run        what would be made
  rankpulse store init --nodes nodes.txt --enable-auth    make it; then let in only whom etcd knows
"""
store_app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

Config = Annotated[str | None, typer.Option("--config", "-c", metavar="FILE", help="TOML file with the settings.")]
Cluster = Annotated[str | None, typer.Option(help="Name of the cluster: its prefix in the store.")]
Store = Annotated[list[str] | None, typer.Option(metavar="HOST:PORT", help="An etcd endpoint; may be repeated.")]


def _settings(config: str | None, cluster: str | None, store: list[str] | None) -> "Settings":
    from rankpulse.cli.config import Flags, load

    return load(Flags(config=config, cluster=cluster, store=tuple(store or ())))


@store_app.callback()
def group() -> None:
    """One command at present; it keeps its name."""


@store_app.command("init")
def init(
    node: Annotated[list[str] | None, typer.Option("--node", metavar="NAME", help="A node; may be repeated.")] = None,
    nodes: Annotated[str | None, typer.Option(metavar="FILE", help="Nodes, one a line.")] = None,
    password_dir: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Give new users passwords, each in a file of DIR. Without it users come with certificates.",
        ),
    ] = None,
    enable_auth: Annotated[
        bool, typer.Option("--enable-auth", help="At the end: etcd lets in only whom it knows.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
) -> None:
    """Make the roles and users of this cluster in etcd: one for each node's agent, and monitor, operator, reader.

    An agent may write its own node's records and the rendezvous, and nothing else. A user has the name of its role, so
    a client certificate with that common name needs no password. What is there already stays; run it again for new
    nodes.

    Example: rankpulse store init --node gpu07 --node gpu08 --password-dir /etc/rankpulse/passwords --enable-auth
    """
    from rankpulse.cli import store_init

    asked = store_init.Asked(tuple(node or ()), nodes, password_dir, enable_auth, dry_run)
    asyncio.run(store_init.run(_settings(config, cluster, store), asked, typer.echo))
