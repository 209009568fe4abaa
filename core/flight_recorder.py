"""torch's own flight recorder dumps, of as many ranks as there are, as a snapshot. Pure; what is in them is untrusted.

What can be relied on, also with gloo: `process_group[0]`, the same on all members, and `retired`; gloo leaves `state`
at "scheduled". Members of groups are told by NCCL alone. Ranks that are members and left no dump are told as such.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from rankpulse.core.snapshot import COMPLETED, ENQUEUED, RANKS_MAX, STARTED, Group, Operation, Position, Rank, Snapshot

OPEN_MAX: Final = 256  # entries kept of one group
_KINDS: Final = (
    ("tp", "tp|tensor"),
    ("pp", "pp|pipe"),
    ("ep", "ep|expert"),
    ("cp", "cp|context"),
    ("dp", "dp|data|fsdp"),
)
_ARROW: Final = re.compile(r"(\d+)\s*(->|<-)\s*(\d+)")


class Entry(msgspec.Struct):
    process_group: list[str]
    record_id: int = 0
    collective_seq_id: int = -1
    p2p_seq_id: int = -1
    profiling_name: str = ""
    input_sizes: list[list[int]] | None = None
    input_dtypes: list[str] | None = None
    state: str | None = ""
    retired: bool = False
    is_p2p: bool = False


class Dump(msgspec.Struct):
    entries: list[Entry] = []
    pg_config: Any = None
    host_name: str = ""


class NothingRead(ValueError):
    """None of the dumps could be read; it says why."""


def snapshot_of(dumps: Iterable[tuple[int, object]]) -> Snapshot:
    """The snapshot of a job, from what each rank dumped. A dump that is none makes its rank one without.

    One after the other, so that only one need be in memory: with its stacks a dump has megabytes. Raises NothingRead.
    """
    unread: list[str] = []
    groups: dict[str, Group] = {}
    ranks: dict[int, Rank] = {}
    named: set[int] = set()
    for rank, raw in dumps:
        named.add(rank)
        dump = _read(rank, raw, unread)
        if dump is not None:
            learn(groups, dump)
            found = positions_of(dump, groups)
            ranks[rank] = Rank(rank, node=dump.host_name, positions=found, dump="" if found else "empty")
    if not ranks:
        raise NothingRead(unread[0] if unread else "there is none")
    named.update(range(max(named) + 1), *(group.members for group in groups.values()))
    mute = [Rank(rank, dump="no dump") for rank in sorted(named - ranks.keys())]
    told = [ranks[rank] for rank in sorted(ranks)]
    return Snapshot(ranks=tuple([*told, *mute][:RANKS_MAX]), groups=tuple(groups.values()), unread=tuple(unread[:64]))


def _read(rank: int, raw: object, unread: list[str]) -> Dump | None:
    if isinstance(raw, str):  # in words why there is nothing
        unread.append(f"the dump of rank {rank}: {raw[:120]}")
        return None
    try:
        return msgspec.convert(raw, Dump, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        unread.append(f"the dump of rank {rank}: {str(error)[:120]}")
        return None


def learn(groups: dict[str, Group], dump: Dump) -> None:
    """The members of groups, as this rank has them."""
    config = dump.pg_config if isinstance(dump.pg_config, dict) else {}
    for name, row in config.items():
        if not isinstance(row, dict) or str(name) in groups:
            continue
        numbers = re.findall(r"\d{1,9}", str(row.get("ranks", "")))[:RANKS_MAX]
        members = tuple(sorted(set(map(int, numbers))))
        if members and all(member < RANKS_MAX for member in members):
            groups[str(name)] = Group(str(name), members, _kind(str(row.get("desc", ""))))


def _kind(text: str) -> str:
    return next((kind for kind, words in _KINDS if re.search(rf"(^|[_\W])({words})", text, re.IGNORECASE)), "unknown")


def positions_of(dump: Dump, groups: Mapping[str, Group], ended: int = 1) -> tuple[Position, ...]:
    """How far it is in each of its groups, with what is open and the last `ended` that are not any more."""
    entries: dict[str, list[Entry]] = defaultdict(list)
    for entry in dump.entries:
        if entry.process_group:
            entries[entry.process_group[0]].append(entry)
    return tuple(_position(name, rows, groups.get(name), ended) for name, rows in entries.items())


def _position(name: str, rows: list[Entry], group: Group | None, kept: int) -> Position:
    """Asynchronous collectives overtake: what counts as ended is all before the first that is still open."""
    calls = [row for row in rows if not row.is_p2p]
    opened = [row for row in rows if not _ended(row)]
    seqs = [row.collective_seq_id for row in calls]
    first = min((row.collective_seq_id for row in calls if not _ended(row)), default=None)
    ended = max((row.collective_seq_id for row in calls if _ended(row)), default=-1)
    last = [row for row in calls if _ended(row)][-kept:]
    begun = [row.collective_seq_id for row in calls if row.state in (STARTED, COMPLETED)]
    return Position(
        name,
        enqueued=max(seqs, default=-1),
        started=max(begun) if any(row.state == STARTED for row in calls) else None,
        completed=ended if first is None else min(ended, first - 1),
        open=tuple(_operation(row, group) for row in [*last, *opened[-OPEN_MAX:]]),
    )


def _ended(row: Entry) -> bool:
    return row.retired or row.state == COMPLETED


def _operation(row: Entry, group: Group | None) -> Operation:
    name = row.profiling_name.partition(":")[2] or row.profiling_name
    state = COMPLETED if _ended(row) else STARTED if row.state == STARTED else ENQUEUED
    arrow = _ARROW.search(name) if row.is_p2p else None
    peer = int(arrow.group(3)) if arrow else None
    if peer is not None and group is not None and peer < len(group.members):
        peer = group.members[peer]  # written by its place in the group
    return Operation(
        row.p2p_seq_id if row.is_p2p else row.collective_seq_id,
        name.split()[0] if name.split() else "",
        tuple(number for size in (row.input_sizes or ())[:4] for number in size),
        ",".join((row.input_dtypes or ())[:2]),
        peer,
        state,
        order=row.record_id,
    )
