"""One heap of deadlines for all nodes. A beat touches no heap: an entry is corrected when it comes up.

An entry never lies later than the node's deadline can be: while a node is on time it comes up about once per beat at
most, and what is due is all that a tick looks at.
"""

import heapq
import math
from collections.abc import Mapping

from rankpulse.core.settings import DetectSettings
from rankpulse.core.views import NodeView


class Deadlines:
    """Who is on time and who is late, as of the last tick. `name in deadlines`: it is seen, by beats or looks."""

    def __init__(self, nodes: Mapping[str, NodeView], settings: DetectSettings) -> None:
        """`nodes`: all that are known, kept by the fleet."""
        self._nodes = nodes
        self._soonest_s = settings.heartbeat_interval_s + settings.margin_floor_s
        self._heap: list[tuple[float, int, NodeView]] = []
        self._pushed = 0
        self.late: dict[str, NodeView] = {}
        self._marks: dict[str, tuple[float | None, int]] = {}  # of those that are late: what their deadlines rest on
        self.answering: set[str] = set()  # late, but they answer direct looks with what their ranks do

    def watch(self, node: NodeView) -> None:
        """A node that is new. Its deadline is looked at with the next tick."""
        self._push(-math.inf, node)

    def tick(self, now: float) -> None:
        """Sort out who is late by now."""
        for name, node in list(self.late.items()):
            if self._nodes.get(name) is not node:
                del self.late[name]
            elif node.leaving or node.arrival.mark() != self._marks[name]:
                self._again(node, now)
        heap = self._heap
        while heap and heap[0][0] < now:
            node = heap[0][2]
            deadline = node.arrival.deadline()
            if self._nodes.get(node.name) is not node:
                heapq.heappop(heap)  # it is not watched any more
            elif now > deadline and not node.leaving:
                heapq.heappop(heap)
                self.late[node.name], self._marks[node.name] = node, node.arrival.mark()
            else:
                self._pushed += 1
                heapq.heapreplace(heap, (self._next(node, deadline, now), self._pushed, node))

    def __contains__(self, name: object) -> bool:
        if name in self.late:
            return name in self.answering
        node = self._nodes.get(name) if isinstance(name, str) else None
        return node is not None and not node.leaving and node.arrival.last is not None

    def _again(self, node: NodeView, now: float) -> None:
        """A late node was heard, or deadlines started anew."""
        deadline = node.arrival.deadline()
        if now > deadline and not node.leaving:
            self._marks[node.name] = node.arrival.mark()
        else:
            del self.late[node.name]
            self._push(self._next(node, deadline, now), node)

    def _next(self, node: NodeView, deadline: float, now: float) -> float:
        """When to look at a node that is on time: at its deadline, or when one after its next beat could be over."""
        soonest = now + self._soonest_s
        return soonest if node.leaving or deadline > soonest else deadline

    def _push(self, at: float, node: NodeView) -> None:
        self._pushed += 1
        heapq.heappush(self._heap, (at, self._pushed, node))
