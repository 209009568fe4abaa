"""Holders: parents of trainers that stay when their trainer crashed, so that torchrun sees no failure yet.

Who is held is the kernel's word: the trainer is the holder's child and of the same user.
"""

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rankpulse.agent import messages, proc
from rankpulse.agent.facts import Fact, exit_detail
from rankpulse.agent.log import Log
from rankpulse.agent.proc import Exit
from rankpulse.agent.sock import Garbage, Line, Peer
from rankpulse.agent.torchruns import Torchruns
from rankpulse.core.records import WORKER_EXITED, RunRow

WORD_S: Final = 0.3  # how long an exit that the kernel does not explain waits for the holder's word
_UNPLACED_S: Final = 5.0
_UNATTACHED_S: Final = 1.0  # in which a slot that was just made is found
_UNATTACHED: Final = "before it attached"
_ALONE: Final = "this torchrun does not meet through rankpulse: torchelastic restarts by itself"
_TOLD: Final = "its end is told to the monitor, whose verdict is awaited"


@dataclass(slots=True, eq=False)
class Holder:
    """One holder and its trainer (`child`: pid and start; start 0: it was gone before the agent could look)."""

    peer: Peer
    child: tuple[int, int]
    launcher: tuple[int, int]
    line: Line
    pidfd: int
    seat: messages.Hold
    attached: bool = False  # a slot of its trainer was seen: its end is told by that
    ended: Exit | None = None
    heard: asyncio.Event = field(default_factory=asyncio.Event)


def _no_release(_run_uid: str, _round: int) -> str:
    return ""


@dataclass(slots=True)
class Holders:
    """`released(run_uid, round)`: why the holders of a round shall end, "" while they need not."""

    torchruns: Torchruns
    log: Log
    emit: Callable[[Fact], None]
    released: Callable[[str, int], str] = _no_release
    table: dict[tuple[int, int], Holder] = field(default_factory=dict)  # by its own pid and start

    async def session(self, line: Line, peer: Peer, pidfd: int, hello: Mapping[str, Any]) -> None:
        """Until either side ends it."""
        try:
            said = messages.understand(messages.Hold, dict(hello))
            await self._keep(Holder(peer, _child(peer, said.pid), _launcher(peer), line, pidfd, said))
        finally:
            os.close(pidfd)

    async def _keep(self, holder: Holder) -> None:
        peer, line = holder.peer, holder.line
        older = self.table.get((peer.pid, peer.start))
        if older:
            older.line.close()
        self.table[peer.pid, peer.start] = holder
        line.send({"ok": {}})
        self.tell(holder)
        try:
            while (message := await line.receive()) is not None:
                _name, said = messages.only(message, "ended")
                ended = messages.understand(messages.Ended, said)
                holder.ended = Exit(ended.code, ended.signal)
                holder.heard.set()
                self.tell(holder)
                asyncio.get_running_loop().call_later(_UNATTACHED_S, self._report, holder)
        finally:
            if self.table.get((peer.pid, peer.start)) is holder:
                del self.table[peer.pid, peer.start]

    def tell(self, holder: Holder) -> None:
        """What becomes of it, as far as is known."""
        placed = self.torchruns.placed(holder.launcher)
        if placed and (reason := self.released(placed.run_uid, placed.round)):
            holder.line.send({"release": reason[:500]})
        elif holder.ended is None:
            return
        elif placed:
            holder.line.send({"wait": _TOLD})
        elif holder.launcher in self.torchruns.table:
            holder.line.send({"wait": "its torchrun is about to meet"})
        else:
            asyncio.get_running_loop().call_later(_UNPLACED_S, self._let_go, holder)

    def _let_go(self, holder: Holder) -> None:
        """Its torchrun may only have been about to come back to an agent that had just started."""
        if self.torchruns.placed(holder.launcher):
            self.tell(holder)
        else:
            holder.line.send({"release": _ALONE})

    def _report(self, holder: Holder) -> None:
        """Its trainer ended before it attached, in an import for one: nobody else can tell of that."""
        placed, ended, seat = self.torchruns.placed(holder.launcher), holder.ended, holder.seat
        if holder.attached or not ended or not self.living([holder]) or not placed or not placed.sure:
            return
        if ended.code == 0 or not 0 <= seat.rank < seat.world:
            return
        launcher = f"{holder.launcher[0]}.{holder.launcher[1]}"
        run = RunRow("", "", launcher, seat.world, True, placed.run_uid, placed.round)
        detail = exit_detail(ended, None, None, "", _UNATTACHED, True) | {"unattached": True}
        self.emit(Fact(WORKER_EXITED, run, seat.rank, seat.local_rank, *holder.child, detail))

    def of_round(self, run_uid: str, round_: int) -> list[Holder]:
        launchers = {(one.pid, one.start) for one in self.torchruns.in_round(run_uid, round_)}
        return [holder for holder in self.table.values() if holder.launcher in launchers]

    def release(self, run_uid: str, round_: int, reason: str) -> int:
        """Let the holders of a round end as their trainers did; returns how many were told."""
        return sum(one.line.send({"release": reason[:500]}) for one in self.of_round(run_uid, round_))

    def reassure(self, run_uid: str, round_: int, reason: str) -> None:
        """The verdict is a restart: torchrun is about to stop them."""
        for one in self.of_round(run_uid, round_):
            if one.ended:
                one.line.send({"wait": reason[:500]})

    def end(self, holders: Iterable[Holder]) -> int:
        """Kill those that still live though their torchrun is stopping them: one that is stopped itself would cost it
        all of torchelastic's grace. Returns how many."""
        return sum(proc.kill(one.pidfd) for one in self.living(holders))

    def living(self, holders: Iterable[Holder]) -> list[Holder]:
        return [one for one in holders if self.table.get((one.peer.pid, one.peer.start)) is one]

    def of(self, child: tuple[int, int]) -> Holder | None:
        """The holder of a trainer."""
        return next((one for one in self.table.values() if one.child == child), None)

    def holds(self, child: tuple[int, int]) -> tuple[int, int] | None:
        """Who holds this trainer, which has attached, of one of our rendezvous' rounds; None if nobody does."""
        holder = self.of(child)
        if holder:
            holder.attached = True
        return (holder.peer.pid, holder.peer.start) if holder and self.torchruns.placed(holder.launcher) else None


def _child(peer: Peer, pid: int) -> tuple[int, int]:
    """The trainer, checked with the kernel. Raises `Garbage`. One that is dead and collected cannot be checked."""
    seen, owner = proc.stat(pid), proc.status(pid)
    if seen is None or owner is None:
        return pid, 0
    if seen.ppid != peer.pid or owner.uids != (peer.uid,) * 3:
        raise Garbage(f"hold: process {pid} is not your child, or not of your user")
    return pid, seen.start


def _launcher(peer: Peer) -> tuple[int, int]:
    """The torchrun above a holder; the holder itself where there is none."""
    found = proc.launcher_of(peer.pid)
    return (found.pid, found.start) if found else (peer.pid, peer.start)
