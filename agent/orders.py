"""Orders of the monitor, carried out on this node: each once, and only against the very processes it names."""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rankpulse.agent.facts import Fact
from rankpulse.agent.ledger import replace
from rankpulse.agent.log import Log
from rankpulse.core import codec, records
from rankpulse.core.keys import Keys
from rankpulse.core.records import Order
from rankpulse.store.api import Changes, Listing, Lost, Store, StoreError

_REMEMBERED: Final = 1000
_RETRY_S: Final = 5.0


@dataclass(slots=True)
class Orders:
    """`kill` signals the processes of an order that live here; `memory` is the file of executed order ids, or ""."""

    node: str
    keys: Keys
    kill: Callable[[Order], int]
    emit: Callable[[Fact], None]
    log: Log
    changed: Callable[[], None] = lambda: None
    memory: str = ""
    done_count: int = 0
    _done: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def load(self) -> None:
        """An agent that starts again does not report the orders of its predecessor anew."""
        if self.memory:
            with contextlib.suppress(OSError, msgspec.DecodeError), open(self.memory, "rb") as file:
                self._done.extend(msgspec.json.decode(file.read(1 << 20), type=list[str])[-_REMEMBERED:])

    async def follow(self, store: Store) -> None:
        """Carry out orders as they come, until cancelled; whatever the store does."""
        while True:
            try:
                async for sight in store.follow(self.keys.orders()):
                    self._see(sight)
            except StoreError as error:
                self.log.change("orders", "warning", f"orders cannot be followed: {error}")
            await asyncio.sleep(_RETRY_S)

    def _see(self, sight: object) -> None:
        if isinstance(sight, Listing):
            self.log.change("orders", "info", "orders are followed")
            self._take((item.key, item.value) for item in sight.items)
        elif isinstance(sight, Changes):
            self._take((change.key, change.value) for change in sight.changes if change.value is not None)
        elif isinstance(sight, Lost):
            self.log.change("orders", "warning", "orders cannot be followed at present")

    def _take(self, pairs: Iterable[tuple[str, bytes]]) -> None:
        for key, value in pairs:
            parsed = self.keys.parse(key)
            if parsed is None or parsed.kind is not Order:
                continue
            try:
                order = codec.decode_at(parsed, value)
            except codec.Refused as error:
                self.log.change(key, "warning", f"order at {key} is not obeyed: {error}")
                continue
            assert isinstance(order, Order)
            self.obey(order)

    def obey(self, order: Order) -> None:
        """Carry out an order that concerns this node, unless it has been."""
        if order.order_id in self._done or not any(member.node == self.node for member in order.members):
            return
        if order.kind != "restart":
            self.log.change(f"kind {order.kind}", "warning", f"orders of kind {order.kind[:40]!r} are not known here")
            return
        killed = self.kill(order)
        self.changed()  # the next agent, too, shall know why they died
        self._done.append(order.order_id)
        self.done_count += 1
        self.log.say("info", f"order {order.order_id} carried out: {killed} processes killed ({order.reason[:200]})")
        self.emit(Fact(records.ORDER_DONE, detail={"order_id": order.order_id, "killed": killed}))
        if self.memory:
            with contextlib.suppress(OSError):
                replace(self.memory, msgspec.json.encode(list(self._done)))
