"""The evidence of this node for one order: collected once, told to the monitor that asks directly and to the store."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from rankpulse.agent import composing
from rankpulse.agent.aside import Aside, TooSlow
from rankpulse.agent.dumps import NODE, Dumps
from rankpulse.agent.gathering import Gathered, Gathering
from rankpulse.agent.watch import Who, Worker, Workers
from rankpulse.core import dossier, look, look_evidence, reducing
from rankpulse.core.codec import Refused
from rankpulse.core.dossier import Dump, Part
from rankpulse.core.evidence import Row
from rankpulse.core.look_evidence import Collect
from rankpulse.core.records import RunRow

KEPT: Final = 16  # collections of late
KEPT_S: Final = 30.0  # older ones are no answer any more
AT_ONCE: Final = 4
PER_MINUTE: Final = 60  # whoever asks and however often: ranks have other things to do
_DUMPS_S: Final = 0.2  # for writing them down; what is begun goes on


class Collected(NamedTuple):
    """`rows` for the store, `part` for who asks directly."""

    rows: list[Row]
    part: Part
    run: RunRow | None


@dataclass(slots=True)
class Dossiers:
    """`utc`, `monotonic`: the clocks. `redact`: of frames only file names and functions, of environments nothing."""

    node: str
    workers: Workers
    gathering: Gathering
    dumps: Dumps
    utc: Callable[[], float]
    monotonic: Callable[[], float]
    redact: bool = False
    _kept: dict[Collect, tuple[float, asyncio.Task[Collected]]] = field(default_factory=dict)
    _began: deque[float] = field(default_factory=deque)
    _disk: Aside = field(default_factory=lambda: Aside("rankpulse-dumps", 1))

    async def answer(self, said: look.Ask) -> bytes:
        """To a direct question for evidence. Raises `Refused`."""
        return dossier.encode((await self.of(look_evidence.collect_of(said))).part)

    async def fetch(self, said: look.Ask) -> bytes:
        """To a direct question for a piece of a dump. Raises `Refused`."""
        try:
            return look_evidence.chunk(await self._disk.call(2.0, self.dumps.piece, look_evidence.fetch_of(said)))
        except TooSlow as error:
            raise Refused(f"the disk of the dumps does not answer: {error}") from None

    async def of(self, about: Collect, more: Iterable[Worker] = ()) -> Collected:
        """What there is for this order; whoever comes second gets what the first one got. Raises `Refused`."""
        now = self.monotonic()
        self._forget(now)
        if about not in self._kept:
            self._bound(now)
            self._kept[about] = now, asyncio.create_task(self._collect(about, list(more)))
        return await asyncio.shield(self._kept[about][1])

    def _bound(self, now: float) -> None:
        """Raises `Refused` where there is enough already."""
        if sum(not task.done() for _, task in self._kept.values()) >= AT_ONCE:
            raise Refused(f"{AT_ONCE} collections are under way already")
        while self._began and not 0 <= now - self._began[0] < 60.0:
            self._began.popleft()
        if len(self._began) >= PER_MINUTE:
            raise Refused(f"{PER_MINUTE} collections have begun within a minute")
        self._began.append(now)

    async def close(self) -> None:
        tasks = [task for _, task in self._kept.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.gathering.close()
        self._disk.close()

    def _forget(self, now: float) -> None:
        """What is too old, what failed, and the eldest of too many."""
        for about, (began, task) in list(self._kept.items()):
            failed = task.done() and (task.cancelled() or task.exception() is not None)
            if failed or (task.done() and not 0 <= now - began <= KEPT_S):
                del self._kept[about]
        done = [about for about, (_, task) in self._kept.items() if task.done()]
        for about in done[: max(len(self._kept) - KEPT + 1, 0)]:
            del self._kept[about]

    async def _collect(self, about: Collect, more: list[Worker]) -> Collected:
        found = [*self.workers.of_round(about.run_uid, about.round), *more]
        workers: dict[Who, Worker] = {(one.pid, one.start): one for one in found}
        at = self.utc()
        gathered = await self.gathering.of(list(workers.values()))
        dumps, lost, stuck = await self._written(gathered, at, about)
        part = await asyncio.to_thread(self._part, gathered, at, about, dumps, lost, stuck)
        run = next((one.who.run for one in workers.values()), None)
        return Collected([one.row for one in gathered.seen], part, run)

    def _part(
        self,
        gathered: Gathered,
        at: float,
        about: Collect,
        dumps: list[Dump],
        lost: tuple[str, ...],
        stuck: bool | None,
    ) -> Part:
        """Milliseconds for each rank that has much to tell: not on the loop."""
        ranks = tuple(composing.rank(self.node, gathered, seen, redact=self.redact) for seen in gathered.seen)
        part = Part(
            node=self.node,
            order_id=about.order_id,
            taken_at=at,
            ranks=ranks,
            report=composing.report(self.node, gathered, time.monotonic(), disk_stuck=stuck),
            devices=gathered.use.devices,
            groups=composing.groups(gathered),
            dumps=tuple(dumps),
            left_out=(*lost, *composing.left_out(gathered)),
        )
        return reducing.fit_part(part)

    async def _written(
        self, gathered: Gathered, at: float, about: Collect
    ) -> tuple[list[Dump], tuple[str, ...], bool | None]:
        """The dumps on disk, without their sizes where these are not known in time; why; whether the disk hangs."""
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(at)) + f"-{int(at * 1000) % 1000:03d}"
        free = not self._disk.hanging
        try:
            return await self._disk.call(_DUMPS_S, self._write, stamp, gathered, at, about), (), False
        except TooSlow as error:
            ranks = (*(seen.row.rank for seen in gathered.seen), NODE)
            named = self.dumps.named(stamp, about.order_id, ranks) if free else []
            return named, (f"sizes of dumps: {error}",), None if free else True
        except OSError as error:
            return [], (f"dumps: {error.strerror or error}",), None

    def _write(self, stamp: str, gathered: Gathered, at: float, about: Collect) -> list[Dump]:
        said = {"taken_at": at, **msgspec.to_builtins(about)}
        contents = composing.dumps(self.node, gathered, said, redact=self.redact)
        return self.dumps.write(stamp, about.order_id, contents)
