"""`rankpulse ledger`: what failed, for how long nothing did, and where the time went. Parses and hands over."""

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rankpulse.core.settings import Settings

HELP = """
The reliability ledger: every incident that is over, what it cost its run, and how long nodes, GPUs and runs ran.

\b
  rankpulse ledger show                                    failures, running time and lost time, summed up
  rankpulse ledger export --format jsonl --out ledger.jsonl             all of it, to be imported again
  rankpulse ledger export --format csv --out failures.csv --since 30d   incidents as a table
  rankpulse ledger export --format parquet --table exposure --out days.parquet
  rankpulse ledger import ledger.jsonl                     what the store has lost comes back
\b
What it means: docs/ledger.md. The leading monitor exports by itself where ledger.export_dir is set.
"""
ledger_app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)

Config = Annotated[str | None, typer.Option("--config", "-c", metavar="FILE", help="TOML file with the settings.")]
Cluster = Annotated[str | None, typer.Option(help="Name of the cluster: its prefix in the store.")]
Store = Annotated[list[str] | None, typer.Option(metavar="HOST:PORT", help="An etcd endpoint; may be repeated.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]
Since = Annotated[str, typer.Option(metavar="SPAN", help="Only what ended so lately: 12h, 7d, 4w; default: all.")]
WHOLE_DAYS = "How far back, in whole days of UTC: 12h, 7d, 4w; default: all."


def _settings(config: str | None, cluster: str | None, store: list[str] | None) -> "Settings":
    from rankpulse.cli.config import Flags, load

    return load(Flags(config=config, cluster=cluster, store=tuple(store or ())))


@ledger_app.command("show")
def show_sums(
    since: Annotated[str, typer.Option(metavar="SPAN", help=WHOLE_DAYS)] = "",
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Failures by class and component, running time, and lost time by what it went to.

    Example: rankpulse ledger show --since 7d
    """
    from rankpulse.cli import ledger_room as room
    from rankpulse.cli import show

    room.begin_of(since, 0.0)  # before the store is asked
    sums = room.sums(*asyncio.run(room.held(_settings(config, cluster, store))), since)
    show.as_json(sums) if as_json else room.page(sums)


@ledger_app.command("export")
def export_to(
    out: Annotated[str, typer.Option("--out", "-o", metavar="FILE", help="Where to; '-': stdout (jsonl and csv).")],
    format_: Annotated[str, typer.Option("--format", "-f", help="jsonl, csv or parquet.")] = "jsonl",
    table: Annotated[str, typer.Option(help="Of csv and parquet: entries or exposure.")] = "entries",
    since: Since = "",
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
) -> None:
    """Write the ledger to a file, which is replaced as a whole or not at all.

    jsonl holds everything and can be imported again. Tables hold incidents that are over (entries), or seconds of
    running by day, node and run (exposure). parquet needs: pip install 'rankpulse[parquet]'

    Example: rankpulse ledger export --format csv --out failures.csv --since 7d
    """
    from rankpulse.cli import ledger_room as room

    job = room.Export(format_, table, since, out)
    room.check(job)
    typer.echo(room.write(job, *asyncio.run(room.held(_settings(config, cluster, store)))), err=True)


@ledger_app.command("import")
def import_from(
    path: Annotated[str, typer.Argument(metavar="PATH", help="A jsonl file, or a directory of them.")],
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
    as_json: Json = False,
) -> None:
    """Give the store back what it has lost. What it holds is never changed: a second time finds nothing to do.

    It may be interrupted at any moment, and goes on when it is called again. Writes under ledger/, which only monitors
    may where etcd has users: run it with a monitor's --config. Exit code 1 when lines were refused.

    Example: rankpulse ledger import /var/lib/rankpulse/ledger/prod --cluster prod
    """
    from rankpulse.cli import ledger_import as room
    from rankpulse.cli import show

    done = asyncio.run(room.bring_back(_settings(config, cluster, store), path))
    show.as_json(done) if as_json else room.imported(done)
    raise typer.Exit(1 if done.refused else 0)
