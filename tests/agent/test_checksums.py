"""Checksums of a node's ranks: told once as they come, one observation for all ranks of a step."""

from types import SimpleNamespace
from typing import Any

import pytest

from rankpulse.agent.checksums import BURST, EVERY_S, Checksums
from rankpulse.agent.facts import Fact
from rankpulse.core import records
from rankpulse.core.checksums import Row, Told, understood
from rankpulse.core.records import RunRow
from rankpulse.core.slot_checks import Check, Checks

RUN = RunRow("train", "m", "1.1", 2, True, "u-1", 3)


class Bench:
    """`Checksums` over workers that the test names, on a clock of its own."""

    def __init__(self) -> None:
        self.now, self.inc, self.pid = 100.0, 1, 10
        self.facts: list[Fact] = []
        self.table: dict[tuple[int, int], Any] = {}
        workers: Any = SimpleNamespace(table=self.table)
        self.checksums = Checksums(workers, self.facts.append, lambda: self.now)

    def looks(self, *steps: int | None) -> list[Told | None]:
        """What is told when the last checks of the ranks are of these steps."""
        for rank, step in enumerate(steps):
            who = SimpleNamespace(run=RUN, rank=rank, local_rank=rank)
            said = None if step is None else Checks(step, (Check(7, 2, step + 100),))
            self.table[self.pid + rank, 7] = SimpleNamespace(who=who, pid=self.pid + rank, start=7, checks=said)
        before = len(self.facts)
        self.checksums.look(self.inc)
        return [understood(fact.detail) for fact in self.facts[before:]]

    def restarted(self) -> None:
        """All ranks are processes of another round of a plain torchrun, which the agent knows no number of."""
        self.table.clear()
        self.pid += 100


def told(step: int, *ranks: int) -> Told:
    return Told(step, tuple(Row(rank, Check(7, 2, step + 100)) for rank in ranks))


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_step_is_told_once_for_all_ranks_that_have_it(bench: Bench) -> None:
    assert bench.looks(None, None) == []
    assert bench.looks(10, 10) == [told(10, 0, 1)]
    assert bench.looks(10, 10) == []
    assert bench.facts[0].kind == records.CHECKSUMS
    assert bench.facts[0].run == RUN


def test_who_is_later_is_told_of_later_and_nobody_twice(bench: Bench) -> None:
    assert bench.looks(10, None) == [told(10, 0)]
    assert bench.looks(20, 10) == [told(10, 1), told(20, 0)]
    assert bench.looks(20, 20) == [told(20, 1)]


def test_checks_that_come_too_fast_are_not_all_told_and_the_newest_is(bench: Bench) -> None:
    for step in range(1000):
        bench.now += 0.01
        bench.looks(step, step)
    assert len(bench.facts) <= BURST + 1 + 10 / EVERY_S
    bench.now += EVERY_S
    assert bench.looks(1000, 1000) == [told(1000, 0, 1)]


def test_another_incarnation_tells_it_anew(bench: Bench) -> None:
    bench.looks(10, 10)
    bench.inc += 1
    assert bench.looks(10, 10) == [told(10, 0, 1)]


def test_a_rank_that_was_started_anew_is_told_of_anew(bench: Bench) -> None:
    """It has come to the same step again, from a checkpoint."""
    assert bench.looks(10, 10) == [told(10, 0, 1)]
    bench.restarted()
    assert bench.looks(None, None) == []
    assert bench.looks(10, 10) == [told(10, 0, 1)]


def test_the_rows_of_many_ranks_are_told_in_parts(bench: Bench) -> None:
    assert [len(one.rows) for one in bench.looks(*[5] * 100) if one is not None] == [64, 36]
