"""The ledger as lines of JSON: what is exported, and read back. One record per line, its kind first.

Lines of others are untrusted: each is parsed once, with limits, and what cannot be used is refused with its reason.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from rankpulse.core import codec, ledger_rest
from rankpulse.core.keys import BadName, Keys
from rankpulse.core.ledger import day_of
from rankpulse.core.ledger_book import LedgerBook
from rankpulse.core.records import LedgerDay, LedgerEntry, LedgerPast, Record
from rankpulse.core.stages import CAUSES

LINE_MAX: Final = codec.MAX_BYTES
KINDS: Final[Mapping[str, type[Record]]] = {"entry": LedgerEntry, "day": LedgerDay, "past": LedgerPast}
MOST: Final = 1e13  # a hundred thousand GPUs for three years, in seconds
PAST: Final = "past"  # the file of sums, beside those of days
_NAMES: Final = {kind: name for name, kind in KINDS.items()}
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


class Line(NamedTuple):
    """A record and the key under which it belongs."""

    key: str
    record: Record


class Bad(ValueError):
    """A line that is none of ours; the text says why."""


def key_of(keys: Keys, record: Record) -> str:
    """Where a record of the ledger belongs. Raises `Bad` where no key can hold it."""
    try:
        if isinstance(record, LedgerEntry) and record.closed_at > 0:
            return keys.ledger_entry(record.closed_at, record.id)
        if isinstance(record, LedgerDay) and _DAY.fullmatch(record.day):
            return keys.ledger_day(record.day, record.origin)
        if isinstance(record, LedgerPast):
            return keys.ledger_past(record.origin)
    except (BadName, ValueError, OverflowError) as error:
        raise Bad(str(error)) from None
    raise Bad(f"{type(record).__name__} without a time")


def written(record: Record) -> bytes:
    """Its line, with the end of it."""
    fields = {"ledger": _NAMES[type(record)], **msgspec.to_builtins(record)}
    return msgspec.json.encode(fields) + b"\n"


def read(keys: Keys, line: bytes) -> Line:
    """Raises `Bad`."""
    if len(line) > LINE_MAX:
        raise Bad(f"{len(line)} bytes, at most {LINE_MAX}")
    try:
        name = msgspec.json.decode(line, type=_Kind).ledger
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Bad(f"no line of a ledger: {error}") from None
    kind = KINDS.get(name)
    if kind is None:
        raise Bad(f"of the kind {name[:40]!r}, which this version does not know")
    try:
        record = codec.decode(kind, line)
    except codec.Refused as refused:
        raise Bad(str(refused)) from None
    if why := _absurd(record):
        raise Bad(why)
    return Line(key_of(keys, record), record)


def file_of(record: Record) -> str:
    """The day to which a record belongs, as the name of its file; sums have one of their own."""
    if isinstance(record, LedgerEntry):
        return day_of(record.closed_at)
    return record.day if isinstance(record, LedgerDay) else PAST


def by_file(book: LedgerBook) -> dict[str, dict[str, Record]]:
    """All that the store's ledger holds: by file and key."""
    files: dict[str, dict[str, Record]] = {}
    for key, record in (*book.entries.items(), *book.days.items()):
        files.setdefault(file_of(record), {})[key] = record
    for record in book.pasts.values():
        files.setdefault(PAST, {})[book.key_of_past(record)] = record
    return files


def joined(old: Mapping[str, Record], new: Mapping[str, Record]) -> dict[str, Record]:
    """What a file holds together with what the store holds; of two words on one thing the later one."""
    found = dict(old)
    for key, record in new.items():
        before = found.get(key)
        if before is None or getattr(record, "at", 0.0) >= getattr(before, "at", 0.0):
            found[key] = record
    return dict(sorted(found.items()))


def missing(records: Mapping[str, Record], book: LedgerBook) -> dict[str, Record]:
    """What was exported and is in the store no more, nor in its sums: that was deleted, or went back in time."""
    return {key: one for key, one in records.items() if not isinstance(one, LedgerPast) and not _there(key, one, book)}


def to_import(records: Mapping[str, Record], book: LedgerBook) -> dict[str, Record]:
    """What the store should be given back. Of sums that much which does not come, or stand there, one by one."""
    found, pasts = missing(records, book), [one for one in records.values() if isinstance(one, LedgerPast)]
    each: dict[str, Record] = {**book.entries, **book.days, **records}
    for past in [one for one in pasts if one.origin not in book.pasts]:
        rest = ledger_rest.rest(past, each, alone=len(pasts) == 1)
        if rest is not None:
            found[book.key_of_past(past)] = rest
    return found


def _absurd(record: Record) -> str:
    """Figures that nothing can have measured, for a sum does not tell them apart again."""
    figures = _numbers(msgspec.to_builtins(record))
    bad = next((number for number in figures if not -1.0 <= number <= MOST), None)  # nan lies nowhere
    return f"the figure {bad:g} in it is none" if bad is not None else ""


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, (int, float)):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _numbers(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _numbers(one)


def _there(key: str, record: Record, book: LedgerBook) -> bool:
    if isinstance(record, LedgerEntry):
        return key in book.entries or book.name(key) <= book.past.entries_upto
    return key in book.days or (isinstance(record, LedgerDay) and record.day <= book.past.days_upto)


def flat(entries: Iterable[LedgerEntry]) -> Iterator[dict[str, Any]]:
    """Entries as rows of a table: a column for every cause, lists as text."""
    for entry in entries:
        row = msgspec.to_builtins(entry)
        lost_s = row.pop("lost_s")
        del row["v"]
        row["nodes"] = " ".join(entry.nodes)
        yield {**row, **{f"lost_{cause}_s": float(lost_s.get(cause, 0.0)) for cause in CAUSES}}


def exposed(days: Iterable[LedgerDay]) -> Iterator[dict[str, Any]]:
    """Days as rows: one for the fleet, one for each node and each run."""
    for day in days:
        who = {"day": day.day, "origin": day.origin}
        none = dict.fromkeys(("node_s", "gpu_s", "run_s", "unseen_s", "checkpoint_s", "straggling_s"), 0.0)
        fleet = {"node_s": day.node_s, "gpu_s": day.gpu_s, "run_s": day.run_s, "unseen_s": day.unseen_s}
        yield {**who, "of": "fleet", "name": "", **none, **fleet}
        for name, share in day.nodes.items():
            yield {**who, "of": "node", "name": name, **none, "node_s": share.node_s, "gpu_s": share.gpu_s}
        for uid, run in day.runs.items():
            more = {name: getattr(run, name) for name in ("run_s", "gpu_s", "checkpoint_s", "straggling_s")}
            yield {**who, "of": "run", "name": uid, **none, **more}


class _Kind(msgspec.Struct):
    ledger: str = ""
