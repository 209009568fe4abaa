"""The workers of this node, each watched through a pidfd: an exit is seen at once, without any timeout."""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec

from rankpulse.agent import proc, slots
from rankpulse.agent.facts import Fact, Reading, exit_detail, joined_detail, state_class
from rankpulse.agent.launchers import Launchers
from rankpulse.agent.ledger import WorkerRow
from rankpulse.agent.locate import SlotFile
from rankpulse.agent.proc import Exit
from rankpulse.core import records, slot
from rankpulse.core.identity import Identity, IdentityRefused, understand
from rankpulse.core.records import Member, Order, RunRow, Seat
from rankpulse.core.slot_checks import Checks
from rankpulse.core.slot_numbers import Numbers

Who: TypeAlias = tuple[int, int]  # a process: pid and start
_ENDED_MAX: Final = 1024
_WORD_S: Final = 0.3  # how long an exit that the kernel does not explain waits for the holder's word


@dataclass(slots=True, eq=False)
class Worker:
    """One verified training process and its slot."""

    file: SlotFile
    pid: int
    start: int
    pidfd: int
    who: Identity
    pulse: slot.Pulse
    launcher: tuple[int, int]
    state: str = "?"
    said: str = "run"
    waiting_since: float | None = None
    order_id: str = ""
    unreadable: str = ""
    numbers: Numbers | None = None  # as it handed them over last, None: none yet
    checks: Checks | None = None  # likewise
    holder: Who | None = None
    updating: bool = False  # it was inside an optimizer's step when its slot was read last

    def row(self) -> WorkerRow:
        file, who = self.file, self.who
        return WorkerRow(
            file.dev, file.inode, self.pid, self.start, who.run, who.rank, who.local_rank, self.order_id, self.holder
        )


class NotYet(Exception):
    """The slot claims a run of our rendezvous, and its torchrun is not known yet: ask again."""


def plain(_launcher: Who, run: RunRow, _owner: int) -> RunRow | None:
    """The run of a worker that does not meet through us: what it claims of it is not believed."""
    return msgspec.structs.replace(run, run_uid="", round=-1)


def _unheld(_child: Who) -> Who | None:
    return None


def _no_word(_child: Who) -> Exit | None:
    return None


