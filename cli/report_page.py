"""From a review to the blocks of a report, in the order in which a weekly meeting needs them. Pure."""

from collections.abc import Iterator
from typing import Final

from rankpulse.cli import report_words as words
from rankpulse.cli import show
from rankpulse.cli.report_blocks import (
    Bar,
    Bars,
    Block,
    Heading,
    Para,
    Range,
    Ranges,
    Report,
    Stack,
    Stacks,
    Table,
)
from rankpulse.cli.report_runs import runs
from rankpulse.core.lemons import FDR, LEAST, Score
from rankpulse.core.review import Cost, Failing, Review, middle

ROWS: Final = 25  # of tables that could be long
_LEMON: Final = "LEMON"


def report(found: Review, cluster: str) -> Report:
    blocks = (
        *_head(found), *_failures(found), *_lost(found), *runs(found.runs, ROWS), *_incidents(found), *_machines(found)
    )  # fmt: skip
    return Report(f"Reliability of {cluster}", blocks)


def _head(found: Review) -> Iterator[Block]:
    yield Para(f"From {show.clock_time(found.begin)} to {show.clock_time(found.end)}. Intervals hold 90 %.")
    if found.let_go:
        yield Para(
            f"INCOMPLETE: days up to {found.let_go} are kept as sums only, and are missing here. Where "
            "ledger.export_dir is set they are in its files: give those with --from."
        )
    if found.unseen_h >= 0.01:
        yield Para(f"For {words.hours(found.unseen_h)} no monitor saw anything; that time counts nowhere.")
    detect_s, recover_s = middle(found.detect_s), middle(found.recover_s)
    rows = [
        ("failures", str(found.all.failures)),
        ("GPU hours", f"{found.gpu_h:,.1f}"),
        ("GPU hours between failures", f"{words.best(found.all.between)} ({words.interval(found.all.between)})"),
        ("before that", _before(found)),
        ("ETTR of all runs", words.share(found.ettr)),
        ("half were detected within", "-" if detect_s is None else show.span(detect_s)),
        ("half were recovered from within", "-" if recover_s is None else show.span(recover_s)),
    ]
    yield Table(("in short", ""), rows)


def _before(found: Review) -> str:
    if found.before is None:
        return "nothing is known"
    told = f"{words.best(found.before.between)} ({words.interval(found.before.between)})"
    return f"{told}; {words.compared(found.all.between, found.before.between)}"


def _failures(found: Review) -> Iterator[Block]:
    yield Heading("What failed")
    yield Para(words.trend(found.trend))
    if not found.classes:
        yield Para("No run failed." if found.gpu_h > 0 else "No run failed, and none is known to have gone on.")
        return
    parts = tuple(one.name for one in found.components)
    yield Stacks("failures by day", [Stack(one.day, one.counts) for one in found.columns], parts)
    yield Table(("component", "failures", "GPU hours between", "90 % interval (exact)"),
                [_row(one)[1:] for one in found.components], frozenset({1, 2}))  # fmt: skip
    yield Ranges("GPU hours between failures, with 90 % interval", [_range(one) for one in found.components])
    yield Table(("class", "component", "failures", "GPU hours between", "90 % interval (exact)"),
                [_row(one) for one in found.classes], frozenset({2, 3}))  # fmt: skip


def _row(one: Failing) -> tuple[str, ...]:
    return one.name, one.component, str(one.failures), words.best(one.between), words.interval(one.between)


def _range(one: Failing) -> Range:
    if one.between is None:
        return Range(one.name, 0.0, 0.0, 0.0, "-")
    return Range(one.name, one.between.best, *one.between.exact, words.best(one.between))


def _lost(found: Review) -> Iterator[Block]:
    yield Heading("Where the time went")
    if not found.lost:
        yield Para("No time of a run was lost, as far as is known.")
        return
    yield Bars("hours of runs", [Bar(one.cause, one.run_h, words.hours(one.run_h)) for one in found.lost])
    rows = [
        (one.cause, words.hours(one.run_h), words.hours(one.gpu_h), words.share(one.run_h / found.run_h)
         if found.run_h > 0 else "-")
        for one in found.lost
    ]  # fmt: skip
    yield Table(("cause", "hours of runs", "GPU hours", "of all run time"), rows, frozenset({1, 2, 3}))


def _incidents(found: Review) -> Iterator[Block]:
    yield Heading("Incidents, the costliest first")
    if not found.incidents:
        yield Para("None.")
        return
    yield Table(
        ("incident", "opened", "class", "whose fault", "where", "run", "action", "outcome", "lost GPU hours", "what"),
        [_incident(one) for one in found.incidents[:ROWS]],
        frozenset({8}),
    )
    yield from _more(len(found.incidents), "incident")


def _incident(one: Cost) -> tuple[str, ...]:
    entry = one.entry
    outcome = entry.outcome if entry.closed_at else "OPEN, so far"
    lost = words.hours(one.gpu_h) if entry.ranks or not one.run_h else f"{words.hours(one.run_h)} of its run"
    return (
        entry.id, show.clock_time(entry.opened_at), entry.klass, entry.blame, _where(one), entry.run_id or entry.run_uid
        or "-", entry.action, outcome, lost, one.summary
    )  # fmt: skip


def _where(one: Cost) -> str:
    entry = one.entry
    node = entry.node or (words.many(len(entry.nodes), "node") if entry.nodes else "-")
    parts = [node] + [f"GPU {entry.gpu}"] * (entry.gpu >= 0) + [f"rank {entry.rank}"] * (entry.rank >= 0)
    return ", ".join(parts)


def _machines(found: Review) -> Iterator[Block]:
    yield Heading("Nodes and GPUs that failed")
    yield Para(
        f"Faults of machines and networks alone. {_LEMON}: at least {LEAST} failures, and more often than the others "
        f"beyond chance; of those named, at most {FDR:.0%} are expected to be none."
    )
    if not found.nodes and not found.gpus:
        yield Para("None is to blame for any failure.")
    for what, scores in (("node", found.nodes), ("GPU", found.gpus)):
        if scores:
            yield Table((what, "failures", "expected", "times the others", "q", ""),
                        [_score(one) for one in scores[:ROWS]], frozenset({1, 2, 3, 4}))  # fmt: skip
            yield from _more(len(scores), what)
    if found.gpus:
        yield Para("The ledger counts by node: each GPU of a node is taken to have run as long as its neighbours.")


def _score(one: Score) -> tuple[str, ...]:
    times = "∞" if one.ratio > 1e6 else f"{one.ratio:.1f}"
    return one.name, str(one.failures), f"{one.expected:.2g}", times, f"{one.q:.2g}", _LEMON if one.lemon else ""


def _more(count: int, what: str) -> Iterator[Block]:
    if count > ROWS:
        yield Para(f"And {words.many(count - ROWS, what)} more.")
