"""Ranks in groups, as flight recorders tell of them."""

from rankpulse.core.snapshot import COMPLETED, ENQUEUED, STARTED, Group, Operation, Position, Rank

WORLD = Group("world", (0, 1, 2, 3), "dp")


def op(seq: int, name: str = "all_reduce", size: int = 64, state: str = STARTED, order: int | None = None) -> Operation:
    return Operation(seq, name, (size,), "float32", None, state, "", order)


def leg(way: str, peer: int, state: str = STARTED, seq: int = 0, order: int | None = None) -> Operation:
    return Operation(seq, way, (64,), "float32", peer, state, "", order)


def at(group: str, ended: int, *calls: Operation, timed: bool = True) -> Position:
    """A rank whose last collective in the group ended as number `ended`, with these open."""
    last = max([ended, *(call.seq for call in calls if call.peer is None)])
    begun = max([ended, *(call.seq for call in calls if call.state == STARTED and call.peer is None)])
    return Position(group, last, begun if timed else -1, ended, calls)


def inside(rank: int, seq: int = 8, name: str = "all_reduce", group: str = "world") -> Rank:
    """Inside the collective `seq`, the one before it has ended."""
    return Rank(rank, positions=(at(group, seq - 1, op(seq, name)),))


def free(rank: int, ended: int = 7, group: str = "world") -> Rank:
    """In no collective."""
    return Rank(rank, positions=(at(group, ended),))


def unseen(rank: int) -> Rank:
    return Rank(rank, dump="no answer")


__all__ = ["COMPLETED", "ENQUEUED", "STARTED", "WORLD", "at", "free", "inside", "leg", "op", "unseen"]
