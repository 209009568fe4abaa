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

    \b
    Example: rankpulse top
    Example: rankpulse top --monitor http://mon1:9460 --once
    """
    from rankpulse.cli import top as room

    raise typer.Exit(room.run(_settings(config, cluster, store), monitor, every, once))


def report(
    since: Annotated[
        str, typer.Option(metavar="SPAN", help="How far back, in whole days of UTC: 12h, 7d, 4w; '' is everything.")
    ] = "7d",
    format_: Annotated[str, typer.Option("--format", "-f", help="md or html; default: by the name of the file.")] = "",
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Where to; '-' is stdout.")] = "-",
    source: Annotated[
        str,
        typer.Option("--from", metavar="PATH", help="Exported lines: a .jsonl file, or a directory of them. No store."),
    ] = "",
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
) -> None:
    """The weekly review: what failed and how often, where the time went, which machines are lemons.

    Failures by component and class with their mean time between and its exact 90 % interval, time lost by cause, ETTR
    and goodput of every run, how often each should save, incidents by what they cost, nodes and GPUs that fail more
    often than chance explains, and whether it gets worse. HTML is one file without scripts or outside assets.

    Compared is with the same span before. With --from the report ends where the files end. Exit code 1 when records
    were refused. What it rests on: docs/ledger.md, docs/reliability.md.

    \b
    Example: rankpulse report --since 7d --out week.html
    Example: rankpulse report --from /var/lib/rankpulse/ledger/prod --since 4w --format md
    """
    import asyncio

    from rankpulse.cli import report as room

    asked = room.Asked(since, format_, out, source)
    raise typer.Exit(asyncio.run(room.run(_settings(config, cluster, store), asked)))


COMMANDS: Final = (top, report)
