"""Lemons and trend of the live ledger: worked out when it changes, and the same as a review of all of it."""

import msgspec
import pytest
from silence_world import SilenceWorld

from rankpulse.core import ledger_lines
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.core.ledger import day_of
from rankpulse.core.ledger_book import LedgerBook
from rankpulse.core.ledger_scores import LedgerScores
from rankpulse.core.lemons import Score
from rankpulse.core.review import Told, review
from rankpulse.core.show_ledger import ledger

KEYS = Keys("c")
BEGIN = 1_790_000_000 // 86400 * 86400.0


def day(number: int, hours: float = 24.0, nodes: int = 40) -> r.LedgerDay:
    s = hours * 3600
    shares = {f"n{n}": r.NodeShare(s, 4 * s) for n in range(nodes)}
    at = BEGIN + number * 86400 + s
    return r.LedgerDay(
        day=day_of(at - 1), origin="o", at=at, node_s=nodes * s, gpu_s=4 * nodes * s, run_s=s, nodes=shares
    )


def failure(number: int, at_day: float, node: str, gpu: int = 2) -> r.LedgerEntry:
    at = BEGIN + at_day * 86400
    return r.LedgerEntry(
        id=f"i{number}", klass="gpu_fault", component="gpu", blame="machine", outcome="recovered", action="restart",
        opened_at=at, closed_at=at + 60, run_uid="job", ranks=160, node=node, nodes=(node,), gpu=gpu,
    )  # fmt: skip


class Ledger:
    def __init__(self) -> None:
        self.book = LedgerBook(KEYS)
        self.scores = LedgerScores(self.book)

    def has(self, *records: r.Record) -> "Ledger":
        for record in records:
            self.book.seen(ledger_lines.key_of(KEYS, record), record)
        return self

    def reviewed(self) -> tuple[Score, ...]:
        told = Told([one for _, one in self.book.live_entries()], [one for _, one in self.book.live_days()])
        found = review(told, 0.0, BEGIN + 100 * 86400)
        return (*found.nodes, *found.gpus)


FAILURES = (
    *(failure(n, 1.0 + n, "n7") for n in range(6)),
    failure(6, 2.5, "n3", 0),
    failure(7, 8.5, "n3", 1),
    failure(8, 9.5, "n4", 7),  # of a GPU that no day has shown
)


def same(ours: tuple[Score, ...], theirs: tuple[Score, ...]) -> None:
    assert [(one.name, one.failures, one.lemon) for one in ours] == [(o.name, o.failures, o.lemon) for o in theirs]
    assert [(one.p, one.q, one.ratio) for one in ours] == [pytest.approx((o.p, o.q, o.ratio)) for o in theirs]


def test_one_node_and_one_gpu_of_it_stand_out() -> None:
    seen = Ledger().has(*map(day, range(12)), *FAILURES).scores.picture()
    assert [(one.name, one.lemon) for one in seen.nodes] == [("n7", True), ("n3", False), ("n4", False)]
    assert (seen.gpus[0].name, seen.gpus[0].lemon) == ("n7/2", True)
    assert seen.trend is not None
    assert (seen.trend.failures, seen.trend.verdict) == (9, "constant")
    assert seen.counted_at == BEGIN + 12 * 86400


def test_it_stays_the_same_as_a_review_while_days_grow_and_go() -> None:
    ledger = Ledger().has(*map(day, range(3)), *FAILURES)
    for number in range(3, 12):
        for hours in (6.0, 13.5, 24.0):
            ledger.has(day(number, hours))
            same((*ledger.scores.picture().nodes, *ledger.scores.picture().gpus), ledger.reviewed())
    ledger.book.gone(ledger_lines.key_of(KEYS, day(0)))
    ledger.book.gone(ledger_lines.key_of(KEYS, FAILURES[0]))
    same((*ledger.scores.picture().nodes, *ledger.scores.picture().gpus), ledger.reviewed())
    ledger.book.relisted()
    assert ledger.scores.picture() == ((), (), None, 0.0)


def test_nothing_is_worked_out_because_somebody_asks() -> None:
    ledger = Ledger().has(*map(day, range(3)), *FAILURES[:3])
    first = ledger.scores.picture()
    assert ledger.scores.picture() is first
    ledger.has(msgspec.structs.replace(day(2), at=BEGIN + 3 * 86400 - 1))
    assert ledger.scores.picture() is not first


def test_a_fleet_in_which_nothing_failed_has_no_lemon_and_too_few_failures_for_a_trend() -> None:
    seen = Ledger().has(day(0)).scores.picture()
    assert (seen.nodes, seen.gpus) == ((), ())
    assert seen.trend is not None
    assert seen.trend.verdict == "too_few"


def test_sums_that_are_counters_do_not_fall_by_a_hair() -> None:
    """Days that go into the past are added in another order; to Prometheus a counter that fell began anew."""
    world = SilenceWorld()
    for number, s in enumerate((0.1, 0.2)):
        told = r.LedgerDay(day=f"2026-01-0{number + 1}", origin="o", at=1.0, node_s=s, gpu_s=s, run_s=s, unseen_s=s)
        world.put(world.keys.ledger_day(told.day, "o"), told)
    shown = ledger(world.engine)
    assert [shown[name] for name in ("node_s", "gpu_s", "run_s", "unseen_s")] == [0.3] * 4
