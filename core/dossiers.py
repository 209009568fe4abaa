"""The evidence that nodes told directly, by order and node, and whom to ask next. No record: a new leader asks anew.

The order in the store goes on beside it: a node that cannot be asked directly, or whose agent knows no such question,
answers there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rankpulse.core import events as ev
from rankpulse.core.dossier import Part
from rankpulse.core.records import Order
from rankpulse.core.views import NodeView

ORDERS_MAX: Final = 64  # under way at once; beyond that the oldest is forgotten


@dataclass
class Dossier:
    """One order. Times are the observer's."""

    asked_at: float
    parts: dict[str, tuple[Part, float]] = field(default_factory=dict)  # by node, and when it came
    failed: dict[str, str] = field(default_factory=dict)  # node -> why nothing can be had there directly
    asked: set[str] = field(default_factory=set)

    def copy(self) -> "Dossier":
        """As it is now: what comes later does not change it."""
        return Dossier(self.asked_at, dict(self.parts), dict(self.failed), set(self.asked))


class Dossiers:
    """One per engine."""

    def __init__(self) -> None:
        self._of: dict[str, Dossier] = {}
        self._due: list[ev.Ask] = []

    def ask(self, order: Order, nodes: Iterable[str], known: Mapping[str, NodeView], now: float) -> None:
        """Whoever was not asked for this order yet is to be asked now."""
        mine = self._of.get(order.order_id)
        if mine is None:
            mine = self._of[order.order_id] = Dossier(now)
            while len(self._of) > ORDERS_MAX:
                del self._of[next(iter(self._of))]
        for node in sorted(set(nodes) - mine.asked):
            mine.asked.add(node)
            view = known.get(node)
            if view is None or view.state is None or not view.state.probe:
                mine.failed[node] = "its agent tells no address to be asked at"
                continue
            place = view.state
            self._due.append(ev.Ask(node, place.probe, place.boot_id, order.order_id, order.run_uid, order.round))

    def take_due(self) -> list[ev.Ask]:
        """The questions to be put now; each is put once."""
        due, self._due = self._due, []
        return due

    def told(self, event: ev.Told) -> None:
        """An answer. One that nobody waits for is ignored, and one that is not to the question refused."""
        mine = self._of.get(event.order_id)
        if mine is None or event.node not in mine.asked or event.node in mine.parts or event.node in mine.failed:
            return
        part = event.part
        if part is None:
            mine.failed[event.node] = event.detail or "it told nothing"
        elif (part.node, part.order_id) != (event.node, event.order_id):
            mine.failed[event.node] = "what it told is no answer to the question"
        else:
            mine.parts[event.node] = part, event.received_at

    def of(self, order_id: str) -> Dossier:
        """What there is for an order; of one that nobody was asked for, nothing."""
        return self._of.get(order_id) or Dossier(0.0)

    def orders(self) -> list[str]:
        return list(self._of)

    def drop(self, order_id: str) -> None:
        self._of.pop(order_id, None)

    def clear(self) -> None:
        self._of.clear()
        self._due.clear()
