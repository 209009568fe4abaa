"""The leading monitor's export: what is written when, a directory that cannot serve, a store that lost its history."""

import asyncio
import logging
from pathlib import Path
from threading import Event

import pytest
from support import eventually

from rankpulse.core import ledger_lines
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.core.ledger_book import LedgerBook
from rankpulse.core.settings import LedgerSettings
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.ledger_export import CHECK_S, FAILED, OK, LedgerExport
from rankpulse.monitor.vitals import Vitals

KEYS = Keys("c")
DAY = r.LedgerDay(day="2026-11-30", origin="o1", at=1_796_000_000.0, gpu_s=8.0)


def entry(number: int) -> r.LedgerEntry:
    return r.LedgerEntry(
        id=f"i0001-{number:04d}", klass="oom", component="program", blame="program", outcome="recovered",
        action="restart", opened_at=1_796_000_000.0, closed_at=1_796_000_060.0, run_uid="job",
    )  # fmt: skip


class Desk:
    """An export on a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.now, self.leads, self.vitals, self.book = 0.0, True, Vitals(), LedgerBook(KEYS)
        self.folder = folder / "c"
        self.holds(r.LedgerOrigin(origin="o1", at=0.0))
        self.export = LedgerExport(
            LedgerSettings(export_dir=str(folder), export_every_s=300.0), KEYS, self.book,
            Clock(now=lambda: self.now, utc=lambda: 0.0), self.vitals, leads=lambda: self.leads,
        )  # fmt: skip

    def holds(self, *records: r.Record) -> None:
        for one in records:
            key = KEYS.ledger_origin() if isinstance(one, r.LedgerOrigin) else ledger_lines.key_of(KEYS, one)
            self.book.seen(key, one)

    def wiped(self) -> None:
        self.book.relisted()
        self.holds(r.LedgerOrigin(origin="o2", at=5.0))

    def files(self) -> dict[str, int]:
        """Lines by file."""
        return {path.name: len(path.read_bytes().splitlines()) for path in sorted(self.folder.iterdir())}


async def test_an_incident_is_exported_at_once_and_days_now_and_then(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.export._due()
    await desk.export.once()
    desk.holds(DAY)
    assert not desk.export._due(), "days wait"
    desk.holds(entry(1))
    assert desk.export._due()
    await desk.export.once()
    assert desk.files() == {"2026-11-30.jsonl": 2}
    assert not desk.export._due()
    desk.now = 301.0
    assert desk.export._due()
    assert desk.vitals.exports[OK] == 2


async def test_a_directory_that_cannot_serve_is_told_of_once_and_tried_again_in_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "c").write_text("no directory")
    desk = Desk(tmp_path)
    for number in range(3):
        desk.holds(entry(number))
        assert desk.export._due(), "in time"
        await desk.export.once()
        assert not desk.export._due(), "not at every incident"
        desk.now += 300.0
    assert desk.vitals.exports[FAILED] == 3
    assert caplog.text.count("cannot be exported") == 1
    (tmp_path / "c").unlink()
    with caplog.at_level(logging.INFO, "rankpulse.monitor"):
        await desk.export.once()
    assert "exported again" in caplog.text
    assert desk.files() == {"2026-11-30.jsonl": 3}


async def test_a_store_without_its_history_says_what_is_lost_until_it_is_back(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path)
    desk.holds(entry(1), entry(2), DAY)
    await desk.export.once()
    desk.wiped()
    desk.holds(entry(3))
    await desk.export.once()
    [line] = [one.getMessage() for one in caplog.records if "lost history" in one.getMessage()]
    assert "2 incidents and 1 days" in line
    assert f"rankpulse ledger import {tmp_path / 'c'} --cluster c" in line
    assert "last export (2026-11-30 00:54:20 UTC)" in line
    assert desk.vitals.ledger_missing == 3
    assert desk.files() == {"2026-11-30.jsonl": 4}, "the file keeps what the store has lost"
    desk.holds(entry(1), entry(2), DAY)
    with caplog.at_level(logging.INFO, "rankpulse.monitor"):
        await desk.export.once()
    assert desk.vitals.ledger_missing == 0
    assert "holds again all" in caplog.text
    assert caplog.text.count("lost history") == 1


async def test_records_that_are_deleted_under_a_living_leader_are_missed_without_a_new_listing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk(tmp_path)
    desk.holds(entry(1), entry(2), DAY)
    await desk.export.once()
    for one in (entry(1), entry(2), DAY):
        desk.book.gone(ledger_lines.key_of(KEYS, one))
    assert desk.export._due(), "at once"
    await desk.export.once()
    assert "2 incidents and 1 days" in caplog.text
    assert desk.vitals.ledger_missing == 3


async def test_what_the_store_lets_go_is_not_missed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(tmp_path)
    desk.holds(entry(1), entry(2), DAY)
    await desk.export.once()
    upto = ledger_lines.key_of(KEYS, entry(1)).rsplit("/", 1)[-1]
    desk.holds(r.LedgerPast(origin="o1", at=9.0, entries_upto=upto, days_upto=DAY.day))
    for one in (entry(1), DAY):
        desk.book.gone(ledger_lines.key_of(KEYS, one))
    await desk.export.once()
    assert caplog.text == ""
    assert desk.vitals.ledger_missing == 0


async def test_lines_that_a_paused_leader_has_written_over_come_back(tmp_path: Path) -> None:
    """In a directory that monitors share: what it had begun to write, it may finish long after another leads."""
    desk = Desk(tmp_path)
    desk.holds(entry(1), entry(2))
    await desk.export.once()
    file = desk.folder / "2026-11-30.jsonl"
    file.write_bytes(file.read_bytes().splitlines(keepends=True)[0])
    desk.now += CHECK_S
    assert desk.export._due()
    await desk.export.once()
    assert desk.files() == {"2026-11-30.jsonl": 2}


async def test_a_disk_that_hangs_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk, hangs = Desk(tmp_path), Event()
    desk.holds(entry(1))
    desk.export._exchange = lambda *_, **__: hangs.wait()  # type: ignore[assignment,method-assign]
    first = asyncio.create_task(desk.export.once())
    await eventually(lambda: desk.export._thread is not None, 10, "the thread")
    first.cancel()
    await asyncio.wait([first])
    await desk.export.once()
    assert desk.vitals.exports[FAILED] == 1
    assert "does not answer" in caplog.text
    hangs.set()
    assert desk.export._thread is not None
    desk.export._thread.join(10)
    del desk.export._exchange
    await desk.export.once()
    assert desk.files() == {"2026-11-30.jsonl": 1}


async def test_a_bug_in_it_is_told_of_and_the_monitor_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk(tmp_path)
    desk.export._exchange = lambda *_, **__: 1 / 0  # type: ignore[assignment,method-assign,return-value]
    await desk.export.once()
    assert "a bug in rankpulse" in caplog.text
    assert desk.vitals.exports[FAILED] == 1


async def test_who_has_no_directory_exports_nothing(tmp_path: Path) -> None:
    export = LedgerExport(
        LedgerSettings(), KEYS, LedgerBook(KEYS), Clock(now=lambda: 0.0, utc=lambda: 0.0), Vitals(), leads=lambda: True
    )
    running = asyncio.create_task(export.run())
    await asyncio.sleep(0)
    assert not running.done()
    running.cancel()
    await asyncio.wait([running])
    assert list(tmp_path.iterdir()) == []
