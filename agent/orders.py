"""Orders of the monitor, carried out on this node: each once, and only against the very processes it names."""

import asyncio
import contextlib
import hashlib
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rankpulse.agent.facts import Fact
from rankpulse.agent.folder import Folder
from rankpulse.agent.log import Log
from rankpulse.core import codec, records
from rankpulse.core.keys import Keys
from rankpulse.core.records import Order
from rankpulse.store.api import Changes, Listing, Lost, Progress, Store, StoreError

_REMEMBERED: Final = 1000
_MEMORY: Final = "orders.done"
_RETRY_S: Final = 5.0


@dataclass(slots=True)
class Orders:
    """`kill` signals the processes of an order that live here; `folder`: where those carried out are kept."""

    node: str
    keys: Keys
    kill: Callable[[Order], int]
    emit: Callable[[Fact], None]
    log: Log
    changed: Callable[[], None] = lambda: None
    folder: Folder | None = None
    done_count: int = 0
    _done: deque[str] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))

    def load(self) -> None:
        """An agent that starts again does not report the orders of its predecessor anew."""
        if self.folder:
            with contextlib.suppress(OSError, msgspec.DecodeError):
                self._done.extend(
                    msgspec.json.decode(self.folder.read(_MEMORY, 1 << 20), type=list[str])[-_REMEMBERED:]
                )

    def save(self) -> None:
        """A disk that does not serve costs only the memory of this."""
        if self.folder:
            with contextlib.suppress(OSError):
                self.folder.write(_MEMORY, msgspec.json.encode(list(self._done)))

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
        elif isinstance(sight, Progress):
            self.log.change("orders", "info", "orders are followed")
        elif isinstance(sight, Changes):
            self.log.change("orders", "info", "orders are followed")
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
        mark = _mark(order, self.node)
        if mark in self._done or not order.seats.get(self.node):
            return
        if order.kind != "restart":
            self.log.change(f"kind {order.kind}", "warning", f"orders of kind {order.kind[:40]!r} are not known here")
            return
        killed = self.kill(order)
        self.changed()  # the next agent, too, shall know why they died
        self._done.append(mark)
        self.done_count += 1
        self.log.say("info", f"order {order.order_id} carried out: {killed} processes killed ({order.reason[:200]})")
        self.emit(Fact(records.ORDER_DONE, detail={"order_id": order.order_id, "killed": killed}))
        self.save()


def _mark(order: Order, node: str) -> str:
    """What tells an order from every other. Its id does not: a store that was emptied gives the same ones again."""
    whole = msgspec.json.encode((order.order_id, order.run_uid, order.round, order.seats.get(node, ())))
    return hashlib.sha256(whole).hexdigest()[:32]
