"""A failure log in a CSV file: what it is counted as, and which of its rows are left out."""

import csv
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from rankpulse.bench import failure_log
from rankpulse.bench.failure_log import read, row_of, systems

START = datetime(2002, 5, 1, tzinfo=UTC)


def row(system: str, day: float, prod: str = "2-May", nodes: str = "100") -> dict[str, str]:
    at = START + timedelta(days=day)
    started = f"{at.month}/{at.day}/{at.year} {at.hour}:{at.minute:02}"
    return {"System": system, "nodes": nodes, "node prod": prod, "Prob Started": started}


def test_a_system_is_watched_from_its_first_month_to_the_end_of_the_log() -> None:
    found = {one.name: one for one in systems([row("a", 10.0), row("a", 20.0), row("b", 1000.0, "May-02")])}
    assert found["a"].days == found["b"].days == pytest.approx(1000.0)
    assert found["a"].instants == pytest.approx((10.0, 20.0))


def test_rows_that_cannot_be_read_are_left_out() -> None:
    bad = [{**row("a", 5.0), "Prob Started": "soon"}, row("c", 5.0, nodes="")]
    assert [one.name for one in systems([*bad, row("a", 10.0, "before tracking")])] == ["a"]


def test_rates_and_trends_are_told() -> None:
    chance = random.Random(1)
    rows = [row("steady", 1000 * chance.random()) for _ in range(300)]
    rows += [row("falling", 1000 * chance.random() ** 2) for _ in range(300)]
    told = {cells[0]: cells for cells in map(row_of, systems(rows))}
    assert float(str(told["steady"][4])) == pytest.approx(3.0, abs=0.05)
    assert told["steady"][-1] == "constant"
    assert told["falling"][-1] == "falling"


def test_a_file_is_read_and_a_table_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.csv"
    with path.open("w", newline="") as file:
        written = csv.DictWriter(file, row("a", 1.0))
        written.writeheader()
        written.writerows([row("a", 10.0 * n) for n in range(20)] + [row("b", 3.0)])
    assert len(read(path)) == 21
    monkeypatch.setattr("sys.argv", ["failure_log", str(path), "--system", "a"])
    failure_log.main()
    out = capsys.readouterr().out
    assert "20" in out
    assert "\nb " not in out
