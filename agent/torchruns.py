"""The torchruns of this node that use our rendezvous: who they are, which round they are in, whether they live.

A torchrun is known by its process, which the kernel names; it stays known while its connection is away, and over
starts of the agent. What it is in is the agent's own knowledge: a worker's word about its run is measured by it.
"""

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from rankpulse.agent import proc
from rankpulse.agent.seats import SeatRow
from rankpulse.agent.sock import Line, Peer
from rankpulse.core.rendezvous import Me, Met

_PER_USER_MAX: Final = 64  # of users other than root and the agent's own
_MAX: Final = 512


@dataclass(slots=True, eq=False)
class Torchrun:
    """One torchrun. `me`: while it waits for a round; `met`: the last round it got; `line`: its open conversation."""

    pid: int
    start: int
    owner: int
    pidfd: int = -1
    run_uid: str = ""
    join: int = 0  # of `met`
    met: Met | None = None
    me: Me | None = None
    leaving: tuple[str, str] | None = None  # outcome and reason, not yet in the store
    left: bool = False
    dead: str = ""  # how it ended
    sure: bool = True  # False: its own word about its round, not yet compared with the store
    line: Line | None = None
    watching: bool = False  # this conversation has said which round it is in
    said: str = ""  # the last reason for waiting it was told
    said_at: float = float("-inf")
    pushed: int = 0  # the round that this conversation was told to leave
    stopping: int = 0  # the last round whose workers it said it is stopping
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    retry_at: float = 0.0
    attempts: int = 0

    @property
    def launcher(self) -> str:
        return f"{self.pid}.{self.start}"

    @property
    def round(self) -> int:
        """The last round it was in, 0: none."""
        return self.met.round if self.met else 0

    @property
    def established(self) -> bool:
        """It is in a round and asks for no other."""
        return self.met is not None and self.me is None and not self.left and self.leaving is None

    def send(self, message: dict[str, object]) -> bool:
        return self.line is not None and self.line.send(message)

    def row(self) -> SeatRow:
        return SeatRow(self.pid, self.start, self.owner, self.run_uid, self.join, self.met, self.leaving, self.left)

    def begin_anew(self) -> None:
        """It has left; now it asks for a place in another run."""
        self.run_uid, self.join, self.met, self.left, self.leaving = "", 0, None, False, None
        self.stopping, self.sure = 0, True


def _nothing() -> None:
    return None


@dataclass(slots=True)
class Torchruns:
    """By (pid, start). `changed`: what should be written down changed; `died`: one of them ended."""

    changed: Callable[[], None] = _nothing
    died: Callable[[], None] = _nothing
    table: dict[tuple[int, int], Torchrun] = field(default_factory=dict)

    def take(self, peer: Peer, pidfd: int) -> Torchrun | None:
        """The torchrun that speaks; None when its user has too many. The pidfd is ours from here on."""
        known = self.table.get((peer.pid, peer.start))
        if known:
            os.close(pidfd)
            return known
        mine = sum(one.owner == peer.uid for one in self.table.values())
        if mine >= (_MAX if peer.uid in (0, os.geteuid()) else _PER_USER_MAX):
            os.close(pidfd)
            return None
        torchrun = Torchrun(peer.pid, peer.start, peer.uid)
        self._watch(torchrun, pidfd)
        return torchrun

    def resume(self, rows: Iterable[SeatRow]) -> None:
        """Go on with those that an earlier agent of this boot knew."""
        for row in rows:
            torchrun = Torchrun(row.pid, row.start, row.owner, run_uid=row.run_uid, join=row.join, met=row.met)
            torchrun.leaving, torchrun.left = row.leaving, row.left
            pidfd = _open(row.pid, row.start)
            if pidfd >= 0:
                self._watch(torchrun, pidfd)
            elif row.run_uid and not row.left:
                torchrun.dead = "ended while no agent watched"
                self.table[row.pid, row.start] = torchrun

    def rows(self) -> tuple[SeatRow, ...]:
        return tuple(one.row() for one in self.table.values() if one.run_uid and one.sure)

    def placed(self, launcher: tuple[int, int]) -> Torchrun | None:
        """The torchrun that launched, if it is in a round."""
        found = self.table.get(launcher)
        return found if found and found.met else None

    def in_round(self, run_uid: str, round_: int) -> list[Torchrun]:
        return [one for one in self.in_run(run_uid) if one.round == round_]

    def in_run(self, run_uid: str) -> list[Torchrun]:
        return [one for one in self.table.values() if one.met and one.met.run_uid == run_uid]

    def hang_up(self, torchrun: Torchrun, line: Line) -> None:
        """This conversation is over. One that never joined anything is forgotten; all others are watched on."""
        if torchrun.line is not line:
            return
        torchrun.line, torchrun.watching, torchrun.said, torchrun.pushed = None, False, "", 0
        if not torchrun.run_uid and torchrun.me is None and torchrun.leaving is None and not torchrun.dead:
            self.drop(torchrun)

    def drop(self, torchrun: Torchrun) -> None:
        self.table.pop((torchrun.pid, torchrun.start), None)
        self._unwatch(torchrun)
        if torchrun.line:
            torchrun.line.close()
        self.changed()

    def close(self) -> None:
        for torchrun in self.table.values():
            self._unwatch(torchrun)
        self.table.clear()

    def _watch(self, torchrun: Torchrun, pidfd: int) -> None:
        torchrun.pidfd = pidfd
        self.table[torchrun.pid, torchrun.start] = torchrun
        asyncio.get_running_loop().add_reader(pidfd, self._exited, torchrun)

    def _unwatch(self, torchrun: Torchrun) -> None:
        if torchrun.pidfd >= 0:
            asyncio.get_running_loop().remove_reader(torchrun.pidfd)
            os.close(torchrun.pidfd)
            torchrun.pidfd = -1

    def _exited(self, torchrun: Torchrun) -> None:
        """Its process is gone (its connection alone says nothing)."""
        asking = torchrun.me is not None  # its joiner may be on its way to the store
        torchrun.dead = _words(proc.exit_of(torchrun.pidfd, torchrun.pid, torchrun.start))
        self._unwatch(torchrun)
        torchrun.me = None
        torchrun.moved.set()
        if torchrun.line:
            torchrun.line.close()
        if torchrun.left or not (torchrun.run_uid or asking):
            self.drop(torchrun)
        self.died()


def _open(pid: int, start: int) -> int:
    """A pidfd of that very process, -1 when it is gone."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return -1
    seen = proc.stat(pid)
    if seen is None or seen.start != start or proc.has_exited(pidfd):
        os.close(pidfd)
        return -1
    return pidfd


def _words(ended: proc.Exit) -> str:
    if ended.signal is not None:
        return f"was killed by signal {ended.signal}"
    return "ended" if ended.code is None else f"ended with code {ended.code}"
