"""Circles of ranks that wait for each other: strongly connected parts of the wait-for graph."""

from collections import deque
from collections.abc import Iterator, Mapping
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
    """Those without each of whom there would be no circle. They are on every way around: those of one are tried."""
    return [rank for rank in _way_around(waits, circle) if not _turns(waits, circle - {rank})]


def _way_around(waits: Waits, circle: set[int]) -> list[int]:
    """The ranks of a shortest way from one of them back to it."""
    start = min(circle)
    came: dict[Node, Node] = {}
    reached: deque[Node] = deque([start])
    while reached:
        node = reached.popleft()
        for after in _next(waits, node):
            if after == start:
                return sorted(_trail(came, node))
            if after not in came and (isinstance(after, Meeting) or after in circle):
                came[after] = node
                reached.append(after)
    return []


def _trail(came: Mapping[Node, Node], node: Node) -> Iterator[int]:
    while node in came:
        if isinstance(node, int):
            yield node
        node = came[node]
    if isinstance(node, int):
        yield node


def _turns(waits: Waits, ranks: set[int]) -> bool:
    """Whether these ranks, seen by themselves, contain a circle: what is left when those who wait for nobody go."""
    blocking = {rank: [m for m in waits.of.get(rank, ()) if not ranks.isdisjoint(waits.late[m])] for rank in ranks}
    missed: dict[int, list[Meeting]] = {}  # by rank: the meetings that it has not come to
    absent: dict[Meeting, int] = {}
    for m in {m for meetings in blocking.values() for m in meetings}:
        late = [rank for rank in waits.late[m] if rank in ranks]
        absent[m] = len(late)
        for rank in late:
            missed.setdefault(rank, []).append(m)
    waiting = {rank: len(meetings) for rank, meetings in blocking.items()}
    free = [rank for rank, count in waiting.items() if not count]
    gone = 0
    while free:
        gone += 1
        for m in missed.get(free.pop(), ()):
            absent[m] -= 1
            for rank in waits.inside[m] if not absent[m] else ():
                if rank in waiting:
                    waiting[rank] -= 1
                    free += [rank] if not waiting[rank] else []
    return gone < len(ranks)


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
