"""What the ranks of a round were doing, asked for on suspicion: the records, and the answers as they come in."""

from typing import NamedTuple

import msgspec

GROUPS_MAX = 16  # process groups told per rank
ROWS_MAX_BYTES = 512 * 1024  # of one node's answer
ROWS_MAX = 4096  # of one node


class Position(msgspec.Struct, frozen=True, array_like=True):
    """How far a rank is in one process group, from torch's flight recorder. -1: none yet."""

    group: str  # the same name on all members
    enqueued: int  # sequence number of the last collective it called
    completed: int  # of the last that ended
    operation: str  # of the last one called
    size: int = 0  # members, 0: not known


class Row(msgspec.Struct, frozen=True, array_like=True):
    """One local rank, as its agent found it."""

    rank: int
    pid: int
    start: int
    state: str  # as in /proc/PID/stat, "?" unknown
    wchan: str  # the kernel function it waits in, "" unknown
    cpu_moving: bool | None  # whether it was at work on the CPU between two looks, None unknown
    server: str  # "ok", or why its worker server gave no positions
    positions: tuple[Position, ...] = ()
    stack: str = ""  # innermost Python frames where they could be had


# how `Row.server` begins when a server is there and does not answer; anything else says why none was asked
SILENT_NOW = ("no answer", "its server is full")
SILENT = (*SILENT_NOW, "left earlier questions unanswered")  # the last says what was, not what is


class Answer(NamedTuple):
    """What one node said. `rows` is None when it could not be read."""

    key: str  # store key of the observation
    rows: tuple[Row, ...] | None


_decoder = msgspec.json.Decoder(tuple[Row, ...])


class Answers:
    """The answers to orders of evidence, by order and node. The first of a node counts."""

    def __init__(self) -> None:
        self._by_order: dict[str, dict[str, Answer]] = {}

    def told(self, order_id: str, node: str, key: str, rows: object) -> tuple[bool, str]:
        """Fold an answer. Returns whether it is superfluous, and why its rows were refused ("" when they were not)."""
        mine = self._by_order.setdefault(order_id, {})
        if node in mine:
            return mine[node].key != key, ""
        parsed, why = _parse(rows)
        mine[node] = Answer(key, parsed)
        return False, why

    def nodes(self, order_id: str) -> set[str]:
        """Who has answered."""
        return set(self._by_order.get(order_id, {}))

    def rows(self, order_id: str) -> dict[str, tuple[Row, ...]]:
        """What could be read, by node."""
        answers = self._by_order.get(order_id, {})
        return {node: answer.rows for node, answer in answers.items() if answer.rows is not None}

    def keys(self, order_id: str) -> tuple[str, ...]:
        """Store keys of the answers, in order of node."""
        return tuple(answer.key for _, answer in sorted(self._by_order.get(order_id, {}).items()))

    def orders(self) -> list[str]:
        return list(self._by_order)

    def drop(self, order_id: str) -> None:
        self._by_order.pop(order_id, None)

    def clear(self) -> None:
        self._by_order.clear()


def _parse(rows: object) -> tuple[tuple[Row, ...] | None, str]:
    if not isinstance(rows, str) or len(rows) > ROWS_MAX_BYTES:
        return None, f"rows must be a text of at most {ROWS_MAX_BYTES} characters"
    try:
        found = _decoder.decode(rows)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        return None, f"not a list of rows: {str(error)[:120]}"
    if len(found) > ROWS_MAX:
        return None, f"{len(found)} rows, at most {ROWS_MAX}"
    return found, ""