@dataclass(slots=True)
class Workers:
    """All workers of the node. `emit` receives every fact as it happens; `changed` is called when the set changes."""

    node: str
    run_dir: str
    emit: Callable[[Fact], None]
    changed: Callable[[], None]
    launchers: Launchers
    machine: str = ""  # its boot id
    per_user: int = 256  # a beat must stay small, whatever a user starts
    vouch: Callable[[Who, RunRow, int], RunRow | None] = plain  # launcher, claim, owner; None: not known yet
    holds: Callable[[Who], Who | None] = _unheld  # who holds a trainer
    word: Callable[[Who], Exit | None] = _no_word  # its holder's word on how it ended
    table: dict[tuple[int, int], Worker] = field(default_factory=dict)
    _ended: deque[Worker] = field(default_factory=lambda: deque(maxlen=_ENDED_MAX))

    def adopt(self, found: slots.Adopted, *, past: WorkerRow | None = None, patient: bool = False) -> str:
        """Watch a process; returns why its identity was refused, or "".

        `past`: an earlier agent told of it already. `patient`: raise `NotYet` while its torchrun is not known.
        """
        process, identity = found.process, found.slot.identity
        if len([worker for worker in self.table.values() if worker.file.uid == found.file.uid]) >= self.per_user:
            _close(found)
            return f"user {found.file.uid} has {self.per_user} watched workers on this node already"
        parent = proc.launcher_of(process.parent)
        launcher = (parent.pid, parent.start) if parent else (0, 0)
        named = f"{launcher[0]}.{launcher[1]}" if parent else ""
        try:
            who = understand(
                identity,
                node=self.node,
                pid=process.pid,
                start=process.start,
                launcher=named,
                owner=found.file.uid,
                machine=self.machine,
            )
        except IdentityRefused as error:
            _close(found)
            return str(error)
        run = past.run if past and past.run.run_uid else self.vouch(launcher, who.run, found.file.uid)
        if run is None and patient and not proc.has_exited(process.pidfd):
            raise NotYet
        who = who._replace(run=run or msgspec.structs.replace(who.run, run_uid="", round=-1))
        self._replace_older(process.pid, process.start)
        worker = Worker(
            found.file, process.pid, process.start, process.pidfd, who, found.slot.pulse, launcher,
            order_id=past.order_id if past else "", holder=past.holder if past else None,
        )  # fmt: skip
        self.table[process.pid, process.start] = worker
        self.launchers.watch(launcher, who.run)
        if past is None:
            self.emit(self._fact(records.WORKER_JOINED, worker, joined_detail(identity)))
        asyncio.get_running_loop().add_reader(process.pidfd, self._exited, worker)
        self.changed()
        return ""

    def _replace_older(self, pid: int, start: int) -> None:
        """A process that replaced its program (exec) and attached anew speaks through its new slot."""
        older = self.table.pop((pid, start), None)
        if older:
            self._release(older)

    def _exited(self, worker: Worker) -> None:
        ended = proc.exit_of(worker.pidfd, worker.pid, worker.start)
        loop = asyncio.get_running_loop()
        if ended == Exit() and self._held(worker):  # an older kernel, and its holder was quicker: it will say
            loop.remove_reader(worker.pidfd)
            loop.call_later(_WORD_S, self._tell_exit, worker, ended)
        else:
            self._tell_exit(worker, ended)

    def _tell_exit(self, worker: Worker, ended: Exit) -> None:
        if self.table.get((worker.pid, worker.start)) is not worker:
            return  # the agent has ended meanwhile: the next one tells
        if ended == Exit():
            ended = self.word((worker.pid, worker.start)) or ended
        last = _read(worker)
        held = self._held(worker)
        detail = exit_detail(ended, last.ending if last else None, worker.pulse, worker.order_id, held=held)
        self.emit(self._fact(records.WORKER_EXITED, worker, detail))
        self.table.pop((worker.pid, worker.start), None)
        self._ended.append(worker)
        self._release(worker)
        self.changed()

    def _release(self, worker: Worker) -> None:
        asyncio.get_running_loop().remove_reader(worker.pidfd)
        os.close(worker.pidfd)
        slots.remove(self.run_dir, worker.file)
        worker.file.close()

    def poll_states(self, now: float) -> None:
        """Tell of processes that were stopped, are traced, hang in the kernel, or go on again. Cheap: 2 Hz."""
        for worker in list(self.table.values()):
            seen = proc.stat(worker.pid)
            if seen is None or seen.start != worker.start:
                continue  # gone: the pidfd tells
            worker.state = seen.state
            worker.waiting_since = (worker.waiting_since or now) if seen.state == "D" else None
            waiting_s = now - worker.waiting_since if worker.waiting_since else 0.0
            kind = state_class(worker.said, seen.state, waiting_s)
            if kind != worker.said and not proc.has_exited(worker.pidfd):
                worker.said = kind
                self.emit(self._fact(records.WORKER_STATE, worker, {"state": seen.state}))

    def readings(self) -> list[Reading]:
        """Every rank as it is now. A slot that cannot be read any more keeps its last pulse."""
        result = []
        for worker in self.table.values():
            _read(worker)
            who = worker.who
            result.append(
                Reading(who.run, who.rank, who.local_rank, worker.pid, worker.start, worker.state, worker.pulse)
            )
        return sorted(result, key=lambda one: (one.run.run_id, one.rank, one.pid))

    def _held(self, worker: Worker) -> bool:
        """Whether a holder of it lives, also one that has not come back to this agent yet."""
        worker.holder = self.holds((worker.pid, worker.start)) or worker.holder
        return worker.holder is not None and alive(worker.holder)

    def rows(self) -> tuple[WorkerRow, ...]:
        for worker in self.table.values():
            worker.holder = self.holds((worker.pid, worker.start)) or worker.holder
        return tuple(worker.row() for worker in self.table.values())

    def of_round(self, run_uid: str, round_: int) -> list[Worker]:
        """Those of one round of our rendezvous."""
        return [w for w in self.table.values() if run_uid and (w.who.run.run_uid, w.who.run.round) == (run_uid, round_)]

    def of_seats(self, order: Order) -> list[Worker]:
        """Those that the order names."""
        named = ((seat, self.table.get((seat.pid, seat.start))) for seat in order.seats.get(self.node, ()))
        return [worker for seat, worker in named if worker and _concerns(order, seat.rank, worker)]

    def ended_of(self, order: Order) -> dict[int, bool]:
        """Ranks of the order's round that are known here to have ended: whether within an optimizer's step."""
        round_ = (order.run_uid, order.round)
        gone = [seat.rank for seat in order.seats.get(self.node, ()) if (seat.pid, seat.start) not in self.table]
        named = {(seat.rank, seat.pid, seat.start) for seat in order.seats.get(self.node, ())}
        found = dict.fromkeys(gone, False)
        for one in self._ended:
            who = one.who
            if (who.run.run_uid, who.run.round) == round_ or (who.rank, one.pid, one.start) in named:
                found[who.rank] = one.updating
        return found

    def seats_of_round(self, order: Order) -> list[Seat]:
        """Those of the order's round, also where the order does not name them."""
        found = self.of_round(order.run_uid, order.round)
        return [Seat(one.who.rank, one.who.local_rank, one.pid, one.start) for one in found]

    def busy(self, launcher: Who) -> bool:
        """Whether workers of that launcher live."""
        return any(worker.launcher == launcher for worker in self.table.values())

    def mark(self, order: Order) -> None:
        """The workers of the order's round end at this order, however they do."""
        for worker in self.of_round(order.run_uid, order.round):
            worker.order_id = order.order_id

    def blame(self, pid: int, start: int, order_id: str) -> None:
        """That worker, if we watch it, ends at this order, however it does."""
        worker = self.table.get((pid, start))
        if worker:
            worker.order_id = order_id

    def kill(self, order: Order, seats: Iterable[Seat | Member] | None = None) -> int:
        """SIGKILL processes that `order` names on this node, and no others; returns how many. `seats`: only these."""
        chosen = order.seats.get(self.node, ()) if seats is None else seats
        return sum(self._kill(order, seat) for seat in chosen)

    def _kill(self, order: Order, seat: Seat | Member) -> bool:
        worker = self.table.get((seat.pid, seat.start))
        if worker is None or not _concerns(order, seat.rank, worker):
            return False
        owner = proc.status(worker.pid)
        if owner is None or owner.uids != (worker.file.uid,) * 3:
            return False
        before, worker.order_id = worker.order_id, order.order_id
        if not proc.kill(worker.pidfd):
            worker.order_id = before
            return False
        return True

    def unreadable(self) -> Iterable[tuple[str, str]]:
        """(path, reason) of slots of living processes that cannot be read at present."""
        return [(f"{w.file.directory}/{w.file.name}", w.unreadable) for w in self.table.values() if w.unreadable]

    def of_uid(self, uid: int) -> list[Worker]:
        return [worker for worker in self.table.values() if uid in (0, worker.file.uid)]

    def close(self) -> None:
        """Stop watching; the slots stay for the next agent."""
        for worker in self.table.values():
            asyncio.get_running_loop().remove_reader(worker.pidfd)
            os.close(worker.pidfd)
            worker.file.close()
        self.table.clear()
        self.launchers.close()

    @staticmethod
    def _fact(kind: str, worker: Worker, detail: dict[str, Any]) -> Fact:
        who = worker.who
        return Fact(kind, who.run, who.rank, who.local_rank, worker.pid, worker.start, detail)


def _close(found: slots.Adopted) -> None:
    os.close(found.process.pidfd)
    found.file.close()


def alive(who: Who) -> bool:
    """Whether that very process lives."""
    seen = proc.stat(who[0])
    return seen is not None and seen.start == who[1] and seen.state not in "ZX"


def _concerns(order: Order, rank: int, worker: Worker) -> bool:
    """The process plays the part in the run that the order thinks it plays."""
    run = worker.who.run
    if run.run_uid and (run.run_uid, run.round) != (order.run_uid, order.round):
        return False
    return run.run_id == order.run_id and worker.who.rank == rank


def _read(worker: Worker) -> slot.Slot | None:
    try:
        content = slot.read(worker.file.read)
    except slot.SlotTorn:
        return None  # its writer never rests; what it said last still stands
    except slot.SlotRefused as error:
        worker.unreadable = str(error)
        return None
    worker.pulse, worker.unreadable = content.pulse, ""
    worker.numbers = content.numbers or worker.numbers  # none: it may be just at it
    worker.checks = content.checks or worker.checks
    worker.updating = content.updating
    return content
