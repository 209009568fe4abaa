"""The swarm: nodes over a few connections, their jobs, and the hands that do things to them."""

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, Final

from rankpulse.agent.clock import Clock
from rankpulse.agent.log import Log
from rankpulse.agent.mirror import Mirror
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.core.settings import StoreSettings
from rankpulse.drills.swarm import plan as p
from rankpulse.drills.swarm.metered import Meter, MeteredStore
from rankpulse.drills.swarm.node import Node
from rankpulse.drills.swarm.training import Training
from rankpulse.drills.swarm.truth import Truth
from rankpulse.monitor.main import boot_id
from rankpulse.store.api import Store, StoreError

RACK: Final = 16  # nodes
STEP_S: Final = (0.4, 1.6)
TOGETHER: Final = 64  # nodes that claim their names at once: a start is not what is measured
REJOIN_S: Final = 4.0  # from the end of a round to the next one of plain torchrun
log = logging.getLogger("rankpulse.swarm")


class Swarm:
    """`async with Swarm(...)`: all nodes speak. `truth`: what was done to them."""

    def __init__(self, options: p.Options, settings: StoreSettings, keys: Keys) -> None:
        self.options, self.keys, self.meter, self.truth = options, keys, Meter(), Truth()
        self._rng = Random(options.seed)  # noqa: S311 - draws faults, guards nothing
        self.stores: list[Store] = [MeteredStore(settings, self.meter) for _ in range(options.connections)]
        self.nodes: dict[str, Node] = {}
        self.runs: list[Training] = []
        self._of: dict[str, Training] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._forming: set[str] = set()
        logger = logging.getLogger("rankpulse.swarm.agents")
        logger.setLevel(logging.ERROR)  # two thousand of them say the same when the store is slow
        self._log = Log(logger)
        self._mirror = Mirror(keys, Clock(), self._log)
        self.flooded = 0

    async def __aenter__(self) -> "Swarm":
        self._begin(self._mirror.follow(self.stores[0]))
        boot, now = boot_id(), time.monotonic()
        for nth, nodes in enumerate(p.shared(self.options)):
            run = Training(f"run{nth}", nodes, self.options.gpus, self._rng.uniform(*STEP_S))
            self.runs.append(run)
            self._of.update(dict.fromkeys(nodes, run))
        for nth, name in enumerate(p.names(self.options)):
            self.nodes[name] = self._node(nth, name, boot)
        turns = asyncio.Semaphore(TOGETHER)
        await asyncio.gather(*(self._introduce(node, turns) for node in self.nodes.values()))
        log.info("%d nodes speak after %.1f s", len(self.nodes), time.monotonic() - now)
        for run in self.runs:
            self._form(run)
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(node.close() for node in self.nodes.values()))
        for store in self.stores:
            await store.close()

    def _node(self, nth: int, name: str, boot: str) -> Node:
        return Node(
            name,
            f"r{nth // RACK:03d}",
            self.stores[nth % len(self.stores)],
            self.keys,
            mirror=self._mirror,
            interval_s=self.options.interval_s,
            boot_id=boot,
            rng=Random(self._rng.getrandbits(64)),  # noqa: S311
            readings=lambda: self._of[name].readings(name, time.monotonic()),
            log=self._log,
        )

    async def _introduce(self, node: Node, turns: asyncio.Semaphore) -> None:
        async with turns:
            await node.start()
            while not node.publisher.figures.beats:
                if failure := node.failure():
                    raise failure
                await asyncio.sleep(0.05)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _later(self, delay_s: float, call: Callable[[], None]) -> None:
        async def wait() -> None:
            await asyncio.sleep(delay_s)
            call()

        self._begin(wait())

    def living(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.alive]

    def check(self) -> None:
        """Raises what ended a node that should live."""
        for node in self.living():
            if failure := node.failure():
                raise failure

    # --- rounds

    def _form(self, run: Training) -> None:
        now = time.monotonic()
        run.convene(now, [name for name in run.nodes if self.nodes[name].alive])
        self._forming.discard(run.label)
        for name in run.nodes:
            for fact in run.joined(name, now):
                self.nodes[name].outbox.add(fact)

    def _give_up(self, run: Training) -> None:
        """The backend of those who wait for a dead peer ends them; torchrun begins the next round without it."""
        now = time.monotonic()
        for name in run.nodes:
            if self.nodes[name].alive:
                for fact in run.gave_up(name, now):
                    self.nodes[name].outbox.add(fact)
            run.end(name)
        self._later(REJOIN_S, lambda: self._form(run))

    # --- hands

    async def do(self, one: p.Injection) -> bool:
        """One injection, on a node of a job that goes on undisturbed where none is named; False when there is none."""
        node = self.nodes.get(one.node) or self._victim()
        if node is None or not node.alive or node.standing:
            return False
        run, now = self._of[node.name], time.monotonic()
        self.truth.add(one.kind, node.name, run.label, now, one.lasts_s)
        log.info("%s: %s of %s", one.kind, node.name, run.label)
        if one.kind == p.DEATH:
            await self._kill(node, run)
        elif one.kind == p.PAUSE:
            run.stand(now)
            await node.pause()
            self._begin(self._resume(node, run, one.lasts_s))
        elif one.kind == p.HANG:
            run.hang(now, node.name, self._rng.randrange(run.gpus))
            self._later(one.lasts_s, lambda: run.go_on(time.monotonic()))
        elif one.kind == p.SLOW:
            run.pace(now, 2.0)
            self._later(one.lasts_s, lambda: run.pace(time.monotonic(), 0.5))
        else:
            self._begin(self._flood(node, one))
        return True

    def _victim(self) -> Node | None:
        now = time.monotonic()
        quiet = [run for run in self.runs if run.label not in self._forming and run.moves(now) and len(run.nodes) > 1]
        well = [self.nodes[n] for run in quiet for n in run.nodes if self.nodes[n].alive and not self.nodes[n].standing]
        return self._rng.choice(well) if well else None

    async def _kill(self, node: Node, run: Training) -> None:
        run.stand(time.monotonic())
        await node.die()
        if run.label not in self._forming:
            self._forming.add(run.label)
            self._later(self.options.stands_s, lambda: self._give_up(run))

    async def _resume(self, node: Node, run: Training, lasts_s: float) -> None:
        await asyncio.sleep(lasts_s)
        await node.resume()
        if run.label not in self._forming:
            run.go_on(time.monotonic())

    async def _flood(self, node: Node, one: p.Injection) -> None:
        """Records that this version cannot read, under keys that are the node's."""
        store, rng, end = self.stores[-1], self._rng, time.monotonic() + one.lasts_s
        lease = await store.grant(one.lasts_s + 30.0)
        while (now := time.monotonic()) < end:
            self.flooded += 1
            key = self.keys.obs(node.name, 2**40, self.flooded)
            later = b'{"v":%d,"node":"%s","kind":"unknown"}' % (r.SCHEMA + 1, node.name.encode())
            try:
                await store.put(key, later if one.kind == p.NEXT_SCHEMA else rng.randbytes(200), lease=lease.id)
            except StoreError as error:
                log.warning("flood: %s", error)
            await asyncio.sleep(max(0.0, 1.0 / one.rate - (time.monotonic() - now)))
