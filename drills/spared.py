"""A job on two nodes, and a torchrun of it that waits on a third: what leaving a node is played with."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import aiohttp

from rankpulse.core import records as r
from rankpulse.drills.children import Child, below
from rankpulse.drills.job import Job
from rankpulse.drills.stage import Stage
from rankpulse.drills.witness import Timeout

NODES = ("node-0", "node-1", "node-2")
KNOWN_LIMIT_S = 90.0


class Spared:
    """All three nodes are on the stage. `spare`: the node on which a torchrun of the job waits, or is to.

    `start_s`: what the bare start of the job took; `given`: the orders by which the job last moved.
    """

    def __init__(
        self, stage: Stage, directory: Path, *, name: str, save_every: int = 10, last_words: bool = False
    ) -> None:
        self.stage, self.witness = stage, stage.witness
        nodes = {node: stage.run_dirs[node] for node in NODES[:2]}
        self.job = Job(
            directory, nodes, name=name, backend="rankpulse", hold=True, max_restarts=0, save_every=save_every,
            last_words=last_words,
        )  # fmt: skip
        self.launchers = dict(zip(NODES, self.job.launchers, strict=False))
        self.start_s = 0.0
        self.given: list[r.Order] = []
        self._made: list[Child] = []
        self._struck: list[int] = []
        self._new_spare(NODES[2])

    def _new_spare(self, node: str) -> None:
        self.spare = node
        self.launchers[node] = self.job.new_launcher(node, self.stage.run_dirs[node], 2)
        self.launchers[node].log = self.job.directory / f"{node}.{len(self._made)}.log"  # not that of an earlier one
        self._made.append(self.launchers[node])

    async def until(self, found: Callable[[], Any], timeout_s: float, what: str) -> Any:
        try:
            return await self.witness.until(found, timeout_s, what)
        except Timeout as error:
            raise Timeout(f"{error}\n{self.told()}") from error

    def told(self) -> str:
        """What everybody said last, for error messages."""
        children = [self.stage.monitor, *self.stage.agents.values(), *self.launchers.values()]
        logs = [f"--- {child.name}\n{child.tail(12)}" for child in children]
        stories = [(i.id, i.klass, i.action, [line.text for line in i.trail]) for i in self.witness.incidents()]
        return "\n".join([*logs, *map(str, stories)])

    def nodes(self) -> set[str]:
        """Those of the job's last round."""
        state = self.witness.run(self.job.name)
        roster = self.witness.roster(state.run_uid) if state is not None else None
        return {member.node for member in roster.members} if roster is not None else set()

    def stepped(self, nodes: Collection[str], since: float) -> bool:
        """Every rank of a round of these nodes has made its first step since then."""
        first = [event for event in self.job.events("first_step") if event["at"] >= since]
        return self.nodes() == set(nodes) and len(first) >= self.job.world_size

    async def start(self) -> None:
        """Until the job trains and the spare waits."""
        self.job.start()
        await self.until(lambda: self.stepped(NODES[:2], 0.0), 120.0, "a job that trains")
        self.start_s = max(event["at"] for event in self.job.events("first_step")) - self.job.started_at
        await self._spare_waits()
        await self._known()

    async def _known(self) -> None:
        """Until the monitor has seen that the ranks keep step: before, peers that wait are no witnesses."""
        deadline = time.monotonic() + KNOWN_LIMIT_S
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as session:
            while not await self._keeps_step(session):
                if time.monotonic() > deadline:
                    raise Timeout(f"not within {KNOWN_LIMIT_S:g} s: a job known to keep step\n{self.told()}")
                await asyncio.sleep(0.3)

    async def _keeps_step(self, session: aiohttp.ClientSession) -> bool:
        [leader], state = self.witness.all(r.Leader), self.witness.run(self.job.name)
        async with session.get(f"{leader.url}/state") as answer:
            told = (await answer.json())["runs"].get(state.run_uid if state is not None else "", {})
        return bool(told.get("synchronous")) and told["clocks"].get("train", {}).get("high_s") is not None

    async def _spare_waits(self) -> None:
        launcher = self.launchers[self.spare].start()
        await self.until(lambda: "waiting" in launcher.tail(40), 90.0, f"the spare on {self.spare} to wait")

    def strike(self, node: str, number: int) -> None:
        """A signal to everything on the node; the agent first, so that it tells nobody."""
        self._struck += [self.stage.agents[node].pid, *below(self.launchers[node].pid)]
        for pid in self._struck:
            os.kill(pid, number)

    def _clear(self) -> None:
        """Nothing is left of what was struck, as on a machine that was switched off."""
        for pid in self._struck:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._struck.clear()

    async def goes_on(self, without: str, since: float) -> float:
        """Until every rank of a round of the other two has made a step: seconds from `since`."""
        left = set(NODES) - {without}
        await self.until(lambda: self.stepped(left, since), 90.0, f"a round of {sorted(left)}")
        orders = [order for order in self.witness.all(r.Order) if order.at >= since]
        self.given = [order for order in orders if order.kind in ("restart", "kill")]
        self.job.launchers = [self.launchers[node] for node in sorted(left)]
        self.spare = without
        first = [event["at"] for event in self.job.events("first_step") if event["at"] >= since]
        return float(sorted(first)[self.job.world_size - 1]) - since

    def spare_is_there(self) -> bool:
        return not self._struck and self.launchers[self.spare].alive()

    async def comes_back(self) -> None:
        """The node that was left is there again: another agent, and a torchrun by the same command, which waits."""
        self._clear()
        await self.stage.add(self.spare)
        self._new_spare(self.spare)
        await self._spare_waits()

    def end(self) -> None:
        self._clear()
        self.launchers[self.spare].signal(signal.SIGTERM)
        self.job.end()
        for child in {*self._made, *self.launchers.values()}:
            child.end(grace_s=5.0)
