"""Jobs ask how often to save: the monitor's word on their run, read from the store when somebody asks.

Whose run it is, is the kernel's word and the agent's own knowledge. However often jobs ask, the store is read once per
run and some seconds. Where it cannot be read the last word stands; without one the job is told that nobody knows, which
is something else than that there is no advice.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rankpulse.agent.log import Log
from rankpulse.agent.sock import Garbage, Line, Peer
from rankpulse.agent.watch import Workers
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import RunAdvice
from rankpulse.store.api import Store, StoreError

EVERY_S: Final = 10.0
_READ_S: Final = 2.0


@dataclass(slots=True)
class _Word:
    """Of one run. `known`: the store has been read; `advice` None then: there is none."""

    asked_at: float = float("-inf")
    known: bool = False
    advice: RunAdvice | None = None


@dataclass(slots=True)
class SaveAdvice:
    """One per agent."""

    workers: Workers
    keys: Keys
    store: Store
    log: Log
    now: Callable[[], float]
    _words: dict[str, _Word] = field(default_factory=dict)  # by run_uid

    async def session(self, line: Line, peer: Peer, pidfd: int, _hello: Mapping[str, Any]) -> None:
        """One question, one answer."""
        os.close(pidfd)
        worker = self.workers.table.get((peer.pid, peer.start))
        if worker is None:
            raise Garbage("advice: this process is not watched (yet)")
        uid = worker.who.run.run_uid
        advice = await self._of(uid) if uid else None  # runs of plain torchrun are named by the monitor alone
        line.send({"advice": {"interval_s": advice.interval_s, "at": advice.at} if advice is not None else None})

    async def _of(self, uid: str) -> RunAdvice | None:
        word = self._words.setdefault(uid, _Word())
        if self.now() - word.asked_at >= EVERY_S:
            word.asked_at = self.now()  # who asks meanwhile is not waited for
            self._forget()
            await self._read(uid, word)
        if not word.known:
            raise Garbage("advice: the store does not tell at present")
        return word.advice

    async def _read(self, uid: str, word: _Word) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                item = await self.store.get(self.keys.advice(uid))
            word.advice = codec.decode(RunAdvice, item.value) if item is not None else None
            word.known = True
        except (StoreError, TimeoutError, codec.Refused) as error:
            self.log.change(
                "advice", "warning", f"how often to save cannot be read, what was read last stands: {error}"
            )

    def _forget(self) -> None:
        going = {worker.who.run.run_uid for worker in self.workers.table.values()}
        self._words = {uid: word for uid, word in self._words.items() if uid in going}
