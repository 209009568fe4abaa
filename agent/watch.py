"""The workers of this node, each watched through a pidfd: an exit is seen at once, without any timeout."""

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rankpulse.agent import proc, slots
from rankpulse.agent.facts import Fact, Reading, exit_detail, joined_detail, state_class
from rankpulse.agent.launchers import Launchers
from rankpulse.agent.ledger import WorkerRow
from rankpulse.agent.locate import SlotFile
from rankpulse.core import records, slot
from rankpulse.core.identity import Identity, IdentityRefused, understand
from rankpulse.core.records import Order, Seat


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

    def row(self) -> WorkerRow:
        who = self.who
        return WorkerRow(
            self.file.dev, self.file.inode, self.pid, self.start, who.run, who.rank, who.local_rank, self.order_id
        )


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
    table: dict[tuple[int, int], Worker] = field(default_factory=dict)

    def adopt(self, found: slots.Adopted, *, order_id: str = "", known: bool = False) -> str:
        """Watch a process; returns why its identity was refused, or "".

        `known`: an earlier agent told of it already; `order_id`: the order under which that one killed it.
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
        self._replace_older(process.pid, process.start)
        worker = Worker(
            found.file, process.pid, process.start, process.pidfd, who, found.slot.pulse, launcher, order_id=order_id
        )
        self.table[process.pid, process.start] = worker
        self.launchers.watch(launcher, who.run)
        if not known:
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
        last = _read(worker)
        detail = exit_detail(ended, last.ending if last else None, worker.pulse, worker.order_id)
        self.emit(self._fact(records.WORKER_EXITED, worker, detail))
        self.table.pop((worker.pid, worker.start), None)
        self._release(worker)
        self.changed()

    def _release(self, worker: Worker) -> None:
        asyncio.get_running_loop().remove_reader(worker.pidfd)
        os.close(worker.pidfd)
        slots.remove(self.run_dir, worker.file)
        worker.file.close()

    def poll_states(self, now: float) -> None:
        """Tell of processes that were stopped, are traced, hang in the kernel, or go on again. Cheap: 4 Hz."""
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

    def kill(self, order: Order) -> int:
        """SIGKILL the processes that `order` names on this node, and no others; returns how many."""
        return sum(self._kill(order, seat) for seat in order.seats.get(self.node, ()))

    def _kill(self, order: Order, seat: Seat) -> bool:
        worker = self.table.get((seat.pid, seat.start))
        if worker is None or not _concerns(order, seat, worker):
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


def _concerns(order: Order, seat: Seat, worker: Worker) -> bool:
    """The process plays the part in the run that the order thinks it plays."""
    return worker.who.run.run_id == order.run_id and worker.who.rank == seat.rank


def _read(worker: Worker) -> slot.Slot | None:
    try:
        content = slot.read(worker.file.read)
    except slot.SlotTorn:
        return None  # its writer never rests; what it said last still stands
    except slot.SlotRefused as error:
        worker.unreadable = str(error)
        return None
    worker.pulse, worker.unreadable = content.pulse, ""
    return content
