"""What a person sees of it: a bar while it runs, and the tables at the end."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def progress(days: int, done: int, what: str = "days") -> Iterator[Callable[[], None]]:
    """A bar on stderr; calling what is given moves it by a day. Silent where stderr is no terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(what, total=days, completed=done)
        yield lambda: bar.advance(task)


def show(report: dict[str, Any]) -> None:
    """The tables, on stdout."""
    from rich.console import Console
    from rich.table import Table

    from rankpulse.bench.detect.tables import COLUMNS, cells

    console = Console()
    titles = {
        "detectors": "one sender per node",
        "per_rank": "one sender per rank",
        "layers": "what each layer buys",
        "manners": "how the ranks run together",
    }
    for name, title in titles.items():
        if not report[name]:
            continue
        table = Table(title=title, title_justify="left")
        for column in COLUMNS:
            table.add_column(column, justify="left" if column == "detector" else "right")
        for row in report[name]:
            table.add_row(*cells(row))
        console.print(table)
    least = report["floor"]
    console.print(
        f"Scale {report['scale']:g}, seed {report['seed']}, {report['took_s']:.0f} s. In brackets: 95 % intervals. "
        f"A pure timeout loses at least {least['job_seconds_lost_per_day']:.1f} s a day, at {least['timeout_s']:.1f} s."
    )
