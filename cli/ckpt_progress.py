"""A progress bar over bytes, on stderr; nothing at all when nobody looks at it."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rankpulse.core.words import size


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that takes how many bytes more are done."""
    if not sys.stderr.isatty():
        yield lambda _bytes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console = Console(stderr=True, markup=False, highlight=False)
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda size: progress.advance(task, size)


class Clock:
    """How fast bytes went by."""

    def __init__(self) -> None:
        self._start, self.bytes = time.perf_counter(), 0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self._start

    def speed(self) -> str:
        """ "1.23 GB in 0.8 s, 1.54 GB/s" (1 GB = 1e9 bytes)."""
        seconds = max(self.seconds, 1e-9)
        return f"{size(self.bytes)} in {seconds:.1f} s, {self.bytes / seconds / 1e9:.2f} GB/s"
