"""Checksums of the ranks of this node, told to the monitor as they come: one observation for all ranks of a step.

The monitor compares them: replicas are mostly on other nodes. Checks that come faster than `EVERY_S` are not all told;
what is corrupted stays so, and the next that is told shows it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rankpulse.agent.checkpoints import Bucket
from rankpulse.agent.facts import Fact
from rankpulse.agent.watch import Who, Worker, Workers
from rankpulse.core import checksums
from rankpulse.core.checksums import ROWS_MAX, Row, Told, rows_of
from rankpulse.core.records import CHECKSUMS, RunRow

BURST: Final = 6  # steps of one run at once
EVERY_S: Final = 1.0  # then one in so long


@dataclass(slots=True)
class _Run:
    """What was told of a run: by process the step of its last check. A rank that was started anew begins anew: the
    round of a plain torchrun is for the monitor to tell."""

    told: dict[Who, int] = field(default_factory=dict)
    bucket: Bucket = field(default_factory=lambda: Bucket(BURST, EVERY_S))


@dataclass(slots=True)
class Checksums:
    """One per agent."""

    workers: Workers
    emit: Callable[[Fact], None]
    now: Callable[[], float]
    _runs: dict[RunRow, _Run] = field(default_factory=dict)
    _inc: int = 0

    def look(self, inc: int) -> None:
        """As the slots were read last. `inc`: the incarnation, under which everything is told anew."""
        here: dict[RunRow, list[Worker]] = {}
        for worker in self.workers.table.values():
            if worker.checks is not None:
                here.setdefault(worker.who.run, []).append(worker)
        if inc != self._inc:
            self._inc, self._runs = inc, {}
        for run, ranks in here.items():
            self._tell(run, ranks)
        self._runs = {run: known for run, known in self._runs.items() if run in here}

    def _tell(self, run: RunRow, ranks: list[Worker]) -> None:
        known = self._runs.setdefault(run, _Run())
        here = {(worker.pid, worker.start) for worker in ranks}
        known.told = {who: step for who, step in known.told.items() if who in here}
        for step in sorted({worker.checks.step for worker in ranks if worker.checks is not None}):
            has = [worker for worker in ranks if worker.checks is not None and worker.checks.step == step]
            new = [worker for worker in has if known.told.get((worker.pid, worker.start)) != step]
            if not new or known.bucket.wait_s(self.now()) > 0:
                continue
            known.bucket.take()
            known.told |= {(worker.pid, worker.start): step for worker in new}
            self._emit(run, new, step)

    def _emit(self, run: RunRow, ranks: list[Worker], step: int) -> None:
        rows: list[Row] = []
        for worker in sorted(ranks, key=lambda one: one.who.rank):
            rows += rows_of(worker.who.rank, worker.checks.checks if worker.checks is not None else ())
        who = min(ranks, key=lambda one: one.who.rank)
        for at in range(0, len(rows), ROWS_MAX):
            said = checksums.detail(Told(step, tuple(rows[at : at + ROWS_MAX])))
            self.emit(Fact(CHECKSUMS, run, who.who.rank, who.who.local_rank, who.pid, who.start, said))
