"""What the ranks of this node say of numbers that are not finite: counted, and told to the monitor when it changes.

One observation for all ranks of a run: all-reduce spreads a NaN over a whole job within a step. It does not grow with
the row, and one that comes and goes is told no more often than `EVERY_S`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from rankpulse.agent.checkpoints import Bucket
from rankpulse.agent.facts import Fact
from rankpulse.agent.log import Log
from rankpulse.agent.watch import Who, Worker, Workers
from rankpulse.core import numbers
from rankpulse.core.numbers import FINITE, ROW, Told
from rankpulse.core.records import NON_FINITE, RunRow
from rankpulse.core.slot_numbers import Numbers as Said

BURST: Final = 6  # changes of one run at once
EVERY_S: Final = 5.0  # then one in so long


@dataclass(slots=True)
class _Run:
    """What was told of a run, and how often."""

    told: Told = FINITE
    bucket: Bucket = field(default_factory=lambda: Bucket(BURST, EVERY_S))


@dataclass(slots=True)
class Numbers:
    """One per agent. `inc`: the incarnation, under which everything is told anew."""

    workers: Workers
    emit: Callable[[Fact], None]
    log: Log
    now: Callable[[], float]
    counts: dict[str, int] = field(default_factory=lambda: {"loss": 0, "grad_norm": 0})
    _runs: dict[RunRow, _Run] = field(default_factory=dict)
    _counted: dict[Who, Said] = field(default_factory=dict)
    _inc: int = 0

    def look(self, inc: int) -> None:
        """As the slots were read last."""
        here: dict[RunRow, list[Worker]] = {}
        for worker in self.workers.table.values():
            here.setdefault(worker.who.run, []).append(worker)
        self._count()
        if inc != self._inc:
            self._inc, self._runs = inc, {}
        for run, ranks in here.items():
            self._tell(run, ranks)
        self._runs = {run: known for run, known in self._runs.items() if run in here}

    def samples(self, node: str) -> dict[str, Mapping[tuple[str, ...], float]]:
        """Of the metrics named in `core.catalogue.AGENT`."""
        rows = [worker.numbers.row for worker in self.workers.table.values() if worker.numbers is not None]
        return {
            "rankpulse_agent_non_finite_steps": {(node, what): count for what, count in self.counts.items()},
            "rankpulse_agent_non_finite_row": {(node,): max(rows, default=0)},
        }

    def _tell(self, run: RunRow, ranks: list[Worker]) -> None:
        told = numbers.summed((worker.who.rank, worker.numbers) for worker in ranks)
        known = self._runs.get(run)
        if known is None:
            # an agent that was away meanwhile cannot know that its predecessor told of a row which is over
            known = self._runs[run] = _Run(FINITE if not _had_row(ranks) else Told(bad=1))
        if told == known.told or known.bucket.wait_s(self.now()) > 0:
            return
        known.bucket.take()
        known.told = told
        self._emit(run, ranks, told)

    def _emit(self, run: RunRow, ranks: list[Worker], told: Told) -> None:
        who = next((one for one in ranks if one.who.rank in told.movers), ranks[0])
        self.emit(Fact(NON_FINITE, run, who.who.rank, who.who.local_rank, who.pid, who.start, numbers.detail(told)))
        text = f"{told.words} since step {told.first}, {told.bad} ranks" if told.bad else "all numbers are finite again"
        self.log.say("warning" if told.bad else "info", f"run {run.run_id}: {text}")

    def _count(self) -> None:
        """What came since the last look."""
        table = self.workers.table
        self._counted = {who: said for who, said in self._counted.items() if who in table}
        for who, worker in table.items():
            if worker.numbers is not None:
                before = self._counted.get(who, Said())
                self.counts["loss"] += max(worker.numbers.losses - before.losses, 0)
                self.counts["grad_norm"] += max(worker.numbers.norms - before.norms, 0)
                self._counted[who] = worker.numbers


def _had_row(ranks: list[Worker]) -> bool:
    """Whether a row may have been told of by now."""
    said = [worker.numbers for worker in ranks if worker.numbers is not None]
    return any(one.losses + one.norms >= ROW for one in said)
