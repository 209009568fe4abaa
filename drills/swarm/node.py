"""One node of the swarm: the real publisher and the real server of direct looks, on a job that is a model."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from random import Random
from typing import Any, Final, TypeVar

from rankpulse.agent.claim import Me
from rankpulse.agent.clock import Clock
from rankpulse.agent.facts import Fact, Reading, build_beat
from rankpulse.agent.log import Log
from rankpulse.agent.mirror import Mirror
from rankpulse.agent.outbox import Outbox
from rankpulse.agent.presence import Present, presence_ttl_s
from rankpulse.agent.probe import ProbeServer
from rankpulse.agent.publish import Publisher
from rankpulse.core.keys import Keys
from rankpulse.core.records import AGENT_STARTED, Beat, NodeState
from rankpulse.core.settings import ProbeSettings
from rankpulse.store.api import Guard, Item, Lease, Listing, Outcome, Sight, Store, StoreStatus, Write

SPOOL_MAX: Final = 10_000
FILL: Final = 8  # connections that fill a queue of none
T = TypeVar("T")


class Gated:
    """A store through which nothing goes while the node stands still; what was asked for goes on afterwards."""

    def __init__(self, store: Store) -> None:
        self._store, self._open = store, asyncio.Event()
        self._open.set()

    def stand(self, on: bool) -> None:
        if on:
            self._open.clear()
        else:
            self._open.set()

    async def _after(self, call: Coroutine[Any, Any, T]) -> T:
        if not self._open.is_set():
            try:
                await self._open.wait()
            except asyncio.CancelledError:
                call.close()
                raise
        answer = await call
        if not self._open.is_set():
            await self._open.wait()  # it came while the node stood still
        return answer

    async def get(self, key: str) -> Item | None:
        return await self._after(self._store.get(key))

    async def list(self, prefix: str) -> Listing:
        return await self._after(self._store.list(prefix))

    async def put(self, key: str, value: bytes, *, lease: int = 0) -> int:
        return await self._after(self._store.put(key, value, lease=lease))

    async def delete(self, key: str) -> bool:
        return await self._after(self._store.delete(key))

    async def delete_prefix(self, prefix: str) -> int:
        return await self._after(self._store.delete_prefix(prefix))

    async def txn(self, guards: Sequence[Guard], writes: Sequence[Write]) -> Outcome:
        return await self._after(self._store.txn(guards, writes))

    async def grant(self, ttl_s: float) -> Lease:
        return await self._after(self._store.grant(ttl_s))

    async def keep_alive(self, lease: Lease) -> float:
        return await self._after(self._store.keep_alive(lease))

    async def revoke(self, lease: Lease) -> None:
        await self._after(self._store.revoke(lease))

    def follow(self, prefix: str) -> AsyncIterator[Sight]:
        return self._store.follow(prefix)

    async def compact(self, revision: int) -> None:
        await self._after(self._store.compact(revision))

    async def status(self) -> StoreStatus:
        return await self._after(self._store.status())

    async def close(self) -> None:
        """The pool's to close."""


class Node:
    """`readings`: its ranks as they are now. `mirror`: what all nodes see of the rendezvous, followed once for all."""

    def __init__(
        self,
        name: str,
        rack: str,
        store: Store,
        keys: Keys,
        *,
        mirror: Mirror,
        interval_s: float,
        boot_id: str,
        rng: Random,
        readings: Callable[[], list[Reading]],
        log: Log,
    ) -> None:
        self.name, self.rack, self.alive, self.standing = name, rack, True, False
        self._gate, self._keys, self._mirror = Gated(store), keys, mirror
        self._interval_s, self._boot_id, self._rng, self._readings, self._log = interval_s, boot_id, rng, readings, log
        self.clock = Clock()
        self.outbox = Outbox(name, None, SPOOL_MAX, self.clock.utc)
        me = Me(name, f"{rng.getrandbits(64):016x}", name, boot_id, os.getpid())
        self.publisher = Publisher(
            self._gate, keys, me, interval_s, self.clock, rng, log, self.outbox, self._beat, self._state
        )
        self.probe = self._server("127.0.0.1:0")
        self._tasks: list[asyncio.Task[None]] = []
        self._hole = contextlib.ExitStack()
        self._port = 0

    async def start(self) -> None:
        """Listen, and speak from somewhere within the interval on: agents do not start in step."""
        await self.probe.open()
        self.outbox.add(Fact(AGENT_STARTED))
        present = Present(
            self.name,
            self._keys,
            self._gate,
            self._mirror,
            self.clock,
            self._log,
            presence_ttl_s(self._interval_s),
            lambda: self.publisher.inc,
        )
        self._tasks = [asyncio.create_task(self._speak()), asyncio.create_task(present.run())]

    async def _speak(self) -> None:
        await asyncio.sleep(self._rng.uniform(0.0, self._interval_s))
        await self.publisher.run()

    def failure(self) -> BaseException | None:
        """Of a part that runs for ever."""
        for task in self._tasks:
            if task.done() and not task.cancelled() and task.exception() is not None:
                return task.exception()
        return None

    async def die(self) -> None:
        """As a machine that loses power: nothing more is sent, and packets to it are answered by nobody."""
        self.alive = False
        await self._end()
        await self._silence(full=True)

    async def pause(self) -> None:
        """As a process that is stopped: its kernel takes connections on."""
        self.standing = True
        self._gate.stand(True)
        await self._silence(full=False)

    async def resume(self) -> None:
        self._hole.close()
        self.probe = self._server(f"127.0.0.1:{self._port}")
        await self.probe.open()
        self.standing = False
        self._gate.stand(False)

    async def close(self) -> None:
        await self._end()
        await self.probe.close()
        self._hole.close()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _silence(self, *, full: bool) -> None:
        """In place of its server, a port whose queue nobody empties; `full`: and that takes nobody."""
        self._port = int(self.probe.address.rpartition(":")[2])
        await self.probe.close()
        listener = self._hole.enter_context(socket.create_server(("127.0.0.1", self._port), backlog=0 if full else 256))
        for _ in range(FILL if full else 0):
            filler = self._hole.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())

    # what it tells

    def _server(self, listen: str) -> ProbeServer:
        return ProbeServer(
            self.name,
            ProbeSettings(listen=listen),
            lambda: self._beat(self.publisher.inc, self.publisher.seq, self.clock.utc()),
            towards=(),
            name=self.name,
            clock=self.clock.monotonic,
            log=self._log,
        )

    def _beat(self, inc: int, seq: int, at: float) -> Beat:
        return build_beat(self.name, inc, seq, at, self._readings())

    def _state(self, inc: int, at: float) -> NodeState:
        return NodeState(
            node=self.name, inc=inc, at=at, host=self.name, agent_version="swarm", interval_s=self._interval_s,
            probe=self.probe.address or f"127.0.0.1:{self._port}", rack=self.rack, boot_id=self._boot_id,
        )  # fmt: skip
