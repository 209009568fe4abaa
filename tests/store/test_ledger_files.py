"""The exported ledger on a disk: whole or not at all, joined with what lies there, and broken lines kept apart."""

from pathlib import Path

import pytest

from rankpulse.core import ledger_lines
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.store import ledger_files

KEYS = Keys("c")


def day(name: str, at: float = 1.0, **change: float) -> r.LedgerDay:
    return r.LedgerDay(day=name, origin="o1", at=at, **change)


def files(*days: r.LedgerDay) -> dict[str, dict[str, r.Record]]:
    return {one.day: {ledger_lines.key_of(KEYS, one): one} for one in days}


def test_what_was_exported_is_read_back(tmp_path: Path) -> None:
    folder = str(tmp_path / "a" / "b")
    assert ledger_files.write(folder, files(day("2026-11-29"), day("2026-11-30")), KEYS) == 2
    assert sorted(path.name for path in Path(folder).iterdir()) == ["2026-11-29.jsonl", "2026-11-30.jsonl"]
    found = ledger_files.read(folder, KEYS)
    assert [one.day for one in found.records.values() if isinstance(one, r.LedgerDay)] == ["2026-11-29", "2026-11-30"]
    assert found.refused == []


def test_nothing_is_written_where_nothing_changed(tmp_path: Path) -> None:
    assert ledger_files.write(str(tmp_path), files(day("2026-11-30")), KEYS) == 1
    before = (tmp_path / "2026-11-30.jsonl").stat().st_ino
    assert ledger_files.write(str(tmp_path), files(day("2026-11-30")), KEYS) == 0
    assert (tmp_path / "2026-11-30.jsonl").stat().st_ino == before


def test_what_the_store_has_lost_stays_in_the_file(tmp_path: Path) -> None:
    ledger_files.write(str(tmp_path), files(day("2026-11-30", at=5.0, node_s=50.0)), KEYS)
    other = r.LedgerDay(day="2026-11-30", origin="o2", at=9.0, node_s=1.0)
    ledger_files.write(str(tmp_path), files(other), KEYS)
    found = ledger_files.read(str(tmp_path), KEYS).records.values()
    assert sorted(one.node_s for one in found if isinstance(one, r.LedgerDay)) == [1.0, 50.0]


def test_a_file_with_broken_lines_is_kept_for_a_person_and_its_good_lines_are_used(tmp_path: Path) -> None:
    path = tmp_path / "2026-11-30.jsonl"
    good = ledger_lines.written(day("2026-11-30", node_s=7.0))
    path.write_bytes(b"garbage\n" + good + good[:20])
    found = ledger_files.read(str(path), KEYS)
    assert (len(found.records), len(found.refused)) == (1, 2)
    assert f"{path}, line 1: no line of a ledger" in found.refused[0]
    ledger_files.write(str(tmp_path), files(day("2026-11-30", node_s=7.0)), KEYS)
    assert (tmp_path / "2026-11-30.jsonl.refused").read_bytes().startswith(b"garbage")
    assert ledger_files.read(str(tmp_path), KEYS).refused == []


def test_many_broken_lines_are_told_of_once_in_a_while(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_bytes(b"no\n" * 5000)
    assert len(ledger_files.read(str(tmp_path), KEYS).refused) == ledger_files.REFUSED_KEPT


def test_a_write_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_bytes(b"old")

    def lines() -> object:
        yield b"new"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        ledger_files.replace(path, lines())  # type: ignore[arg-type]
    assert path.read_bytes() == b"old"
    assert [one.name for one in tmp_path.iterdir()] == ["f.jsonl"]


def test_what_is_no_plain_file_is_not_waited_for(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "2026-11-30.jsonl")
    with pytest.raises(OSError, match=r"."):
        ledger_files.read(str(tmp_path / "missing.jsonl"), KEYS)
    assert ledger_files.read(str(tmp_path), KEYS).records == {}
