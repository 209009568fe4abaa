"""Runs the programs of all ranks until nothing can move any more, and keeps what a flight recorder would.

Each rank has a host that calls operations and a device that works them off in order. Operations that run beside the
rest have a queue per group, as communicators have a stream. A collective ends when every member has begun it with the
same operation, size and type; a send when it meets its receive. What comes of a fault is not written anywhere: it
emerges.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rankpulse.bench.hang.layout import Layout
from rankpulse.bench.hang.program import COLLECTIVE, P2P, SYNC, WAIT, Call, Program

KEPT = 3  # of each group, ended ones that a dump still shows


@dataclass(slots=True, eq=False)
class Done:
    """One call of one rank, as the flight recorder keeps it."""

    rank: int
    order: int
    seq: int
    call: Call
    group: str
    started: bool = False
    completed: bool = False
    left: int = 0  # legs of a batch that have not met their counterpart


@dataclass(frozen=True)
class Fault:
    """What goes wrong. `at` is a place in the program of `rank`; nothing here is ever shown to a rule."""

    kind: str
    rank: int
    at: int
    other: int = -1  # the far end of a link
    call: Call | None = None  # what is called instead, of a mismatch


@dataclass(slots=True)
class Comm:
    """What one rank has in one group."""

    enqueued: int = -1
    started: int = -1
    completed: int = -1
    queue: deque[Done] = field(default_factory=deque)
    last: deque[Done] = field(default_factory=lambda: deque(maxlen=KEPT))  # that completed
    sends: dict[int, int] = field(default_factory=dict)  # legs so far, by peer: the how manieth meets the how manieth
    recvs: dict[int, int] = field(default_factory=dict)
    p2p: int = -1  # counts batches


class Rank:
    __slots__ = (
        "beside", "called", "comms", "device", "host", "limit", "main", "number", "pending", "program", "stuck_host",
    )  # fmt: skip

    def __init__(self, number: int, program: Program) -> None:
        self.number, self.program = number, program
        self.host = self.device = self.called = 0
        self.limit = len(program)  # the host calls nothing from here on, for now
        self.stuck_host = False
        self.comms: dict[str, Comm] = {}  # by kind of group
        self.pending: deque[Done] = deque()  # called, not yet reached by the device
        self.main: Done | None = None  # what the device stands in
        self.beside: dict[str, int] = {}  # by kind: called to run beside, not ended

    @property
    def ended(self) -> bool:
        return self.device >= len(self.program)


class Machine:
    """`blocking`: the host waits for every operation that it does not run beside, as with gloo."""

    def __init__(
        self, layout: Layout, programs: Sequence[Program], fault: Fault | None, run_ahead: int, blocking: bool = False
    ) -> None:
        self.layout, self.fault, self.blocking = layout, fault, blocking
        self.run_ahead = 1 if blocking else run_ahead
        self.touched: set[int] = set()  # ranks of which a dump would say something new, since somebody emptied this
        self.ranks = [Rank(r, programs[layout.stage(r)]) for r in range(layout.size)]
        self._met: dict[tuple[str, int], list[Done]] = {}
        self._legs: dict[tuple[str, int, int, int], Done] = {}
        self._ready: deque[int] = deque(range(layout.size))
        self._queued = [True] * layout.size
        if fault is not None:
            self._break(fault)

    def advance(self, share: float, held: Iterable[int]) -> None:
        """Until the hosts of `held` are so far in their programs, and all others where they cannot go on without."""
        for number in held:
            rank = self.ranks[number]
            rank.limit = int(share * len(rank.program))
        self._again()
        self.run()

    def fail(self, fault: Fault) -> None:
        """From here on without limits and with this fault. Its rank must not have come to it."""
        self.fault = fault
        self._break(fault)
        for rank in self.ranks:
            rank.limit = len(rank.program)
        self._again()

    def _again(self) -> None:
        self._ready = deque(range(len(self.ranks)))
        self._queued = [True] * len(self.ranks)

    def run(self) -> None:
        """Until nothing moves."""
        while self._ready:
            number = self._ready.popleft()
            self._queued[number] = False
            rank = self.ranks[number]
            while self._host(rank) | self._device(rank):
                self.touched.add(number)

    # --- the host

    def _host(self, rank: Rank) -> bool:
        """Call what can be called. Returns whether anything was."""
        before = rank.host
        program, groups = rank.program, self.layout.of[rank.number]
        while rank.host < rank.limit and not rank.stuck_host:
            if self._is_held(rank):
                break
            call = program[rank.host]
            if call.what == SYNC and (rank.device < rank.host or rank.main is not None):
                break
            if call.what in (COLLECTIVE, P2P) and call.kind in groups:
                self._enqueue(rank, call, groups[call.kind])
            rank.host += 1
        return rank.host != before

    def _is_held(self, rank: Rank) -> bool:
        fault = self.fault
        if fault is not None and fault.rank == rank.number and fault.kind == "host" and rank.host >= fault.at:
            rank.stuck_host = True
            return True
        return rank.host - rank.device >= self.run_ahead

    def _enqueue(self, rank: Rank, call: Call, group: str) -> None:
        comm = rank.comms.setdefault(call.kind, Comm())
        if call.what == P2P:
            comm.p2p += 1
            seq = comm.p2p
        else:
            comm.enqueued += 1
            seq = comm.enqueued
        entry = Done(rank.number, rank.called, seq, call, group)
        rank.called += max(1, len(call.legs))
        rank.pending.append(entry)

    # --- the device

    def _device(self, rank: Rank) -> bool:
        """Work off what was called. Returns whether anything moved."""
        moved = False
        while rank.device < rank.host and self._work(rank):
            moved = True
        return moved

    def _work(self, rank: Rank) -> bool:
        fault = self.fault
        if fault is not None and fault.rank == rank.number and fault.kind == "gpu" and rank.device >= fault.at:
            return False
        call = rank.program[rank.device]
        if rank.main is not None:
            if not rank.main.completed:
                return False
            rank.main = None
        elif call.what == WAIT:
            if rank.beside.get(call.kind, 0):
                return False
        elif call.what in (COLLECTIVE, P2P) and call.kind in self.layout.of[rank.number]:
            entry = rank.pending.popleft()
            if call.beside:
                rank.beside[call.kind] = rank.beside.get(call.kind, 0) + 1
            self._submit(rank, entry)
            if not call.beside and not entry.completed:
                rank.main = entry
                return False
        rank.device += 1
        return True

    def _submit(self, rank: Rank, entry: Done) -> None:
        comm = rank.comms[entry.call.kind]
        comm.queue.append(entry)
        if len(comm.queue) == 1:
            self._start(entry, comm)

    def _start(self, entry: Done, comm: Comm) -> None:
        entry.started = True
        self.touched.add(entry.rank)
        if entry.call.what == P2P:
            self._meet_legs(entry, comm)
            return
        comm.started = entry.seq
        members = self.layout.groups[entry.group]
        here = self._met.setdefault((entry.group, entry.seq), [])
        here.append(entry)
        if len(here) == len(members) and self._is_sound(here) and not self._is_cut(entry, here):
            del self._met[entry.group, entry.seq]
            for one in here:
                self._complete(one)

    def _meet_legs(self, entry: Done, comm: Comm) -> None:
        entry.left = len(entry.call.legs)
        for way, side in entry.call.legs:
            peer = self.peer(entry, side)
            counts = comm.sends if way == "send" else comm.recvs
            nth = counts[peer] = counts.get(peer, -1) + 1
            ends = (entry.rank, peer) if way == "send" else (peer, entry.rank)
            there = self._legs.get((entry.group, *ends, nth))
            if there is None:
                self._legs[(entry.group, *ends, nth)] = entry
            elif _fits(entry, there) and not self._is_cut(entry, [entry, there]):
                del self._legs[(entry.group, *ends, nth)]
                for one in (there, entry):
                    one.left -= 1
                if not there.left:
                    self._complete(there)
        if not entry.left:
            self._complete(entry)

    def peer(self, entry: Done, side: int) -> int:
        members = self.layout.groups[entry.group]
        return members[members.index(entry.rank) + side]

    def _complete(self, entry: Done) -> None:
        rank = self.ranks[entry.rank]
        comm = rank.comms[entry.call.kind]
        entry.completed = True
        self.touched.add(entry.rank)
        comm.last.append(entry)
        if entry.call.what == COLLECTIVE:
            comm.completed = entry.seq
        comm.queue.popleft()
        if entry.call.beside:
            rank.beside[entry.call.kind] -= 1
        if comm.queue:
            self._start(comm.queue[0], comm)
        if not self._queued[rank.number]:
            self._queued[rank.number] = True
            self._ready.append(rank.number)

    # --- faults

    def _break(self, fault: Fault) -> None:
        rank = self.ranks[fault.rank]
        if fault.kind == "skip":
            rank.program = rank.program[: fault.at] + rank.program[fault.at + 1 :]
        elif fault.kind == "mismatch" and fault.call is not None:
            rank.program = [*rank.program[: fault.at], fault.call, *rank.program[fault.at + 1 :]]

    def _is_sound(self, here: list[Done]) -> bool:
        first = here[0].call
        return all((c.op, c.size, c.dtype) == (first.op, first.size, first.dtype) for c in (one.call for one in here))

    def _is_cut(self, entry: Done, here: list[Done]) -> bool:
        """Whether it would have to pass the dead link: between neighbours in the ring of its group, or of a pair."""
        fault = self.fault
        if fault is None or fault.kind != "link":
            return False
        if self.ranks[fault.rank].device < fault.at:
            return False
        if entry.call.what == P2P:
            return {one.rank for one in here} == {fault.rank, fault.other}
        members = self.layout.groups[entry.group]
        if fault.rank not in members or fault.other not in members:
            return False
        apart = abs(members.index(fault.rank) - members.index(fault.other))
        return apart in (1, len(members) - 1)


def _fits(one: Done, other: Done) -> bool:
    return (one.call.size, one.call.dtype) == (other.call.size, other.call.dtype)
