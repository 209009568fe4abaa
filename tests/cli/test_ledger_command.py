"""`rankpulse ledger` on a real store: sums, tables, files, what it refuses, and in which words."""

import asyncio
import csv
import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from rankpulse.cli import ledger_room
from rankpulse.cli.failing import Failed
from rankpulse.cli.ledger_import import batches
from rankpulse.cli.ledger_room import begin_of, sums
from rankpulse.cli.main import app
from rankpulse.core import codec, ledger_lines
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.core.ledger import day_of
from rankpulse.core.ledger_book import LedgerBook
from rankpulse.core.settings import parse
from rankpulse.store.etcd import open_store

OLD, NEW = 1_500_000_000.0, 1_900_000_000.0


def entry(number: int, closed_at: float = OLD, **change: object) -> r.LedgerEntry:
    fields: dict = {
        "id": f"i0001-{number:04d}", "klass": "gpu_fault", "component": "gpu", "blame": "machine",
        "outcome": "recovered", "action": "restart", "opened_at": closed_at - 60, "closed_at": closed_at,
        "run_uid": "job-1", "run_id": "=cmd()", "ranks": 8, "lost_s": {"stop": 3600.0}, "nodes": ("node-a",),
    }  # fmt: skip
    return r.LedgerEntry(**{**fields, **change})


DAY = r.LedgerDay(day="2017-07-14", origin="o1", at=OLD, node_s=7200.0, gpu_s=57600.0, run_s=7200.0)


class Place:
    def __init__(self, etcd: str, cluster: str) -> None:
        self.etcd, self.keys = etcd, Keys(cluster)

    def put(self, *records: r.Record) -> None:
        async def work() -> None:
            store = await open_store(parse({"store": {"endpoints": [self.etcd]}}).store)
            for one in records:
                await store.put(ledger_lines.key_of(self.keys, one), codec.encode(one))
            await store.close()

        asyncio.run(work())

    def run(self, *args: str) -> Result:
        return CliRunner().invoke(
            app, ["ledger", *args, "--store", self.etcd, "--cluster", self.keys.cluster], env={"RANKPULSE_CONFIG": ""}
        )


@pytest.fixture
def place(etcd: str, cluster: str) -> Place:
    made = Place(etcd, cluster)
    made.put(entry(1), entry(2, NEW), DAY)
    return made


@pytest.mark.live
def test_sums_are_shown_for_people_and_programs(place: Place) -> None:
    page = place.run("show").stdout
    assert "16.0 GPU-hours" in page
    assert [line.split() for line in page.splitlines() if line.startswith("gpu_fault")] == [["gpu_fault", "gpu", "2"]]
    found = json.loads(place.run("show", "--json").stdout)
    assert found["lost_gpu_hours"] == {"stop": 16.0}
    assert json.loads(place.run("show", "--json", "--since", "7d").stdout)["failures"] == {"gpu_fault/gpu": 1}


@pytest.mark.live
def test_a_table_for_spreadsheets_runs_nothing_in_them(place: Place, tmp_path: Path) -> None:
    out = tmp_path / "failures.csv"
    assert place.run("export", "--format", "csv", "--out", str(out)).exit_code == 0
    rows = list(csv.DictReader(out.open()))
    assert [(row["id"], row["lost_stop_s"], row["run_id"]) for row in rows] == [
        ("i0001-0001", "3600.0", "'=cmd()"), ("i0001-0002", "3600.0", "'=cmd()")
    ]  # fmt: skip
    exposure = place.run("export", "--format", "csv", "--table", "exposure", "--out", "-").stdout.splitlines()
    assert len(exposure) == 2
    lately = place.run("export", "--format", "csv", "--since", "4w", "--out", "-").stdout.splitlines()
    assert len(lately) == 2, "its head, and the one that ended since then"


