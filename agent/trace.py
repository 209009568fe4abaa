"""torch's flight recorder, read: how far a rank is in each of its process groups. Pure; the bytes are untrusted.

What can be relied on, also with gloo: `process_group[0]` (the group's name, the same on all members) and `retired`.
`pg_id` and `pg_status` are numbered by each process for itself, and gloo leaves `state` at "scheduled".
"""

from typing import Any, Final

import msgspec

from rankpulse.core.evidence import GROUPS_MAX, Position

TRACE_MAX_BYTES: Final = 4 * 1024 * 1024
_ENTRIES_MAX: Final = 20_000
_NAME_MAX: Final = 64
_SEQ_MAX: Final = 2**53


class BadTrace(ValueError):
    """The bytes are no trace; the text says why."""


class _Entry(msgspec.Struct):
    process_group: list[str]
    collective_seq_id: int
    profiling_name: str = ""
    record_id: int = 0
    retired: bool = False
    is_p2p: bool = False
    state: str = ""


class _Trace(msgspec.Struct):
    entries: list[_Entry] = []
    pg_config: Any = None


_decoder: Final = msgspec.json.Decoder(_Trace)


class _Group:
    """What the entries of one group say."""

    def __init__(self) -> None:
        self.enqueued = self.ended = self.last = -1
        self.first_open = _SEQ_MAX
        self.operation = ""

    def add(self, entry: _Entry) -> None:
        seq = entry.collective_seq_id
        self.last = max(self.last, entry.record_id)
        if seq >= self.enqueued:
            self.enqueued, self.operation = seq, entry.profiling_name
        if entry.retired or entry.state == "completed":
            self.ended = max(self.ended, seq)
        else:
            self.first_open = min(self.first_open, seq)

    def position(self, name: str, size: int) -> Position:
        """Asynchronous collectives overtake: what counts is all before the first that is still open."""
        completed = min(self.ended, self.first_open - 1)
        return Position(name, self.enqueued, completed, _clean(self.operation), size)


def positions(body: bytes) -> tuple[Position, ...]:
    """One position per process group, at most `GROUPS_MAX`, those with open collectives first. Raises `BadTrace`.

    Point-to-point operations are left out: each pair counts them for itself, which says nothing about others.
    """
    if len(body) > TRACE_MAX_BYTES:
        raise BadTrace(f"its trace has more than {TRACE_MAX_BYTES} bytes")
    try:
        trace = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadTrace(f"its trace cannot be read: {str(error)[:120]}") from None
    groups: dict[str, _Group] = {}
    for entry in trace.entries[-_ENTRIES_MAX:]:
        if entry.is_p2p or not entry.process_group or not 0 <= entry.collective_seq_id < _SEQ_MAX:
            continue
        groups.setdefault(_clean(entry.process_group[0]), _Group()).add(entry)
    sizes = _sizes(trace.pg_config)
    chosen = sorted(groups.items(), key=lambda item: (item[1].first_open > item[1].enqueued, -item[1].last))
    return tuple(group.position(name, sizes.get(name, 0)) for name, group in sorted(chosen[:GROUPS_MAX]))


def _sizes(config: Any) -> dict[str, int]:
    """Members by group, where the backend tells them (NCCL does, gloo does not)."""
    found: dict[str, int] = {}
    for name, row in config.items() if isinstance(config, dict) else ():
        ranks = row.get("ranks") if isinstance(row, dict) else None
        if isinstance(ranks, str) and (numbers := ranks.strip("[] ")):
            found[_clean(name)] = min(numbers.count(",") + 1, 2**20)
    return found


def _clean(name: str) -> str:
    """It ends up in records and on terminals."""
    text = name[:_NAME_MAX].encode("utf-8", "replace").decode()
    return "".join(letter if letter.isprintable() else "?" for letter in text)
