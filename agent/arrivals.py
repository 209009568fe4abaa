"""What a scan found becomes watched workers, or observations about workers that are gone or were refused."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from rankpulse.agent import proc, slots
from rankpulse.agent.facts import Fact, exit_detail
from rankpulse.agent.ledger import Ledger, WorkerRow
from rankpulse.agent.locate import SlotFile
from rankpulse.agent.log import Log
from rankpulse.agent.slots import Adopted, Departed, Finding, Refused
from rankpulse.agent.watch import NotYet, Workers, alive
from rankpulse.core import records
from rankpulse.core.identity import IdentityRefused, understand
from rankpulse.core.records import RunRow

_REFUSALS_PER_MINUTE: Final = 20  # told; the rest is only counted: any user can make such files without end
UNWATCHED: Final = "died while no agent watched"
REBOOTED: Final = "the machine restarted"


_PATIENCE_S: Final = 5.0  # for a torchrun to come back to an agent that started again


def _plain(run: RunRow, _owner: int) -> RunRow:
    return msgspec.structs.replace(run, run_uid="", round=-1)


@dataclass(slots=True)
class Arrivals:
    """`past`: what the agent before this one watched."""

    workers: Workers
    emit: Callable[[Fact], None]
    log: Log
    boot_id: str
    past: Ledger | None = None
    vouch_dead: Callable[[RunRow, int], RunRow] = _plain  # of a worker that was never seen alive; its owner
    refused: int = 0
    _rows: dict[tuple[int, int], WorkerRow] = field(default_factory=dict)
    _later: list[tuple[Adopted, WorkerRow | None, float]] = field(default_factory=list)
    _told_since: float = 0.0
    _told: int = 0

    def __post_init__(self) -> None:
        if self.past:
            self._rows = {(row.dev, row.inode): row for row in self.past.workers}

    def take(self, findings: list[Finding], now: float) -> None:
        """One finding that cannot be dealt with does not cost the others."""
        self._try_again(now)
        for finding in findings:
            try:
                self._take(finding, now)
            except Exception as error:  # whatever a slot makes us stumble over
                self.log.say("error", f"a slot could not be dealt with: {type(error).__name__}: {error}")

    def _take(self, finding: Finding, now: float) -> None:
        if isinstance(finding, Adopted):
            self._adopt(finding, now)
        elif isinstance(finding, Departed):
            self._departed(finding, now)
        else:
            self._refuse(finding, now)

    def settle_past(self) -> None:
        """After the first scan: tell of what the earlier agent watched and is not here any more."""
        same_boot = self.past is not None and self.past.boot_id == self.boot_id
        for row in self._rows.values():
            if not (same_boot and _lives(row)):
                note, held = (UNWATCHED, _is_held(row)) if same_boot else (REBOOTED, False)
                detail = exit_detail(proc.Exit(), None, None, row.order_id, note, held)
                self.emit(_exited(row, detail))
        self._rows.clear()
        if self.past:
            self.workers.launchers.resume(self.past.launchers, same_boot)

    def _adopt(self, found: Adopted, now: float) -> None:
        row = self._row_of(found.file, found.process.pid, found.process.start)
        self._watch(found, row, now, now + _PATIENCE_S)

    def _watch(self, found: Adopted, row: WorkerRow | None, now: float, until: float) -> None:
        """A worker may be seen before its torchrun has come (back) to this agent: it is put off for a while."""
        path = f"{self.workers.run_dir}/{found.file.directory}/{found.file.name}"
        try:
            reason = self.workers.adopt(found, past=row, patient=now < until)
        except NotYet:
            self._later.append((found, row, until))
            return
        if reason:
            self._refuse(Refused(path, reason), now)

    def _try_again(self, now: float) -> None:
        later, self._later = self._later, []
        for found, row, until in later:
            self._watch(found, row, now, until)

    def close(self) -> None:
        """What was put off is left for the next agent."""
        for found, _row, _until in self._later:
            os.close(found.process.pidfd)
            found.file.close()
        self._later.clear()

    def _row_of(self, file: SlotFile, pid: int, start: int) -> WorkerRow | None:
        """What the earlier agent knew of this process; an inode number may have been given to a new file."""
        row = self._rows.get((file.dev, file.inode))
        if row is None or self.past is None or self.past.boot_id != self.boot_id:
            return None
        if row.pid != pid or (start and row.start != start):
            return None
        return self._rows.pop((file.dev, file.inode))

    def _departed(self, gone: Departed, now: float) -> None:
        row = self._row_of(gone.file, gone.dead.pid, gone.dead.start)
        if row is None:
            try:
                who = understand(
                    gone.slot.identity,
                    node=self.workers.node,
                    pid=gone.dead.pid,
                    start=gone.dead.start,
                    launcher="",
                    owner=gone.file.uid,
                    machine=self.boot_id,
                )
            except IdentityRefused as error:
                path = f"{self.workers.run_dir}/{gone.file.directory}/{gone.file.name}"
                self._refuse(Refused(path, str(error)), now)
                return
            who = who._replace(run=self.vouch_dead(who.run, gone.file.uid))
            row = WorkerRow(
                gone.file.dev,
                gone.file.inode,
                gone.dead.pid,
                gone.dead.start,
                who.run,
                who.rank,
                who.local_rank,
            )
        if row.holder is None:  # it may have said so already
            holder = self.workers.holds((gone.dead.pid, gone.dead.start))
            row = msgspec.structs.replace(row, holder=holder)
        detail = exit_detail(gone.dead.exit, gone.slot.ending, gone.slot.pulse, row.order_id, UNWATCHED, _is_held(row))
        self.emit(_exited(row, detail))
        slots.remove(self.workers.run_dir, gone.file)

    def _refuse(self, finding: Refused, now: float) -> None:
        self.refused += 1
        if now - self._told_since >= 60.0:
            self._told_since, self._told = now, 0
        self._told += 1
        if self._told <= _REFUSALS_PER_MINUTE:
            self.log.say("warning", f"slot {finding.path!r} refused: {finding.reason}")
            detail = {"path": finding.path[-256:].encode("utf-8", "replace").decode(), "reason": finding.reason[:256]}
            self.emit(Fact(records.SLOT_REFUSED, detail=detail))


def _exited(row: WorkerRow, detail: dict[str, records.Scalar]) -> Fact:
    return Fact(records.WORKER_EXITED, row.run, row.rank, row.local_rank, row.pid, row.start, detail)


def _lives(row: WorkerRow) -> bool:
    return alive((row.pid, row.start))


def _is_held(row: WorkerRow) -> bool:
    return row.holder is not None and alive(row.holder)