@pytest.mark.live
def test_what_was_exported_comes_back_once(place: Place, cluster: str, tmp_path: Path) -> None:
    out = tmp_path / "ledger.jsonl"
    assert place.run("export", "--out", str(out)).exit_code == 0
    other = Place(place.etcd, f"{cluster}-b")
    with out.open("ab") as file:
        file.write(b"half a li")
    found = other.run("import", str(out), "--json")
    done = json.loads(found.stdout)
    assert (found.exit_code, done["read"], done["written"], len(done["refused"])) == (1, 3, 3, 1)
    assert json.loads(other.run("import", str(out), "--json").stdout)["written"] == 0
    other.put(entry(9, NEW + 5))
    again = tmp_path / "again.jsonl"
    assert other.run("export", "--out", str(again)).exit_code == 0
    assert set(out.read_bytes().splitlines()[:3]) < set(again.read_bytes().splitlines())


@pytest.mark.live
def test_parquet_without_its_library_names_the_extra(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    found = place.run("export", "--format", "parquet", "--out", "x.parquet")
    assert found.exit_code == 2
    assert "pip install 'rankpulse[parquet]'" in found.stderr


def test_parquet_holds_what_the_table_holds(tmp_path: Path) -> None:
    if importlib.util.find_spec("pyarrow") is None:
        assert "CI" not in os.environ, "CI must install pyarrow"
        pytest.skip("needs pyarrow: pip install 'rankpulse[parquet]'")
    parquet = importlib.import_module("pyarrow.parquet")
    out = tmp_path / "x.parquet"
    rows = list(ledger_lines.flat([entry(1)]))
    out.write_bytes(ledger_room._parquet("entries", rows))
    assert parquet.read_table(out).to_pylist() == rows
    out.write_bytes(ledger_room._parquet("exposure", []))
    assert parquet.read_table(out).num_rows == 0


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("export", "--out", "x", "--format", "xls"), "choose one of jsonl, csv, parquet"),
        (("export", "--out", "x", "--table", "runs"), "choose one of entries, exposure"),
        (("export", "--out", "x", "--since", "week"), "give a number and h, d or w"),
        (("show", "--since", "yesterday"), "give a number and h, d or w"),
        (("import", "/nowhere/at/all.jsonl"), "name a file of `ledger export`"),
    ],
)
def test_wrong_use_is_said_before_the_store_is_asked(args: tuple[str, ...], words: str) -> None:
    found = CliRunner().invoke(app, ["ledger", *args, "--store", "127.0.0.1:1"])
    assert (found.exit_code, words in found.stderr) == (2, True), found.stderr


def test_spans() -> None:
    assert (begin_of("", 5.0), begin_of("12h", 100_000.0), begin_of("1.5d", 200_000.0)) == (0.0, 56_800.0, 70_400.0)
    for bad in ("7", "d", "-1d", "1e9d", "7 d", "nan"):
        with pytest.raises(Failed, match="--since"):
            begin_of(bad, 0.0)


def test_failures_and_running_time_that_are_shown_are_of_the_same_days() -> None:
    """Else a rate that somebody takes from it would rest on a day of running and an hour of failures."""
    keys, noon = Keys("c"), 1_800_014_400.0
    book = LedgerBook(keys)
    for at in (noon - 86400, noon - 5 * 3600):
        one = entry(int(at), closed_at=at)
        book.seen(keys.ledger_entry(one.closed_at, one.id), one)
    for at in (noon - 86400, noon):
        day = r.LedgerDay(day=day_of(at), origin="o1", at=at, gpu_s=3600.0)
        book.seen(keys.ledger_day(day.day, "o1"), day)
    found = sums(book, noon, "1h")
    assert (found["gpu_hours"], found["failures"]) == (1.0, {"gpu_fault/gpu": 1})
    assert found["since"] == noon // 86400 * 86400
    assert sums(book, noon, "")["since"] is None


def test_transactions_are_few_and_none_is_too_large() -> None:
    small = [(f"k{number}", entry(number)) for number in range(70)]
    assert [len(batch) for batch in batches(small)] == [32, 32, 6]
    wide = r.LedgerDay(day="2017-07-14", origin="o1", at=0.0, nodes={f"n{i}": r.NodeShare(1, 8) for i in range(12_000)})
    assert [len(batch) for batch in batches([("a", wide), ("b", wide), ("c", entry(1))])] == [1, 2]
    assert list(batches([])) == []
