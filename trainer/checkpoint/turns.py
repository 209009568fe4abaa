"""Who may write to a slow target now, when every node has its part of a checkpoint to bring there. Values only.

All nodes at once would share the target's bandwidth and none would be done for long (and what else is read there would
wait as long). Nobody hands out turns: each node looks at what has arrived, and all come to the same.
"""

from collections.abc import Mapping, Sequence

Files = Mapping[str, int]  # bytes by name


def missing(part: Files, arrived: Files) -> list[str]:
    """What of a node's part has not arrived whole."""
    return [name for name, size in part.items() if arrived.get(name) != size]


def writing(parts: Sequence[Files], arrived: Files, most: int) -> tuple[int, ...]:
    """The nodes whose turn it is: the first `most` of those of whose part something is missing.

    parts: by node, in an order that all know. Where somebody sees a file later than others it waits longer; for nobody
    it is too early, as files only arrive.
    """
    late = [node for node, part in enumerate(parts) if missing(part, arrived)]
    return tuple(late[: max(1, most)])


def complete(parts: Sequence[Files], arrived: Files) -> bool:
    return not any(missing(part, arrived) for part in parts)
