"""What the ranks' flight recorders would show of a stopped machine: nothing else goes to the rules.

Three recorders: NCCL that records when an operation began, NCCL that does not (TORCH_NCCL_ENABLE_TIMING unset), and
gloo, which knows calls and ends only.
"""

from collections.abc import Iterable, Iterator
from random import Random
from typing import Final

from rankpulse.bench.hang.layout import Layout
from rankpulse.bench.hang.machine import Comm, Done, Machine, Rank
from rankpulse.bench.hang.program import P2P
from rankpulse.core import snapshot as s

TIMED: Final = "nccl, started recorded"
UNTIMED: Final = "nccl, started not recorded"
GLOO: Final = "gloo"
OPEN_MAX: Final = 8  # per group: what fits into a few kilobytes of a rank

_TOLD_KINDS: Final = {"tp", "pp", "dp", "ep", "cp"}


def groups(layout: Layout) -> tuple[s.Group, ...]:
    return tuple(s.Group(name, members, _kind(name)) for name, members in layout.groups.items())


def ranks(machine: Machine, recorder: str, sites: bool = True) -> list[s.Rank]:
    """The rows of all ranks."""
    return [_row(machine, rank, recorder, sites) for rank in machine.ranks]


def renew(rows: list[s.Rank], machine: Machine, recorder: str) -> None:
    """The rows of those that were touched since the last time, anew."""
    for number in machine.touched:
        rows[number] = _row(machine, machine.ranks[number], recorder)
    machine.touched.clear()


def _row(machine: Machine, rank: Rank, recorder: str, sites: bool = True) -> s.Rank:
    return s.Rank(rank.number, positions=tuple(_positions(machine, rank, recorder, sites)))


def without(rows: list[s.Rank], share: float, random: Random) -> list[s.Rank]:
    """The same with so many dumps missing, drawn evenly."""
    lost = set(random.sample(range(len(rows)), round(share * len(rows))))
    return [s.Rank(row.rank, dump="no answer") if row.rank in lost else row for row in rows]


def _kind(name: str) -> str:
    kind = name.partition(".")[0]
    return kind if kind in _TOLD_KINDS else "unknown"


def _positions(machine: Machine, rank: Rank, recorder: str, sites: bool) -> Iterator[s.Position]:
    for kind, comm in rank.comms.items():
        entries = _entries(rank, comm, kind)
        told = tuple(op for entry in entries for op in _operations(machine, entry, recorder, sites))
        name = machine.layout.of[rank.number][kind]
        if recorder == GLOO:
            yield s.Position(name, comm.enqueued if kind != "pp" else None, None, None, told)
        else:
            started = comm.started if recorder == TIMED else -1
            yield s.Position(name, comm.enqueued, started, comm.completed, told)


def _entries(rank: Rank, comm: Comm, kind: str) -> Iterable[Done]:
    """The last that ended, and the first of those that have not."""
    waiting = [entry for entry in rank.pending if entry.call.kind == kind]
    return [*comm.last, *[*comm.queue, *waiting][:OPEN_MAX]]


def _operations(machine: Machine, entry: Done, recorder: str, sites: bool) -> Iterator[s.Operation]:
    state = _state(entry, recorder)
    call, site = entry.call, entry.call.site if sites else ""
    if call.what != P2P:
        yield s.Operation(entry.seq, call.op, (call.size,), call.dtype, None, state, site, entry.order)
        return
    for i, (way, side) in enumerate(call.legs):
        peer = machine.peer(entry, side)
        yield s.Operation(entry.seq, way, (call.size,), call.dtype, peer, state, site, entry.order + i)


def _state(entry: Done, recorder: str) -> str:
    if entry.completed:
        return s.COMPLETED
    return s.STARTED if entry.started and recorder == TIMED else s.ENQUEUED
