"""Jobs ask how often to save, and whether to save now: the monitor's word on their run, read when somebody asks.

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
from rankpulse.core.records import RunAdvice, SaveNow
from rankpulse.store.api import Store, StoreError

EVERY_S: Final = 10.0
_READ_S: Final = 2.0


@dataclass(slots=True)
class _Word:
    """Of one run. `known`: the store has been read; `advice` None then: there is none."""

    asked_at: float = float("-inf")
    known: bool = False
    advice: RunAdvice | None = None
    save_now: SaveNow | None = None


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
        run = worker.who.run
        word = await self._of(run.run_uid) if run.run_uid else _Word()  # the monitor alone names runs of plain torchrun
        told: dict[str, Any] = {"advice": None}
        if word.advice is not None:
            told["advice"] = {"interval_s": word.advice.interval_s, "at": word.advice.at}
        if word.save_now is not None and word.save_now.round == run.round:
            told["save_now"] = f"{word.save_now.round}-{word.save_now.incident}"
        line.send(told)

    async def _of(self, uid: str) -> _Word:
        word = self._words.setdefault(uid, _Word())
        if self.now() - word.asked_at >= EVERY_S:
            word.asked_at = self.now()  # who asks meanwhile is not waited for
            self._forget()
            await self._read(uid, word)
        if not word.known:
            raise Garbage("advice: the store does not tell at present")
        return word

    async def _read(self, uid: str, word: _Word) -> None:
        try:
            async with asyncio.timeout(_READ_S):
                item = await self.store.get(self.keys.advice(uid))
                asked = await self.store.get(self.keys.save_now(uid))
            word.save_now = self._wanted(asked.value) if asked is not None else None
            word.advice = codec.decode(RunAdvice, item.value) if item is not None else None
            word.known = True
        except (StoreError, TimeoutError, codec.Refused) as error:
            self.log.change(
                "advice", "warning", f"how often to save cannot be read, what was read last stands: {error}"
            )

    def _wanted(self, value: bytes) -> SaveNow | None:
        """What this agent cannot read, of a newer monitor, costs no word on the interval."""
        try:
            return codec.decode(SaveNow, value)
        except codec.Refused as error:
            self.log.change("save_now", "warning", f"whether to save now cannot be read: {error}")
            return None

    def _forget(self) -> None:
        going = {worker.who.run.run_uid for worker in self.workers.table.values()}
        self._words = {uid: word for uid, word in self._words.items() if uid in going}
