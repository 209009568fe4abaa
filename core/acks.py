"""What agents say they did about orders. Kept until the incident is over: a new leader knows who has answered."""

from typing import NamedTuple

from rankpulse.core.last_words import Words


class Ack(NamedTuple):
    """One node has carried out an order."""

    order_id: str
    node: str
    killed: int
    key: str  # store key of the observation
    revision: int
    words: Words = Words()


class Acks:
    """By order and node. The first of a node counts."""

    def __init__(self) -> None:
        self._by_order: dict[str, dict[str, Ack]] = {}

    def told(self, ack: Ack) -> bool:
        """Fold one; returns whether it is superfluous."""
        return self._by_order.setdefault(ack.order_id, {}).setdefault(ack.node, ack).key != ack.key

    def nodes(self, order_id: str) -> set[str]:
        """Who has answered."""
        return set(self._by_order.get(order_id, {}))

    def of(self, *order_ids: str) -> list[Ack]:
        """In the order in which they came to the store."""
        found = [ack for order_id in order_ids for ack in self._by_order.get(order_id, {}).values()]
        return sorted(found, key=lambda ack: ack.revision)

    def orders(self) -> list[str]:
        return list(self._by_order)

    def drop(self, order_id: str) -> list[str]:
        """Forget an order; returns the keys of what was said about it."""
        return [ack.key for ack in self._by_order.pop(order_id, {}).values()]

    def clear(self) -> None:
        self._by_order.clear()
