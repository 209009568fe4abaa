"""Numbers that are not finite: counted from the slots, and told when it changes, however many ranks and steps."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from agent_bench import Crew, Desk
from support import eventually

from rankpulse.agent.facts import Fact
from rankpulse.agent.numbers import BURST, EVERY_S, Numbers
from rankpulse.core import records
from rankpulse.core.numbers import FINITE, Told, understood
from rankpulse.core.records import RunRow
from rankpulse.core.slot_numbers import LOSS_NAN, NORM_INF
from rankpulse.core.slot_numbers import Numbers as Said
from rankpulse.store.memory import MemoryStore

RUN = RunRow("train", "m", "1.1", 2, True, "u-1", 3)
WELL = Said()


def row(first: int, steps: int = 3, *, what: int = LOSS_NAN) -> Said:
    losses, norms = (steps, 0) if what == LOSS_NAN else (0, steps)
    return Said(steps, first, first - 1, first + steps - 1, what, losses, norms)


class Bench:
    """`Numbers` over workers that the test names, on a clock of its own."""

    def __init__(self) -> None:
        self.now, self.inc, self.said = 100.0, 1, []
        self.facts: list[Fact] = []
        self.table: dict[tuple[int, int], Any] = {}
        log: Any = SimpleNamespace(say=lambda level, text: self.said.append(text))
        workers: Any = SimpleNamespace(table=self.table)
        self.numbers = Numbers(workers, self.facts.append, log, lambda: self.now)

    def looks(self, *ranks: Said | None) -> list[Told | None]:
        """What is told when the ranks say this."""
        for rank, said in enumerate(ranks):
            who = SimpleNamespace(run=RUN, rank=rank, local_rank=rank)
            self.table[10 + rank, 7] = SimpleNamespace(who=who, pid=10 + rank, start=7, numbers=said)
        before = len(self.facts)
        self.numbers.look(self.inc)
        return [understood(fact.detail) for fact in self.facts[before:]]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_is_finite_or_not_handed_over_is_not_told(bench: Bench) -> None:
    assert bench.looks(None, WELL) == []


def test_a_loss_scaler_at_work_is_counted_and_not_told(bench: Bench) -> None:
    assert bench.looks(row(5, 2, what=NORM_INF), row(5, 2, what=NORM_INF)) == []
    assert bench.numbers.counts == {"loss": 0, "grad_norm": 4}


def test_all_ranks_of_a_run_are_told_of_at_once_in_the_name_of_the_first(bench: Bench) -> None:
    assert bench.looks(row(6), row(5, 4), WELL) == [Told(5, 4, LOSS_NAN, (1,), 1, 2, 3)]
    [fact] = bench.facts
    assert (fact.kind, fact.run, fact.rank, fact.pid) == (records.NON_FINITE, RUN, 1, 11)
    assert bench.said == ["run train: loss nan since step 5, 2 ranks"]


def test_a_row_that_goes_on_is_told_once(bench: Bench) -> None:
    assert len(bench.looks(row(5), row(5))) == 1
    for steps in range(4, 100):
        bench.now += 1
        assert bench.looks(row(5, steps), row(5, steps)) == []
    assert bench.looks(WELL, row(5, 100)) == [Told(5, 4, LOSS_NAN, (1,), 1, 1, 2)]
    assert bench.looks(WELL, WELL) == [FINITE]
    assert bench.looks(WELL, WELL) == []


def test_one_that_comes_and_goes_is_told_seldom_and_rightly_in_the_end(bench: Bench) -> None:
    for second in range(1000):
        bench.now += 1
        bench.looks(row(second) if second % 2 else WELL)
    assert len(bench.facts) <= BURST + 1 + 1000 / EVERY_S
    bench.now += EVERY_S
    bench.looks(WELL)
    assert understood(bench.facts[-1].detail) == FINITE


def test_another_incarnation_tells_it_anew(bench: Bench) -> None:
    bench.looks(row(5))
    bench.inc += 1
    assert len(bench.looks(row(5))) == 1


def test_an_agent_that_was_away_when_the_row_ended_says_that_it_is_over(bench: Bench) -> None:
    assert bench.looks(Said(0, -1, 4, 7, 0, 3, 0)) == [FINITE]
    assert bench.looks(Said(0, -1, 4, 7, 0, 3, 0)) == []


def test_what_is_counted_once_is_not_counted_again(bench: Bench) -> None:
    for said in (row(5), row(5, 7), Said(0, -1, 4, 11, 0, 7, 0), WELL, row(1, 2)):  # opened again: counts from nothing
        bench.looks(said)
    assert bench.numbers.counts["loss"] == 9
    bench.table.clear()
    bench.numbers.look(1)
    assert bench.numbers.samples("n1") == {
        "rankpulse_agent_non_finite_steps": {("n1", "loss"): 9, ("n1", "grad_norm"): 0},
        "rankpulse_agent_non_finite_row": {("n1",): 0},
    }


async def test_from_a_real_worker_into_the_store(run_dir: str, crew: Crew) -> None:
    store = MemoryStore(time.monotonic)
    worker, other = crew.job(rank=0), crew.job(rank=1)
    async with Desk(run_dir, store).at_work() as desk:
        await eventually(lambda: _both(desk), 20, "both are watched")
        for n, loss in enumerate(("0.5", "nan", "nan", "inf"), 1):
            worker.tell(f"step {n} {loss}")
            other.tell(f"step {n} 0.5")

        async def told() -> list[Told | None]:
            found = [obs for obs in await desk.observations() if obs.kind == records.NON_FINITE]
            return [understood(obs.detail) for obs in found]

        assert await eventually(told, 20, "it is told") == [Told(2, 1, 3, (0,), 1, 1, 2)]
        row_ = desk.agent._metrics()["rankpulse_agent_non_finite_row"]
        assert row_ == {("n1",): 3}
        worker.tell("step 5 0.25")
        await eventually(lambda: _twice(told), 20, "and that it is over")


async def _both(desk: Desk) -> bool:
    return await desk.ranks() == [0, 1]


async def _twice(told: Any) -> bool:
    return (await told())[1:] == [FINITE]
