"""A restart of one round of our rendezvous, as far as this node goes.

First those that live are asked to save, if the order says so. Torchrun stops the workers itself and meets again: no
attempt of it is burned. What it cannot do is end a process that does not react; those are killed here, the culprits at
once, so that nobody waits for them.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rankpulse.agent.holders import Holder, Holders
from rankpulse.agent.last_words import LastWords
from rankpulse.agent.torchruns import Torchrun, Torchruns
from rankpulse.agent.watch import Workers
from rankpulse.core.last_words import Words
from rankpulse.core.records import Order

_REACT_S: Final = 3.0  # for torchrun to say that it is stopping its workers
_GRACE_MAX_S: Final = 300.0
_LOOK_S: Final = 0.05


@dataclass(slots=True)
class Restart:
    """One order. `push`: tell the torchruns; `changed`: write down why workers die."""

    order: Order
    node: str
    workers: Workers
    torchruns: Torchruns
    holders: Holders
    push: Callable[[], None]
    changed: Callable[[], None]
    words: LastWords

    async def run(self) -> tuple[int, str, Words]:
        """How many processes were killed, what a person may want to know about it, and what came of last words."""
        order = self.order
        here = self.torchruns.in_round(order.run_uid, order.round)
        if not here:
            return 0, "its round is over here", Words()
        self.workers.mark(order)
        self.changed()
        held = self.holders.of_round(order.run_uid, order.round)
        self.holders.reassure(order.run_uid, order.round, f"all meet again: {order.reason}")
        said = await self.words.ask(order)
        self.push()
        silent = await self._reacted(here)
        note = f"torchrun did not react within {_REACT_S:g} s" if silent else ""
        culprits = [member for member in order.culprits if member.node == self.node]
        killed = self.workers.kill(order, culprits)
        await self._grace(min(max(order.grace_s, 0.0), _GRACE_MAX_S), [] if silent else held)
        killed += self.workers.kill(order)
        return killed + (0 if silent else self.holders.end(held)), note, said

    async def _grace(self, seconds: float, held: list[Holder]) -> None:
        """For those that are being stopped, at most as long as one of them lives."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until and (self.workers.of_seats(self.order) or self.holders.living(held)):  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)  # few looks, once an order; the pidfds tell, also of those that are not ours

    async def _reacted(self, here: list[Torchrun]) -> bool:
        """Wait until every torchrun of the round is stopping its workers; True when one did not say so in time."""
        waits = [asyncio.create_task(self._stopping(one)) for one in here]
        try:
            _done, pending = await asyncio.wait(waits, timeout=_REACT_S)
        finally:
            for task in waits:
                task.cancel()
        return bool(pending)

    async def _stopping(self, one: Torchrun) -> None:
        while one.stopping < self.order.round and one.me is None and not (one.left or one.dead or one.leaving):
            if one.round != self.order.round:
                return
            one.moved.clear()
            await one.moved.wait()
