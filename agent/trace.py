"""torch's flight recorder, read: how far a rank is in each of its process groups. Pure; the bytes are untrusted.

What can be relied on, also with gloo: `process_group[0]` (the group's name, the same on all members) and `retired`.
`pg_id` and `pg_status` are numbered by each process for itself, and gloo leaves `state` at "scheduled".
"""

from typing import Any, Final, NamedTuple

import msgspec

from rankpulse.core import flight_recorder
from rankpulse.core import snapshot as told
from rankpulse.core.evidence import GROUPS_MAX, Position
from rankpulse.core.flight_recorder import Dump, Entry
from rankpulse.core.snapshot import COMPLETED, Group, Operation

TRACE_MAX_BYTES: Final = 4 * 1024 * 1024
ENDED_KEPT: Final = 6  # operations of a group that have ended: two ranks that are a few apart can be compared
MEMBERS_MAX: Final = 4096  # of all groups together; a group of everybody needs no list
_ENTRIES_MAX: Final = 20_000
_NAME_MAX: Final = 64
_SEQ_MAX: Final = 2**53
_RANK_MAX: Final = 2**20


class BadTrace(ValueError):
    """The bytes are no trace; the text says why."""


class Trace(NamedTuple):
    """`rows`: for the store; `positions`, with what is open: for a snapshot; `groups`: as far as members are named."""

    rows: tuple[Position, ...] = ()
    positions: tuple[told.Position, ...] = ()
    groups: tuple[Group, ...] = ()


_decoder: Final = msgspec.json.Decoder(Dump)


class _Group:
    """What the entries of one group say."""

    def __init__(self) -> None:
        self.enqueued = self.ended = self.last = -1
        self.first_open = _SEQ_MAX
        self.operation = ""

    def add(self, entry: Entry) -> None:
        seq = entry.collective_seq_id
        self.last = max(self.last, entry.record_id)
        if seq >= self.enqueued:
            self.enqueued, self.operation = seq, entry.profiling_name
        if entry.retired or entry.state == COMPLETED:
            self.ended = max(self.ended, seq)
        else:
            self.first_open = min(self.first_open, seq)

    def position(self, name: str, size: int) -> Position:
        """Asynchronous collectives overtake: what counts is all before the first that is still open."""
        completed = min(self.ended, self.first_open - 1)
        return Position(name, self.enqueued, completed, _clean(self.operation), size)


def read(body: bytes) -> Trace:
    """What a trace says. Raises `BadTrace`."""
    dump = _decode(body)
    groups: dict[str, Group] = {}
    flight_recorder.learn(groups, dump)
    found = flight_recorder.positions_of(dump, groups, ENDED_KEPT)
    return Trace(_rows(dump), tuple(map(_cleaned, found)), _named(groups))


def positions(body: bytes) -> tuple[Position, ...]:
    """One position per process group, at most `GROUPS_MAX`, those with open collectives first. Raises `BadTrace`.

    Point-to-point operations are left out: each pair counts them for itself, which says nothing about others.
    """
    return _rows(_decode(body))


def _decode(body: bytes) -> Dump:
    """With what is nonsense left out."""
    if len(body) > TRACE_MAX_BYTES:
        raise BadTrace(f"its trace has more than {TRACE_MAX_BYTES} bytes")
    try:
        dump = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadTrace(f"its trace cannot be read: {str(error)[:120]}") from None
    dump.entries = [entry for entry in dump.entries[-_ENTRIES_MAX:] if _sound(entry)]
    return dump


def _sound(entry: Entry) -> bool:
    seq = entry.p2p_seq_id if entry.is_p2p else entry.collective_seq_id
    return bool(entry.process_group) and 0 <= seq < _SEQ_MAX and abs(entry.record_id) < _SEQ_MAX


def _rows(dump: Dump) -> tuple[Position, ...]:
    groups: dict[str, _Group] = {}
    for entry in dump.entries:
        if not entry.is_p2p:
            groups.setdefault(entry.process_group[0], _Group()).add(entry)
    sizes = _sizes(dump.pg_config)
    chosen = sorted(groups.items(), key=lambda item: (item[1].first_open > item[1].enqueued, -item[1].last))
    told = {_clean(name): group for name, group in sorted(chosen[:GROUPS_MAX])}
    return tuple(group.position(name, sizes.get(name, 0)) for name, group in told.items())


def _sizes(config: Any) -> dict[str, int]:
    """Members by group, where the backend tells them (NCCL does, gloo does not)."""
    found: dict[str, int] = {}
    for name, row in config.items() if isinstance(config, dict) else ():
        ranks = row.get("ranks") if isinstance(row, dict) else None
        if isinstance(ranks, str) and (numbers := ranks.strip("[] ")):
            found[_clean(name)] = min(numbers.count(",") + 1, _RANK_MAX)
    return found


def _named(groups: dict[str, Group]) -> tuple[Group, ...]:
    """The smallest first, as many as there is room for."""
    found: list[Group] = []
    room = MEMBERS_MAX
    for group in sorted(groups.values(), key=lambda one: len(one.members)):
        room -= len(group.members)
        if room >= 0 and len(found) < GROUPS_MAX:
            found.append(msgspec.structs.replace(group, name=_clean(group.name)))
    return tuple(found)


def _cleaned(position: told.Position) -> told.Position:
    operations = tuple(map(_bounded, position.open))
    return msgspec.structs.replace(position, group=_clean(position.group), open=operations)


def _bounded(op: Operation) -> Operation:
    """Numbers that JSON and its readers hold."""
    peer = op.peer if op.peer is not None and 0 <= op.peer < _RANK_MAX else None
    sizes = tuple(min(max(size, -1), _SEQ_MAX) for size in op.sizes[:8])
    return msgspec.structs.replace(op, op=_clean(op.op), dtype=_clean(op.dtype), peer=peer, sizes=sizes)


def _clean(name: str) -> str:
    """It ends up in records and on terminals."""
    text = name[:_NAME_MAX].encode("utf-8", "replace").decode()
    return "".join(letter if letter.isprintable() else "?" for letter in text)
