"""The exported ledger on a disk: one file of lines per day of UTC, each replaced as a whole or not at all."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from rankpulse.core import ledger_lines
from rankpulse.core.keys import Keys
from rankpulse.core.ledger_lines import LINE_MAX, Bad
from rankpulse.core.records import Record

SUFFIX: Final = ".jsonl"
FILE_MAX: Final = 256 * 1024 * 1024
REFUSED_KEPT: Final = 20  # reasons; a broken file has one for every line


class Found(NamedTuple):
    """Records by key, and why lines were refused, the first of them."""

    records: dict[str, Record]
    refused: list[str]


def read(path: str, keys: Keys) -> Found:
    """All lines of a file, or of every such file of a directory. Raises OSError."""
    place = Path(path)
    files = sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else [place]
    found = Found({}, [])
    for file in files:
        one = _read(file, keys)
        found.records.update(ledger_lines.joined(found.records, one.records))
        found.refused.extend(one.refused[: REFUSED_KEPT - len(found.refused)])
    return found


def write(folder: str, files: Mapping[str, Mapping[str, Record]], keys: Keys) -> int:
    """Put what the store holds beside what the files hold already. Returns how many files changed. Raises OSError."""
    os.makedirs(folder, mode=0o750, exist_ok=True)
    changed = 0
    for name, records in files.items():
        path = Path(folder, name + SUFFIX)
        with suppress(FileNotFoundError):
            held = _read(path, keys)
            if held.refused:
                path.rename(path.with_name(f"{path.name}.refused"))  # kept for a person, and not written over
            records = ledger_lines.joined(held.records, records)
            if records == held.records and not held.refused:
                continue
        replace(path, (ledger_lines.written(record) for record in records.values()))
        changed += 1
    if changed:
        _sync_dir(folder)
    return changed


def replace(path: Path, lines: Iterable[bytes]) -> None:
    """A reader, or a crash, sees the old content or the new. Raises OSError."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(draft, "wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def _read(path: Path, keys: Keys) -> Found:
    records: dict[str, Record] = {}
    refused: list[str] = []
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        if os.fstat(file.fileno()).st_size > FILE_MAX:
            return Found({}, [f"{path}: larger than {FILE_MAX} bytes; this is no ledger of ours"])
        number = 0
        while line := file.readline(LINE_MAX + 2):
            number += 1
            try:
                key, record = ledger_lines.read(keys, line)
                records[key] = record
            except Bad as bad:
                if len(refused) < REFUSED_KEPT:
                    refused.append(f"{path}, line {number}: {bad}")
    return Found(records, refused)


def _sync_dir(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
