"""The commands on acting: who may be restarted, which nodes take part, the breaker. They only parse and hand over."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from rankpulse.core.settings import Settings

Config = Annotated[str | None, typer.Option("--config", "-c", metavar="FILE", help="TOML file with the settings.")]
Cluster = Annotated[str | None, typer.Option(help="Name of the cluster: its prefix in the store.")]
Store = Annotated[list[str] | None, typer.Option(metavar="HOST:PORT", help="An etcd endpoint; may be repeated.")]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why; others will read it.")]
Node = Annotated[str, typer.Argument(metavar="NODE", help="The node, as `rankpulse status` names it.")]
Run = Annotated[str, typer.Argument(metavar="RUN_UID", help="The run: its uid, the beginning of it, or its label.")]
OneRun = Annotated[str | None, typer.Option("--run", metavar="RUN_UID", help="Only this run, not the cluster.")]


def _settings(config: str | None, cluster: str | None, store: list[str] | None) -> "Settings":
    from rankpulse.cli.config import Flags, load

    return load(Flags(config=config, cluster=cluster, store=tuple(store or ())))


def arm(
    reason: Reason,
    run: OneRun = None,
    on_non_finite: Annotated[
        bool | None,
        typer.Option(
            "--restart-on-non-finite/--no-restart-on-non-finite",
            help="With --run: whether a loss that stays NaN or Inf sends this job back to before it began.",
        ),
    ] = None,
    on_corruption: Annotated[
        bool | None,
        typer.Option(
            "--restart-on-corruption/--no-restart-on-corruption",
            help="With --run: whether a replica whose parameters differ sends this job back to before that.",
        ),
    ] = None,
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
) -> None:
    """Allow the monitor to order restarts. Until then it observes only.

    With --run one job alone is armed, also where its cluster is not. A later `disarm` of the cluster stops it, too.

    Example: rankpulse arm --reason 'watched it for a week'
    """
    if run is None:
        for word, setting in ((on_non_finite, "restart_on_non_finite"), (on_corruption, "restart_on_corruption")):
            if word is not None:
                raise typer.BadParameter(f"needs --run; for all jobs it is the setting policy.{setting}")
    _arm(_settings(config, cluster, store), run, True, reason, (on_non_finite, on_corruption))


def disarm(
    reason: Reason, run: OneRun = None, config: Config = None, cluster: Cluster = None, store: Store = None
) -> None:
    """Forbid restart orders: observe only. Restarts by torchelastic itself go on.

    Example: rankpulse disarm --reason 'maintenance of the switches'
    """
    _arm(_settings(config, cluster, store), run, False, reason)


def _arm(
    settings: "Settings",
    run: str | None,
    armed: bool,
    reason: str,
    also: tuple[bool | None, bool | None] = (None, None),
) -> None:
    from rankpulse.cli import modes

    if run is None:
        typer.echo(asyncio.run(modes.arm(settings, armed=armed, reason=reason)))
    else:
        consent = modes.Consent(*also)
        typer.echo(asyncio.run(modes.arm_run(settings, run, armed=armed, reason=reason, consent=consent)))


def pause(run: Run, reason: Reason, config: Config = None, cluster: Cluster = None, store: Store = None) -> None:
    """Leave a run alone: nothing is ordered for it and nobody is paged because of it, until `rankpulse resume`.

    Example: rankpulse pause llama-1f --reason 'a debugger is attached to rank 3'
    """
    from rankpulse.cli import modes

    typer.echo(asyncio.run(modes.pause(_settings(config, cluster, store), run, reason)))


def resume(run: Run, reason: Reason, config: Config = None, cluster: Cluster = None, store: Store = None) -> None:
    """Watch a run again that was paused, as it was watched before.

    Example: rankpulse resume llama-1f --reason 'debugger detached'
    """
    from rankpulse.cli import modes

    typer.echo(asyncio.run(modes.resume(_settings(config, cluster, store), run, reason)))


def cordon(
    node: Node,
    reason: Reason,
    drain: Annotated[
        bool, typer.Option("--drain", help="Jobs that run on it leave it after their next checkpoint.")
    ] = False,
    for_s: Annotated[
        float | None,
        typer.Option("--for", metavar="SECONDS", help="Lift it after so long; default: `rankpulse uncordon`."),
    ] = None,
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
) -> None:
    """Keep a node out of all rounds to come of jobs that meet through rankpulse. One that stands goes on.

    With --drain a job on it is restarted without it once its next checkpoint is saved, if a spare waits or it may
    go on with fewer nodes.

    Example: rankpulse cordon gpu07 --drain --reason 'ECC errors, ticket 4711'
    """
    from rankpulse.cli import nodes

    typer.echo(asyncio.run(nodes.cordon(_settings(config, cluster, store), node, reason, drain=drain, for_s=for_s)))


def uncordon(node: Node, reason: Reason, config: Config = None, cluster: Cluster = None, store: Store = None) -> None:
    """Let a node that was cordoned take part in rounds again. What rankpulse held against it is forgotten.

    Example: rankpulse uncordon gpu07 --reason 'memory replaced'
    """
    from rankpulse.cli import nodes

    typer.echo(asyncio.run(nodes.uncordon(_settings(config, cluster, store), node, reason)))


def maintenance(
    node: Node,
    reason: Reason,
    over: Annotated[bool, typer.Option("--over", help="It is over: watch the node and let it in again.")] = False,
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
) -> None:
    """Take a node into maintenance: jobs leave it after their next checkpoint, and its silence pages nobody.

    Example: rankpulse maintenance gpu07 --reason 'new firmware'; rankpulse maintenance gpu07 --over --reason 'done'
    """
    from rankpulse.cli import nodes

    asked = nodes.maintenance_over if over else nodes.maintenance
    typer.echo(asyncio.run(asked(_settings(config, cluster, store), node, reason)))


breaker_app = typer.Typer(
    help="The breaker: opened by the monitor when too much is silent at once, closed by a person.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@breaker_app.command("show")
def breaker_show(config: Config = None, cluster: Cluster = None, store: Store = None) -> None:
    """Whether the breaker is open, since when and why. Exit code 1 when it is."""
    from rankpulse.cli import modes, show

    found = asyncio.run(modes.breaker(_settings(config, cluster, store)))
    if found is None or not found.open:
        by = f" (by {found.author}, {show.ago(found.at)}: {found.reason})" if found is not None else ""
        typer.echo(show.plain(f"the breaker is closed{by}"))
        return
    typer.echo(show.plain(f"the breaker is OPEN, {show.ago(found.at)}: {found.reason}. Nothing is ordered"))
    raise typer.Exit(1)


@breaker_app.command("close")
def breaker_close(reason: Reason, config: Config = None, cluster: Cluster = None, store: Store = None) -> None:
    """Have the monitor act again. First look why it stopped: `rankpulse explain`.

    Example: rankpulse breaker close --reason 'the switch is back'
    """
    from rankpulse.cli import modes

    typer.echo(asyncio.run(modes.close_breaker(_settings(config, cluster, store), reason)))


COMMANDS: Final = (arm, disarm, pause, resume, cordon, uncordon, maintenance)
