"""The commands that look at a cluster over time: `top` now, `report` back. They only parse and hand over."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from rankpulse.core.settings import Settings

Config = Annotated[str | None, typer.Option("--config", "-c", metavar="FILE", help="TOML file with the settings.")]
Cluster = Annotated[str | None, typer.Option(help="Name of the cluster: its prefix in the store.")]
Store = Annotated[list[str] | None, typer.Option(metavar="HOST:PORT", help="An etcd endpoint; may be repeated.")]


def _settings(config: str | None, cluster: str | None, store: list[str] | None) -> "Settings":
    from rankpulse.cli.config import Flags, load

    return load(Flags(config=config, cluster=cluster, store=tuple(store or ())))


def top(
    monitor: Annotated[
        str, typer.Option("--monitor", metavar="URL", help="Read this monitor and ask no store who leads.")
    ] = "",
    every: Annotated[float, typer.Option(metavar="SECONDS", help="How often to look.")] = 2.0,
    once: Annotated[
        bool, typer.Option("--once", help="Look once, print, leave; so it is where stdout is a pipe.")
    ] = False,
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
) -> None:
    """A cluster live on a terminal: open incidents, runs with progress and ETTR, nodes that are silent or broken.

    Marks say what colours say: ! is trouble, ? is in doubt, - was taken out on purpose. q quits. It reads the leader's
    /state and disturbs nothing. Exit code 1 when no monitor can be read.

    Example: rankpulse top
    Example: rankpulse top --monitor http://mon1:9460 --once
    """
    from rankpulse.cli import top as room

    raise typer.Exit(room.run(_settings(config, cluster, store), monitor, every, once))


COMMANDS: Final = (top,)
