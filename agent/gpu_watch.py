"""Watches the GPUs of this node through a process that may hang, and is never held up by it.

One process reads all GPUs, in turn. Where one does not answer in time the process is killed, the others are read by a
new one, and the silent one is asked by a process of its own, less and less often. A process that the kernel does not
let go is left to itself, and nobody asks the same GPU before it is gone: there is at most one for each GPU, and one for
NVML as a whole.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rankpulse.agent.gpu_books import EVENTS_SOURCE, SOURCE, GpuBooks
from rankpulse.agent.gpu_devices import Devices
from rankpulse.agent.nvml_process import CHILD, EVENTS, Ended, Hangs, NvmlProcess, state_of
from rankpulse.core.gpu_plan import backoff_s
from rankpulse.core.gpu_reading import Said

NODE: Final = ""  # stands for NVML as a whole where others stand for a GPU
LOOK_AGAIN_S: Final = 60.0  # for GPUs, where there are none: names in a directory
_DEVICES: Final = Devices()
_WAIT_MS: Final = 1000  # for events: an order is heard after so long at most


@dataclass(slots=True)
class Gpus:
    """One per agent. `end`: how a process that hangs is ended, False: it cannot be."""

    books: GpuBooks
    command: Sequence[str] = CHILD
    devices: Devices = _DEVICES
    end: Callable[[NvmlProcess], Awaitable[bool]] = NvmlProcess.end
    started: int = 0  # processes, so far
    _left: dict[str, NvmlProcess] = field(default_factory=dict)  # that the kernel did not let go
    _running: set[NvmlProcess] = field(default_factory=set)
    _alone: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    _failures: int = 0  # of NVML as a whole, in a row
    _deaf_until: float = 0.0  # events are not waited for: that hung

    async def run(self) -> None:
        """Until cancelled. Where there are no GPUs it costs a look at names of files, once a minute."""
        try:
            while True:  # noqa: ASYNC110 (nobody tells of a GPU)
                await asyncio.sleep(await self._watch() if self._needed() else LOOK_AGAIN_S)
        finally:
            await self._close()

    @property
    def left(self) -> int:
        """Processes that hang in the kernel."""
        return sum(not process.gone for process in self._left.values())

    def _needed(self) -> bool:
        return self.books.settings.enabled and bool(self.books.wanted or self.books.plan.known or self.devices.there())

    async def _close(self) -> None:
        tasks = list(self._alone.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for process in list(self._running):
            await self._end(process, NODE)

    # -- the process that reads all -----------------------------------------------------------------------------
    async def _watch(self) -> float:
        """One life of it; in how many seconds the next may begin."""
        if not self._free(NODE):
            self.books.unheard()
            return self._again()
        listed = self.devices.listed()
        if listed is not None:
            self.books.place(listed)
        known = self.books.plan.together
        if self.books.plan.known and not known:
            return self.books.settings.poll_s  # each is asked by itself
        try:
            process = await self._start(known or None, events=self._listens())
        except OSError as error:
            self.books.able(SOURCE, f"no process can be started: {error.strerror}")
            return self._again()
        whose = NODE
        try:
            await self._converse(process)
        except Hangs as hang:
            whose = self._hung(process, hang.where)
        except Ended as end:
            if not end.told:
                self.books.able(SOURCE, "the process that asks NVML ended by itself: see the kernel's log")
        finally:
            self.books.plan.nobody_answers()
            await self._end(process, whose)
        self.books.unheard()
        return 0.0 if whose != NODE else self._again()

    def _listens(self) -> bool:
        return self.books.settings.events and self.books.clock.monotonic() >= self._deaf_until

    async def _converse(self, process: NvmlProcess) -> None:
        """Raises `Hangs` and `Ended`."""
        books = self.books
        while True:
            now = books.clock.monotonic()
            for ask in books.plan.asks(now):
                process.ask(ask.bus, slow=ask.slow)
            due = books.plan.next_at()
            said = await process.said(now + LOOK_AGAIN_S if due is None else due)
            if said is not None:
                if not books.take(said):
                    raise Ended(told=True)
                self._failures = 0 if said.values else self._failures

    def _hung(self, process: NvmlProcess, where: str) -> str:
        """Whose fault it is: a GPU's, or NVML's as a whole."""
        books, now, in_kernel = self.books, self.books.clock.monotonic(), state_of(process.pid)
        if where in books.gpus:
            books.stuck(where, now - process.since, in_kernel)
            wait_s = books.plan.hung(where, now)
            self._alone[where] = asyncio.create_task(self._ask_alone(where, wait_s), name=f"gpu {where}")
            return where
        if where == EVENTS:
            self._deaf_until = now + books.settings.retry_max_s
            books.able(EVENTS_SOURCE, "waiting for the driver's events hangs: Xids are seen by the kernel's log alone")
        else:
            books.all_stuck(in_kernel)
        return NODE

    # -- one that hung ------------------------------------------------------------------------------------------
    async def _ask_alone(self, bus: str, wait_s: float) -> None:
        """Until it answers; then it is asked together with all the others again."""
        books, since = self.books, self.books.clock.monotonic()
        try:
            while True:
                await asyncio.sleep(wait_s)
                said = await self._one_look(bus) if self._free(bus) else None
                if said is not None:
                    break
                books.stuck(bus, books.clock.monotonic() - since, "")
                wait_s = books.plan.hung(bus, books.clock.monotonic())
        finally:
            del self._alone[bus]
            books.plan.back(bus, books.clock.monotonic())
        books.answer(said)

    async def _one_look(self, bus: str) -> Said | None:
        """What it answers, be it that it is lost; None: nothing."""
        try:
            process = await self._start([bus], events=False)
        except OSError:
            return None
        try:
            process.ask(bus, slow=True)
            while True:
                said = await process.said(float("inf"))
                if said is not None and said.bus == bus and (said.values is not None or said.failed is not None):
                    return said
        except (Hangs, Ended):
            return None
        finally:
            await self._end(process, bus)

    # -- processes ----------------------------------------------------------------------------------------------
    async def _start(self, gpus: list[str] | None, *, events: bool) -> NvmlProcess:
        s = self.books.settings
        limits = {"start_s": s.start_timeout_s, "call_s": s.call_timeout_s}
        process = await NvmlProcess.start(
            gpus, events=events, wait_ms=_WAIT_MS, clock=self.books.clock, command=self.command, **limits
        )
        self.started += 1
        self._running.add(process)
        return process

    async def _end(self, process: NvmlProcess, whose: str) -> None:
        """Nothing waits for one that does not die."""
        gone = await self.end(process)
        self._running.discard(process)
        if not gone:
            self._left[whose] = process

    def _free(self, whose: str) -> bool:
        """Whether no process is left there that the kernel did not let go."""
        left = self._left.get(whose)
        if left is not None and left.gone:
            del self._left[whose]
        return whose not in self._left

    def _again(self) -> float:
        self._failures += 1
        return backoff_s(self._failures, self.books.settings.retry_s, self.books.settings.retry_max_s)
