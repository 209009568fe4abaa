"""`rankpulse swarm`: checks what is asked, brings up what is missing, shows how it goes, prints the report."""

import asyncio
import contextlib
import logging
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from rankpulse.core.settings import StoreSettings
from rankpulse.drills.children import Child, rankpulse
from rankpulse.drills.swarm import plan, report
from rankpulse.drills.swarm.plan import BadPlan, Injection, Options
from rankpulse.drills.swarm.run import Now, Pids, planned, run
from rankpulse.store.api import StoreError
from rankpulse.store.embedded import EmbeddedEtcd

CLUSTER: Final = "swarm"
FAILED, BAD_REQUEST = 1, 2


def command(options: Options, store: Sequence[str], cluster: str, inject: str, as_json: bool) -> int:
    """Returns 0 when all that was killed was found and nobody else accused, 1 when not, 2 for a bad request.

    `store` empty: an etcd and a monitor of its own.
    """
    console = Console(stderr=True, width=None if sys.stderr.isatty() else 120)
    try:
        options.check()
        injected = plan.read(Path(inject).read_bytes()) if inject else []
    except (BadPlan, OSError) as error:
        print(f"rankpulse swarm: {error}", file=sys.stderr)
        return BAD_REQUEST
    _log_to(console)
    try:
        found = _live(options, planned(options, injected), tuple(store), cluster or CLUSTER, console)
    except TimeoutError:
        print("rankpulse swarm: no monitor leads this cluster: start one, or leave --store out", file=sys.stderr)
        return BAD_REQUEST
    except (StoreError, OSError) as error:
        print(f"rankpulse swarm: {error}", file=sys.stderr)
        return BAD_REQUEST
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        report.show(found, Console(width=None if sys.stdout.isatty() else 120))
    return 0 if found.sound() else FAILED


def _live(
    options: Options, injections: list[Injection], store: tuple[str, ...], cluster: str, console: Console
) -> report.Report:
    with contextlib.ExitStack() as stack:
        pids = Pids()
        if not store:
            etcd = stack.enter_context(EmbeddedEtcd())
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rankpulse-swarm-")))
            monitor = _monitor(options, etcd.endpoint, cluster, folder)
            stack.callback(monitor.end)
            store, pids = (etcd.endpoint,), Pids(monitor.pid, etcd.pid)
        show = stack.enter_context(_display(options, console))
        settings = StoreSettings(endpoints=store)
        return asyncio.run(run(options, injections, settings, cluster, pids, show))


def _monitor(options: Options, endpoint: str, cluster: str, folder: Path) -> Child:
    config = folder / "monitor.toml"
    config.write_text(
        f'cluster = "{cluster}"\npreset = "{options.preset}"\n[store]\nendpoints = ["{endpoint}"]\n'
        f'[monitor]\nlisten = "127.0.0.1:0"\n[detect]\nheartbeat_interval_s = {options.interval_s}\n'
    )
    argv = rankpulse("monitor", "--config", str(config))
    return Child("monitor", argv, log=folder / "monitor.log").start()


@contextlib.contextmanager
def _display(options: Options, console: Console) -> Iterator[Callable[[Now], None]]:
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=20), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"{options.nodes:,} nodes begin to speak", total=options.for_s)

        def show(now: Now) -> None:
            cores = ", ".join(f"{name} {value:.2f}" for name, value in now.cores.items())
            p99 = f"{1000 * now.p99_s:.0f}" if now.p99_s is not None else "?"
            text = (
                f"{now.beats_s:,.0f} beats/s of {now.living:,} nodes, p99 {p99} ms; cores: {cores}; "
                f"killed {now.killed}, found {now.found}, accused besides {now.accused}"
            )
            progress.update(task, completed=now.passed_s, description=text)

        yield show


def _log_to(console: Console) -> None:
    logger = logging.getLogger("rankpulse.swarm")
    logger.handlers = [RichHandler(console=console, show_path=False, show_level=False)]
    logger.setLevel(logging.INFO)
    logger.propagate = False
