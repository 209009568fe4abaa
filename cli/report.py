"""`rankpulse report`: the ledger of the last days, from the store or from exported lines, for a meeting."""

import time
from pathlib import Path
from typing import Final, NamedTuple

import typer

from rankpulse.cli import books, show
from rankpulse.cli.failing import Failed
from rankpulse.cli.ledger_room import begin_of
from rankpulse.cli.report_html import html
from rankpulse.cli.report_md import markdown
from rankpulse.cli.report_page import report
from rankpulse.core.keys import Keys
from rankpulse.core.ledger import entry
from rankpulse.core.ledger_book import LedgerBook
from rankpulse.core.records import Finding, LedgerDay, LedgerEntry, RunAdvice
from rankpulse.core.review import Told, review
from rankpulse.core.settings import Settings
from rankpulse.store import ledger_files

FORMATS: Final = ("md", "html")
_BY_SUFFIX: Final = {".html": "html", ".htm": "html"}


class Asked(NamedTuple):
    since: str
    format: str  # "": by the name of the file
    out: str
    source: str  # "": the store


class Read(NamedTuple):
    """What is known, up to when, and what was refused of it."""

    told: Told
    end: float
    refused: list[str]


async def run(settings: Settings, asked: Asked) -> int:
    """Returns the exit code: 1 when lines were refused. Raises `Failed`, `StoreError`."""
    format_ = _format(asked)
    begin_of(asked.since, 0.0)
    keys = Keys(settings.cluster)
    read = from_files(asked.source, keys) if asked.source else await from_store(settings, keys)
    found = report(review(read.told, max(begin_of(asked.since, read.end), 0.0), read.end), settings.cluster)
    _write(asked.out, html(found) if format_ == "html" else markdown(found))
    for why in read.refused:
        typer.echo(f"refused: {show.plain(why)}", err=True)
    return 1 if read.refused else 0


def _format(asked: Asked) -> str:
    format_ = asked.format or _BY_SUFFIX.get(Path(asked.out).suffix.lower(), "md")
    if format_ not in FORMATS:
        raise Failed(f"--format {format_!r}: choose one of {', '.join(FORMATS)}")
    return format_


async def from_store(settings: Settings, keys: Keys) -> Read:
    """Up to now, with the incidents that are still open."""
    async with books.opened(settings) as store:
        prefixes = keys.ledger(), keys.incidents(), keys.advices(), f"{keys.prefix}findings/"
        ledger, incidents, advice, findings = [await books.read(store, keys, prefix) for prefix in prefixes]
    book = LedgerBook(keys)
    for key, record in ledger.records.items():
        book.seen(key, record)
    by_incident = {one.id: one for one in findings.of(Finding)}
    told = Told(
        entries=[one for _, one in book.live_entries()],
        days=[one for _, one in book.live_days()],
        open_=[entry(one, by_incident.get(one.id)) for one in incidents.incidents() if one.state == "open"],
        summaries={one.id: one.summary for one in incidents.incidents()},
        advice={one.run_uid: one for one in advice.of(RunAdvice)},
        let_go=book.past.days_upto,
    )
    return Read(told, time.time(), [f"{key}: {why}" for key, why in ledger.refused.items()])


def from_files(source: str, keys: Keys) -> Read:
    """Up to the newest word in them, so that an old export says what it said then. Raises `Failed`."""
    try:
        found = ledger_files.read(source, keys)
    except OSError as error:
        raise Failed(
            f"{source} cannot be read: {error.strerror}; name a file of `ledger export`, or ledger.export_dir"
        ) from None
    entries = [one for one in found.records.values() if isinstance(one, LedgerEntry)]
    days = [one for one in found.records.values() if isinstance(one, LedgerDay)]
    if not entries and not days:
        raise Failed(f"{source} holds no incident and no day of a ledger: name a .jsonl file or a directory with some")
    end = max([one.closed_at for one in entries] + [one.at for one in days])
    return Read(Told(entries, days), end, found.refused)


def _write(out: str, text: str) -> None:
    if out == "-":
        typer.echo(text, nl=False)
        return
    try:
        ledger_files.replace(Path(out), [text.encode()])
    except OSError as error:
        raise Failed(f"{out} cannot be written: {error.strerror}; name another place with --out") from None
    typer.echo(f"written to {out}", err=True)
