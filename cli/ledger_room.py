"""What `rankpulse ledger show` and `export` do: sums, tables, files."""

import csv
import io
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from rankpulse.cli import books, show
from rankpulse.cli.failing import Failed
from rankpulse.core import codec, ledger_lines
from rankpulse.core.keys import Keys
from rankpulse.core.ledger import day_of
from rankpulse.core.ledger_book import LedgerBook
from rankpulse.core.ledger_sums import summed
from rankpulse.core.records import LedgerDay, LedgerEntry, LedgerPast
from rankpulse.core.review_days import midnight
from rankpulse.core.settings import Settings
from rankpulse.store import ledger_files
from rankpulse.store.api import Store

FORMATS: Final = ("jsonl", "csv", "parquet")
TABLES: Final = ("entries", "exposure")
_UNITS: Final = {"h": 3600.0, "d": 86400.0, "w": 7 * 86400.0}
NO_PARQUET: Final = (
    "parquet needs pyarrow, which is not installed: pip install 'rankpulse[parquet]', or export with --format csv"
)


class Export(NamedTuple):
    """What was asked for."""

    format: str
    table: str
    since: str
    out: str


async def held(settings: Settings) -> tuple[LedgerBook, float]:
    """The ledger as the store has it, and the time, UTC."""
    keys = Keys(settings.cluster)
    async with books.opened(settings) as store:
        return await book_of(store, keys), time.time()


async def book_of(store: Store, keys: Keys) -> LedgerBook:
    """As the store has it; what cannot be read is told of and left out."""
    book = LedgerBook(keys)
    for item in (await store.list(keys.ledger())).items:
        parsed = keys.parse(item.key)
        if parsed is not None:
            try:
                book.seen(item.key, codec.decode_at(parsed, item.value))
            except codec.Refused as refused:
                typer.echo(f"rankpulse: {item.key} is left out: {refused}", err=True)
    return book


def begin_of(since: str, now: float) -> float:
    """The UTC time from which on something counts; 0: everything. Raises `Failed`."""
    if not since:
        return 0.0
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([hdw])", since)
    if found is None:
        raise Failed(f"--since {since!r}: give a number and h, d or w, such as 12h, 7d or 4w")
    return now - float(found[1]) * _UNITS[found[2]]


def _chosen(book: LedgerBook, begin: float) -> tuple[list[LedgerPast], list[LedgerEntry], list[LedgerDay]]:
    """Sums have no time of their own: they count only where everything does."""
    pasts = [] if begin else list(book.pasts.values())
    entries = [entry for _, entry in book.live_entries() if entry.closed_at >= begin]
    return pasts, entries, [day for _, day in book.live_days() if day.day >= day_of(begin)]


def sums(book: LedgerBook, now: float, since: str) -> dict[str, Any]:
    """What `show` prints: of whole days of UTC, so that failures and running time are of the same time."""
    begin = midnight(max(begin_of(since, now), 0.0))
    totals = summed(*_chosen(book, begin))
    return {
        "since": begin or None,
        "failures": dict(totals.failures.most_common()),
        "node_hours": round(totals.node_s / 3600, 3),
        "gpu_hours": round(totals.gpu_s / 3600, 3),
        "run_hours": round(totals.run_s / 3600, 3),
        "unseen_hours": round(totals.unseen_s / 3600, 3),
        "lost_hours": {name: round(s / 3600, 4) for name, s in totals.lost_s.items() if s},
        "lost_gpu_hours": {name: round(s / 3600, 4) for name, s in totals.lost_gpu_s.items() if s},
        "runs": {
            uid: {"run_hours": round(run.run_s / 3600, 3), "failures": run.failures, "ettr": run.ettr()}
            for uid, run in sorted(totals.runs.items())
        },
    }


def page(found: dict[str, Any]) -> None:
    out = show.console()
    show.facts(
        out,
        (
            ("since", show.clock_time(found["since"]) if found["since"] else "the ledger began"),
            ("nodes ran", f"{found['node_hours']:,.1f} node-hours"),
            ("GPUs ran", f"{found['gpu_hours']:,.1f} GPU-hours, a rank counted as a GPU"),
            ("runs went on", f"{found['run_hours']:,.1f} run-hours"),
            ("unseen", f"{found['unseen_hours']:,.2f} hours in which no monitor saw anything"),
        ),
    )
    out.print()
    rows = [(*name.split("/", 1), count) for name, count in found["failures"].items()]
    show.table(out, ("failures of", "component", "count"), rows or [("none", "-", 0)])
    out.print()
    lost = found["lost_hours"]
    rows = [
        (name, f"{hours:.3f}", f"{found['lost_gpu_hours'].get(name, 0.0):,.2f}")
        for name, hours in sorted(lost.items(), key=lambda row: -row[1])
    ]
    show.table(out, ("time lost to", "hours of runs", "GPU-hours"), rows or [("nothing", "0", "0")])


def check(job: Export) -> None:
    """Before the store is asked. Raises `Failed`."""
    if job.format not in FORMATS:
        raise Failed(f"--format {job.format!r}: choose one of {', '.join(FORMATS)}")
    if job.table not in TABLES:
        raise Failed(f"--table {job.table!r}: choose one of {', '.join(TABLES)}")
    begin_of(job.since, 0.0)
    if job.format == "parquet":
        if job.out == "-":
            raise Failed("parquet is not for stdout: name a file with --out")
        _arrow()


def write(job: Export, book: LedgerBook, now: float) -> str:
    """Write the file; returns what was done, in words. Raises `Failed`."""
    pasts, entries, days = _chosen(book, begin_of(job.since, now))
    if job.format == "jsonl":
        chunks, count = (
            [ledger_lines.written(r) for r in (*pasts, *entries, *days)],
            len(pasts) + len(entries) + len(days),
        )
    else:
        rows = list(ledger_lines.flat(entries) if job.table == "entries" else ledger_lines.exposed(days))
        chunks, count = [_csv(job.table, rows) if job.format == "csv" else _parquet(job.table, rows)], len(rows)
    if job.out == "-":
        sys.stdout.buffer.write(b"".join(chunks))
        sys.stdout.buffer.flush()
        return f"{count} rows"
    try:
        ledger_files.replace(Path(job.out), chunks)
    except OSError as error:
        raise Failed(f"{job.out} cannot be written: {error.strerror}; name another place with --out") from None
    return f"{count} rows in {job.out}"


def _columns(table: str) -> list[str]:
    """Also of a table without rows."""
    if table == "exposure":
        return list(next(iter(ledger_lines.exposed([LedgerDay(day="", origin="", at=0.0)]))))
    blank = LedgerEntry(id="", klass="", component="", blame="", outcome="", action="", opened_at=0.0, closed_at=0.0)
    return list(next(iter(ledger_lines.flat([blank]))))


def _csv(table: str, rows: Sequence[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, _columns(table), lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _harmless(value) for name, value in row.items()} for row in rows)
    return text.getvalue().encode()


def _harmless(value: Any) -> Any:
    """Names that jobs chose are data, also for a spreadsheet that takes them for formulas."""
    return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


def _parquet(table: str, rows: Sequence[dict[str, Any]]) -> bytes:
    arrow, parquet = _arrow()
    columns = {name: [row[name] for row in rows] for name in _columns(table)}
    sink = io.BytesIO()
    parquet.write_table(arrow.table(columns), sink)
    return sink.getvalue()


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise Failed(NO_PARQUET) from None
    return pyarrow, parquet
