"""The ledger's sums while it grows are those that are made anew of all that it holds, whatever comes and goes."""

import time
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.core.ledger_book import LedgerBook
from rankpulse.core.ledger_sums import Totals, summed

KEYS = Keys("c")
AT = 1_796_000_000.0


def entry(number: int, lost_s: float = 5.0) -> r.LedgerEntry:
    return r.LedgerEntry(
        id=f"i0001-{number:05d}", klass="gpu_fault", component="gpu", blame="machine", outcome="recovered",
        action="restart", opened_at=AT + number * 60, closed_at=AT + number * 60 + 30,
        run_uid=f"run-{number % 3}", ranks=8, lost_s={"stop": lost_s},
    )  # fmt: skip


def day(number: int, seconds: float, runs: int = 2, origin: str = "o1") -> r.LedgerDay:
    rows = {f"run-{run}": r.RunShare("job", seconds, 8 * seconds, 1.0, 2.0) for run in range(runs)}
    name = f"2026-{1 + number // 28:02d}-{1 + number % 28:02d}"
    return r.LedgerDay(day=name, origin=origin, at=AT + number * 86400, gpu_s=8 * seconds, run_s=seconds, runs=rows)


def put(book: LedgerBook, *records: r.Record) -> None:
    for one in records:
        if isinstance(one, r.LedgerOrigin):
            book.seen(KEYS.ledger_origin(), one)
        elif isinstance(one, r.LedgerEntry):
            book.seen(KEYS.ledger_entry(one.closed_at, one.id), one)
        elif isinstance(one, r.LedgerDay):
            book.seen(KEYS.ledger_day(one.day, one.origin), one)
        elif isinstance(one, r.LedgerPast):
            book.seen(KEYS.ledger_past(one.origin), one)


def anew(book: LedgerBook) -> Totals:
    entries = (one for _, one in book.live_entries())
    return summed(book.pasts.values(), entries, (one for _, one in book.live_days()))


def figures(totals: Totals) -> Iterator[float]:
    yield from (totals.node_s, totals.gpu_s, totals.run_s, totals.unseen_s)
    for counter in (totals.failures, totals.lost_s, totals.lost_gpu_s):
        yield from (float(value) for _, value in sorted(counter.items()) if value)
    for uid, run in sorted(totals.runs.items()):
        yield from (float(uid[-1]), run.run_s, run.gpu_s, float(run.failures), float(sum(run.lost_s.values())))


NUMBER = st.integers(0, 9)
HAPPENS = st.one_of(
    st.tuples(st.just("entry"), NUMBER, st.floats(0, 100)),
    st.tuples(st.just("day"), NUMBER, st.floats(0, 86400)),
    st.tuples(st.just("other day"), NUMBER, st.floats(0, 86400)),
    st.tuples(st.just("entry gone"), NUMBER, st.just(0.0)),
    st.tuples(st.just("day gone"), NUMBER, st.just(0.0)),
    st.tuples(st.just("let go"), NUMBER, st.just(0.0)),
    st.tuples(st.just("past gone"), NUMBER, st.just(0.0)),
    st.tuples(st.just("begun anew"), NUMBER, st.just(0.0)),
)


def happens(book: LedgerBook, what: str, number: int, value: float) -> None:
    if what == "entry":
        put(book, entry(number, value))
    elif what == "day":
        put(book, day(number, value))
    elif what == "other day":
        put(book, day(number, value, origin="o2"))
    elif what == "entry gone":
        book.gone(KEYS.ledger_entry(entry(number).closed_at, entry(number).id))
    elif what == "day gone":
        book.gone(KEYS.ledger_day(day(number, 0).day, "o1"))
    elif what == "let go":
        upto = book.name(KEYS.ledger_entry(entry(number).closed_at, entry(number).id))
        put(book, r.LedgerPast(origin="o1", at=0.0, entries_upto=upto, days_upto=day(number, 0).day, gpu_s=7.0))
    elif what == "past gone":
        book.gone(KEYS.ledger_past("o1"))
    else:
        book.relisted()
        put(book, r.LedgerOrigin(origin=f"o{1 + number % 2}", at=0.0))


@given(st.lists(HAPPENS, max_size=30))
@settings(max_examples=100, deadline=None)
def test_sums_that_grow_are_those_made_anew(story: list[tuple[str, int, float]]) -> None:
    book = LedgerBook(KEYS)
    put(book, r.LedgerOrigin(origin="o1", at=0.0))
    for what, number, value in story:
        happens(book, what, number, value)
        assert list(figures(book.totals())) == pytest.approx(list(figures(anew(book)))), (what, number)
        for run in ("run-0", "run-1", "run-2"):
            assert book.failures(run) == [one for _, one in book.live_entries() if one.run_uid == run]


def test_a_new_failure_costs_little_however_large_the_ledger_is() -> None:
    """A tick must not wait for sums: making them anew takes a hundred times as long."""
    book = LedgerBook(KEYS)
    put(book, r.LedgerOrigin(origin="o1", at=0.0), *(day(number, 100.0, runs=40) for number in range(300)))
    put(book, *(entry(number) for number in range(5000)))
    book.totals()
    grown_s, anew_s = [], []
    for number in range(5):
        began = time.perf_counter()
        put(book, entry(6000 + number), day(299, 101.0 + number, runs=40))
        book.totals()
        grown_s.append(time.perf_counter() - began)
        began = time.perf_counter()
        anew(book)
        anew_s.append(time.perf_counter() - began)
    assert min(grown_s) < 0.1 * min(anew_s)
