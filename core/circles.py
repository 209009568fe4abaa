"""Circles of ranks that wait for each other: strongly connected parts of the wait-for graph."""

from collections.abc import Iterator
from typing import TypeAlias

from rankpulse.core.waiting import Meeting, Waits

Node: TypeAlias = int | Meeting


def circles(waits: Waits) -> list[set[int]]:
    """The circles, each as its ranks.

    A rank waits for all that it waits for: so a circle stands still whatever else its ranks wait for. Ranks that follow
    one program never form one.
    """
    parts = ({node for node in part if isinstance(node, int)} for part in _parts(waits))
    return [part for part in parts if len(part) > 1]


def holders(waits: Waits, circle: set[int]) -> list[int]:
    """Those without each of whom there would be no circle."""
    return [rank for rank in sorted(circle) if not _turns(waits, circle - {rank})]


def _turns(waits: Waits, ranks: set[int]) -> bool:
    """Whether these ranks, seen by themselves, contain a circle: what is left when those who wait for nobody go."""
    left = set(ranks)
    while left:
        free = {rank for rank in left if not any(not left.isdisjoint(waits.late[m]) for m in waits.of.get(rank, ()))}
        if not free:
            return True
        left -= free
    return False


def _next(waits: Waits, node: Node) -> list[Meeting] | tuple[int, ...]:
    if isinstance(node, Meeting):
        return waits.late[node]
    return waits.of.get(node, [])


def _parts(waits: Waits) -> Iterator[list[Node]]:
    """Tarjan's algorithm, without recursion."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    held: set[Node] = set()
    for start in waits.of:
        if start in index:
            continue
        trail: list[tuple[Node, Iterator[Node]]] = [(start, iter(_next(waits, start)))]
        index[start] = low[start] = len(index)
        stack.append(start)
        held.add(start)
        while trail:
            node, rest = trail[-1]
            for after in rest:
                if after not in index:
                    index[after] = low[after] = len(index)
                    stack.append(after)
                    held.add(after)
                    trail.append((after, iter(_next(waits, after))))
                    break
                if after in held:
                    low[node] = min(low[node], index[after])
            else:
                trail.pop()
                if trail:
                    low[trail[-1][0]] = min(low[trail[-1][0]], low[node])
                if low[node] == index[node]:
                    part: list[Node] = []
                    while not part or part[-1] != node:
                        part.append(stack.pop())
                        held.discard(part[-1])
                    yield part
