"""The part of a report that is about runs: how much of their time counted, and how often they should save."""

from collections.abc import Iterator, Sequence

from rankpulse.cli import report_words as words
from rankpulse.cli import show
from rankpulse.cli.report_blocks import Bar, Bars, Block, Heading, Para, Table
from rankpulse.core.records import RunAdvice
from rankpulse.core.review import RunRow


def runs(rows: Sequence[RunRow], most: int) -> Iterator[Block]:
    yield Heading("Runs, the largest first")
    if not rows:
        yield Para("None is known to have gone on.")
        return
    shown = rows[:most]
    told = [(row, ettr) for row in shown if (ettr := row.of.ettr()) is not None]
    if told:
        yield Bars("ETTR: the share of its time that interruptions left",
                   [Bar(_name(row), ettr, words.share(ettr)) for row, ettr in told], 1.0)  # fmt: skip
    yield Table(
        ("run", "label", "hours", "GPU hours", "failures", "ETTR", "goodput", "most lost to"),
        [_row(row) for row in shown],
        frozenset({2, 3, 4, 5, 6}),
    )
    if len(rows) > most:
        yield Para(f"And {words.many(len(rows) - most, 'run')} more.")
    advised = [(row, row.advice) for row in shown if row.advice is not None]
    if advised:
        yield Para("How often each should save, by its own failures and its own saves so far:")
        yield Table(
            ("run", "save every", "90 % interval", "a failure every", "a save takes", "lost then"),
            [(_name(row), *_advice(advice)) for row, advice in advised],
            frozenset({1, 3, 4, 5}),
        )


def _name(row: RunRow) -> str:
    return row.label or row.uid


def _row(row: RunRow) -> tuple[str, ...]:
    of = row.of
    worst = max(of.lost_s.items(), key=lambda one: one[1], default=("", 0))
    return (
        row.uid,
        row.label or "-",
        words.hours(of.run_s / 3600),
        words.hours(of.gpu_s / 3600),
        str(of.failures),
        words.share(of.ettr()),
        words.share(of.goodput()),
        f"{worst[0]}, {show.span(float(worst[1]))}" if worst[1] else "-",
    )


def _advice(advice: RunAdvice) -> tuple[str, ...]:
    low, high = words.hours(advice.low_s / 3600), words.hours(advice.high_s / 3600)
    return (
        words.hours(advice.interval_s / 3600),
        f"{low} to {high}",
        words.hours(advice.mtbf_s / 3600),
        show.span(advice.save_s),
        words.share(advice.lost_share),
    )
