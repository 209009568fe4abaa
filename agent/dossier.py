"""The evidence of this node for one order: collected once, told to the monitor that asks directly and to the store."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rankpulse.agent import stacks
from rankpulse.agent.evidence import Evidence, Seen
from rankpulse.agent.watch import Who, Worker, Workers
from rankpulse.core import dossier, look, look_evidence, reducing
from rankpulse.core.codec import Refused
from rankpulse.core.dossier import Part
from rankpulse.core.evidence import Row
from rankpulse.core.look_evidence import Collect
from rankpulse.core.records import RunRow
from rankpulse.core.snapshot import Rank
from rankpulse.core.snapshot_nodes import Node

KEPT: Final = 16  # collections of late
KEPT_S: Final = 30.0  # older ones are no answer any more
AT_ONCE: Final = 4


class Collected(NamedTuple):
    """`rows` for the store, `part` for who asks directly."""

    rows: list[Row]
    part: Part
    run: RunRow | None


@dataclass(slots=True)
class Dossiers:
    """`utc`, `monotonic`: the clocks."""

    node: str
    workers: Workers
    evidence: Evidence
    utc: Callable[[], float]
    monotonic: Callable[[], float]
    _kept: dict[Collect, tuple[float, asyncio.Task[Collected]]] = field(default_factory=dict)

    async def answer(self, said: look.Ask) -> bytes:
        """To a direct question. Raises `Refused`."""
        return dossier.encode((await self.of(look_evidence.collect_of(said))).part)

    async def of(self, about: Collect, more: Iterable[Worker] = ()) -> Collected:
        """What there is for this order; whoever comes second gets what the first one got. Raises `Refused`."""
        now = self.monotonic()
        self._forget(now)
        if about not in self._kept:
            if sum(not task.done() for _, task in self._kept.values()) >= AT_ONCE:
                raise Refused(f"{AT_ONCE} collections are under way already")
            self._kept[about] = now, asyncio.create_task(self._collect(about, list(more)))
        return await asyncio.shield(self._kept[about][1])

    async def close(self) -> None:
        tasks = [task for _, task in self._kept.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.evidence.close()

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
        seen = await self.evidence.look(workers.values())
        part = Part(
            node=self.node,
            order_id=about.order_id,
            taken_at=at,
            ranks=tuple(_rank(self.node, one) for one in seen),
            report=Node(self.node),
        )
        run = next((one.who.run for one in workers.values()), None)
        return Collected([one.row for one in seen], reducing.fit_part(part), run)


def _rank(node: str, seen: Seen) -> Rank:
    row, positions = seen.row, seen.trace.positions
    return Rank(
        row.rank, node, pid=row.pid, state=row.state, wchan=row.wchan, cpu_moving=row.cpu_moving,
        alive=row.state not in ("X", "Z"), dump="" if positions else _why(row.server), positions=positions,
        stack=stacks.main_thread(seen.python.text), gil_held=seen.held,
    )  # fmt: skip


def _why(server: str) -> str:
    return "its flight recorder is empty: is TORCH_FR_BUFFER_SIZE set?" if server == "ok" else server
