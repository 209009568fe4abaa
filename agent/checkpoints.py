"""What jobs say of their checkpoints on the agent's socket, on its way to the monitor: bounded, whatever a job does.

Who speaks is the kernel's word; what run and round it is of, the agent's own knowledge. A sender does not wait for an
answer and may have closed its end already. Told are a few per minute and process; of what comes in between the newest
of each kind is kept, with how many it stands for, so that nothing is missing from what the monitor counts.
"""

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from rankpulse.agent import messages
from rankpulse.agent.facts import Fact
from rankpulse.agent.log import Log
from rankpulse.agent.sock import Garbage, Line, Peer
from rankpulse.agent.watch import Who, Workers
from rankpulse.core.records import CHECKPOINT, RunRow, Scalar
from rankpulse.core.words import printable

PATIENCE_S: Final = 10.0  # for a process that speaks before its slot was found
BURST: Final = 10  # at once, of one process
EVERY_S: Final = 5.0  # then one of it in so long
USER_BURST, USER_EVERY_S = 60, 1.0  # the same for all processes of a user
STRANGERS_MAX: Final = 64  # processes of a user that are not known yet
_LOOK_S: Final = 0.25


@dataclass(slots=True)
class Bucket:
    """`burst` at once, then one every `every_s`."""

    burst: int
    every_s: float
    _spent: float = 0.0  # how many are not made up for yet
    _at: float = 0.0

    def wait_s(self, now: float) -> float:
        """Seconds until there is one more; 0 when there is."""
        self._spent = max(self._spent - (now - self._at) / self.every_s, 0.0)
        self._at = now
        return max(self._spent + 1 - self.burst, 0.0) * self.every_s

    def take(self) -> None:
        self._spent += 1

    def full(self, now: float) -> bool:
        return self.wait_s(now) == 0.0 and self._spent == 0.0


@dataclass(slots=True, eq=False)
class _Teller:
    """One process. `seat`: its run, rank and local rank, once it is known."""

    who: Who
    uid: int
    since: float
    seat: tuple[RunRow, int, int] | None = None
    waiting: dict[str, dict[str, Scalar]] = field(default_factory=dict)  # by event, the newest last
    bucket: Bucket = field(default_factory=lambda: Bucket(BURST, EVERY_S))
    due: asyncio.TimerHandle | None = None


@dataclass(slots=True)
class Checkpoints:
    """One per agent."""

    workers: Workers
    emit: Callable[[Fact], None]
    log: Log
    now: Callable[[], float]
    _tellers: dict[Who, _Teller] = field(default_factory=dict)
    _users: dict[int, Bucket] = field(default_factory=dict)

    async def session(self, line: Line, peer: Peer, pidfd: int, hello: Mapping[str, Any]) -> None:
        """One message: the first line is all of it."""
        os.close(pidfd)
        self._hear(peer, messages.news(dict(hello)))
        line.send({"ok": {}})

    def look(self) -> None:
        """The workers changed. One that spoke before it was known may be known now; what one that has ended said last
        is told at once, before its successor says anything."""
        for teller in list(self._tellers.values()):
            ended = self._place(teller) and teller.who not in self.workers.table
            if ended:
                self._emit_all(teller)
            if ended or teller.waiting:
                self._tell(teller)

    def close(self) -> None:
        """What is held back is told now: it is of processes that may be gone when the next agent comes."""
        for teller in self._tellers.values():
            if teller.due is not None:
                teller.due.cancel()
            if self._place(teller):
                self._emit_all(teller)
        self._tellers.clear()

    def _hear(self, peer: Peer, news: messages.CheckpointNews) -> None:
        teller = self._of(peer)
        detail: dict[str, Scalar] = msgspec.to_builtins(news)
        event = str(detail["event"])
        before = teller.waiting.pop(event, None)  # the newest goes to the end of the line
        times = before["times"] if before is not None else 0
        detail["times"] = (times if isinstance(times, int) else 0) + 1
        for name in detail.keys() & {"reason", "place"}:
            detail[name] = printable(detail[name])
        teller.waiting[event] = detail
        self._tell(teller)

    def _of(self, peer: Peer) -> _Teller:
        who = (peer.pid, peer.start)
        if who not in self._tellers:
            strangers = Counter(one.uid for one in self._tellers.values() if one.seat is None)
            if strangers[peer.uid] >= STRANGERS_MAX:
                raise Garbage("checkpoint: too many processes of this user that are not watched")
            self._tellers[who] = _Teller(who, peer.uid, self.now())
        return self._tellers[who]

    def _place(self, teller: _Teller) -> bool:
        """Whether it is known whose word it is: remembered also when its process has ended."""
        worker = self.workers.table.get(teller.who)
        if worker is not None:
            teller.seat = (worker.who.run, worker.who.rank, worker.who.local_rank)
        return teller.seat is not None

    def _tell(self, teller: _Teller) -> None:
        """As much as may be told now; the rest when it may."""
        if teller.due is not None:
            teller.due.cancel()
            teller.due = None
        now = self.now()
        if not self._place(teller):
            self._await_place(teller, now)
            return
        user = self._users.setdefault(teller.uid, Bucket(USER_BURST, USER_EVERY_S))
        while teller.waiting:
            wait_s = max(teller.bucket.wait_s(now), user.wait_s(now))
            if wait_s > 0:
                self._later(teller, wait_s)
                return
            teller.bucket.take()
            user.take()
            self._emit(teller)
        if teller.bucket.full(now) or teller.who not in self.workers.table:
            self._forget(teller)
        else:
            self._later(teller, EVERY_S)

    def _await_place(self, teller: _Teller, now: float) -> None:
        if now - teller.since < PATIENCE_S:
            self._later(teller, _LOOK_S)
            return
        self._forget(teller)
        text = f"process {teller.who[0]} tells of its checkpoints and is not watched: it must call attach() first"
        self.log.change("checkpoints of strangers", "warning", text)

    def _later(self, teller: _Teller, wait_s: float) -> None:
        teller.due = asyncio.get_running_loop().call_later(wait_s, self._tell, teller)

    def _forget(self, teller: _Teller) -> None:
        self._tellers.pop(teller.who, None)
        now = self.now()
        self._users = {uid: bucket for uid, bucket in self._users.items() if not bucket.full(now)}

    def _emit_all(self, teller: _Teller) -> None:
        while teller.waiting:
            self._emit(teller)

    def _emit(self, teller: _Teller) -> None:
        """The oldest of what waits."""
        assert teller.seat is not None
        detail = teller.waiting.pop(next(iter(teller.waiting)))
        run, rank, local_rank = teller.seat
        self.emit(Fact(CHECKPOINT, run, rank, local_rank, *teller.who, detail))
