"""The parents of the workers. When a launcher is gone nobody restarts its workers: the job has ended here."""

import asyncio
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from rankpulse.agent import proc
from rankpulse.agent.facts import Fact
from rankpulse.agent.ledger import LauncherRow
from rankpulse.core import records
from rankpulse.core.records import RunRow

_MAX: Final = 512
_RUNS_MAX: Final = 16


@dataclass(slots=True, eq=False)
class _Watched:
    pid: int
    start: int
    pidfd: int
    runs: list[RunRow]


@dataclass(slots=True)
class Launchers:
    """Launchers by (pid, start). `busy` tells which runs still have live workers on this node."""

    emit: Callable[[Fact], None]
    changed: Callable[[], None] = lambda: None
    busy: Callable[[], set[RunRow]] = set
    table: dict[tuple[int, int], _Watched] = field(default_factory=dict)

    def watch(self, launcher: tuple[int, int], run: RunRow) -> None:
        """Watch the launcher of `run`; nothing happens when its parent cannot be seen."""
        pid, start = launcher
        known = self.table.get(launcher)
        if known:
            if run in known.runs:
                known.runs.remove(run)
            known.runs = [*known.runs, run][-_RUNS_MAX:]
            return
        if pid == 0 or len(self.table) >= _MAX:
            return
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            return
        seen = proc.stat(pid)
        if seen is None or seen.start != start:
            os.close(pidfd)
            return
        watched = self.table[launcher] = _Watched(pid, start, pidfd, [run])
        asyncio.get_running_loop().add_reader(pidfd, self._exited, watched)

    def resume(self, rows: Iterable[LauncherRow], same_boot: bool) -> None:
        """Go on with the launchers that an earlier agent watched; those that are gone are told now."""
        for row in rows:
            if not row.runs:
                continue
            for run in row.runs:
                if same_boot:
                    self.watch((row.pid, row.start), run)
            if (row.pid, row.start) not in self.table:
                self._tell(row.pid, row.start, [row.runs[-1]], proc.Exit())

    def _exited(self, watched: _Watched) -> None:
        ended = proc.exit_of(watched.pidfd, watched.pid, watched.start)
        asyncio.get_running_loop().remove_reader(watched.pidfd)
        os.close(watched.pidfd)
        self.table.pop((watched.pid, watched.start), None)
        busy = self.busy()
        self._tell(
            watched.pid, watched.start, [run for run in watched.runs[:-1] if run in busy] + watched.runs[-1:], ended
        )
        self.changed()

    def _tell(self, pid: int, start: int, runs: list[RunRow], ended: proc.Exit) -> None:
        detail = {"code": ended.code, "signal": ended.signal}
        for run in runs:
            self.emit(Fact(records.LAUNCHER_EXITED, run, pid=pid, start=start, detail=detail))

    def rows(self) -> tuple[LauncherRow, ...]:
        return tuple(LauncherRow(one.pid, one.start, tuple(one.runs)) for one in self.table.values())

    def close(self) -> None:
        for watched in self.table.values():
            asyncio.get_running_loop().remove_reader(watched.pidfd)
            os.close(watched.pidfd)
        self.table.clear()
