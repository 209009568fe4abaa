"""One look at all GPUs by hand, each through a process of its own: one that hangs costs its time and no other."""

import contextlib
from collections.abc import Callable
from typing import NamedTuple

from rankpulse.agent.clock import Clock
from rankpulse.agent.gpu_books import GpuBooks
from rankpulse.agent.gpu_devices import Devices
from rankpulse.agent.nvml_process import Ended, Hangs, NvmlProcess, state_of
from rankpulse.core.gpu_plan import Plan
from rankpulse.core.gpu_reading import Said
from rankpulse.core.settings import Settings


class Looked(NamedTuple):
    """What came of it. `lacks`: what could not be asked, by source; `processes`: pid and bytes by GPU, as asked for."""

    books: GpuBooks
    lacks: dict[str, str]
    processes: dict[str, tuple[tuple[int, int], ...]]


async def look(settings: Settings, *, processes: bool = False, devices: Devices | None = None) -> Looked:
    """Raises nothing; takes no longer than the deadlines of `[gpu]` for each GPU."""
    s, clock, lacks = settings.gpu, Clock(), dict[str, str]()
    plan = Plan(s.poll_s, s.slow_poll_s, s.retry_s, s.retry_max_s)
    books = GpuBooks(s, settings.preflight.gpus, clock, lambda _fact: None, lacks.__setitem__, plan)
    seen = Looked(books, lacks, {})
    listed = (devices or Devices()).listed()
    if listed is not None:
        books.place(listed)
    else:
        await _ask(books, None, lambda process: None, lambda said: said.buses is not None)
    for bus in list(books.gpus):
        await _one(seen, bus, processes=processes)
    return seen


async def _one(seen: Looked, bus: str, *, processes: bool) -> None:
    def answered(said: Said) -> bool:
        if said.processes:
            seen.processes[bus] = said.processes
        return said.values is not None or said.failed is not None

    await _ask(seen.books, bus, lambda process: process.ask(bus, slow=True, processes=processes), answered)


async def _ask(
    books: GpuBooks, bus: str | None, order: Callable[[NvmlProcess], None], done: Callable[[Said], bool]
) -> None:
    s, clock = books.settings, books.clock
    gpus = None if bus is None else [bus]
    process = await NvmlProcess.start(
        gpus, events=False, wait_ms=0, start_s=s.start_timeout_s, call_s=s.call_timeout_s, clock=clock
    )
    try:
        order(process)
        with contextlib.suppress(Ended):
            while True:
                said = await process.said(float("inf"))
                if said is not None and (not books.take(said) or done(said)):
                    return
    except Hangs as hang:
        if bus is not None and hang.where == bus:
            books.stuck(bus, clock.monotonic() - process.since, state_of(process.pid))
        else:
            books.all_stuck(state_of(process.pid))
    finally:
        await process.end()
