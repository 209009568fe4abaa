"""The commands that look whether all is set up as it should be. They only parse and hand over."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Final

import typer

from rankpulse.cli.acting import Cluster, Config, Store

if TYPE_CHECKING:
    from rankpulse.cli.doctor_check import Check
    from rankpulse.core.settings import Settings
    from rankpulse.core.timeouts import Around

RunDir = Annotated[str | None, typer.Option(metavar="DIR", help="Where jobs put their slots (/dev/shm/rankpulse).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on stdout.")]
Group = Annotated[
    float | None,
    typer.Option("--process-group-s", metavar="S", min=0.001, help="The timeout of your init_process_group (600)."),
]
KillWait = Annotated[
    float | None,
    typer.Option(
        "--kill-wait-s",
        metavar="S",
        min=0.0,
        help="The scheduler's time from SIGTERM to SIGKILL; Slurm is asked where it is here.",
    ),
]
Table = Annotated[bool, typer.Option("--timeouts", help="Also all timeouts around a job, the shortest first.")]


def doctor(
    process_group: Group = None,
    kill_wait: KillWait = None,
    all_timeouts: Table = False,
    config: Config = None,
    cluster: Cluster = None,
    store: Store = None,
    run_dir: RunDir = None,
    as_json: Json = False,
) -> None:
    """What works here and what does not, with remedies. Exit code 1 when something must be repaired.

    Looks at the store, monitor, agents and their versions and clocks, and at this node: rights, socket, GPUs, kernel
    log, torch, and whether the timeouts of rankpulse, torch and the scheduler lie inside each other.

    Example: rankpulse doctor --store etcd1:2379
    Example: rankpulse doctor --timeouts --process-group-s 1800 --kill-wait-s 30
    """
    from rankpulse.cli import doctor_timeouts
    from rankpulse.cli.config import Flags, load
    from rankpulse.cli.doctor_check import FAIL
    from rankpulse.core.timeouts import Around

    settings = load(Flags(config=config, cluster=cluster, store=tuple(store or ()), run_dir=run_dir))
    given = Around(process_group_s=process_group, kill_wait_s=kill_wait)
    found = asyncio.run(_examined(settings, given, as_json=as_json))
    if all_timeouts and not as_json:
        around, _ = asyncio.run(doctor_timeouts.around(given))
        typer.echo("\ntimeouts around a job, the shortest first:")
        for line in doctor_timeouts.table(settings, around):
            typer.echo(line)
    raise typer.Exit(1 if any(check.level == FAIL for check in found) else 0)


async def _examined(settings: "Settings", given: "Around", *, as_json: bool) -> list["Check"]:
    """All checks; for people each is told as soon as it is known."""
    from rankpulse.cli import doctor, show

    found = []
    async for check in doctor.run(settings, given):
        found.append(check)
        if not as_json:
            typer.echo(f"{check.level:4}  {check.name}: {show.plain(check.text)}")
            if check.remedy:
                typer.echo(f"      -> {check.remedy}")
    if as_json:
        show.as_json([check._asdict() for check in found])
    return found


def check_config(
    file: Annotated[str | None, typer.Argument(metavar="[FILE]", help="Left out: the one that would be read.")] = None,
) -> None:
    """Whether a configuration is good: every setting, every file it names, and that its timeouts lie inside each other.

    Starts nothing and asks nobody. Exit code 2: it is bad, and nothing would start with it.

    Example: rankpulse check-config /etc/rankpulse/rankpulse.toml
    """
    from rankpulse.cli.config import Flags, find, load
    from rankpulse.core import timeouts

    settings = load(Flags(config=file), files=True)
    for pair in timeouts.judged(timeouts.limits(settings, timeouts.Around())):
        if pair.level != timeouts.OK:
            typer.echo(f"warn  {pair.text}\n      -> {pair.remedy}")
    typer.echo(f"{find(file) or 'no file: the defaults, and the environment'}: good")


COMMANDS: Final = (doctor, check_config)
