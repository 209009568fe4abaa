"""What `rankpulse bench engine` makes of its samples; the figures themselves are the machine's."""

import json

import pytest
from typer.testing import CliRunner

from rankpulse.bench import engine
from rankpulse.bench.engine_tables import show
from rankpulse.cli.main import app

SMALL = ((4, 2), (16, 2), (4, 1))


@pytest.fixture
def fleets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "FLEETS", SMALL)
    monkeypatch.setattr(engine, "QUICK_TURNS", 10)


def test_every_fleet_has_its_figures_and_its_ratio(fleets: None, capsys: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(app, ["bench", "engine", "--quick", "--json"])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    rows = {(row["nodes"], row["ranks"]): row for row in report["fleets"]}
    assert tuple(rows) == SMALL
    assert rows[4, 2]["ratio"] == rows[4, 1]["ratio"] == 1.0
    for row in rows.values():
        assert row["beats_per_s"] > 0
        assert 0 < row["best_us"] <= row["us_per_beat"]
        assert row["decode_us"] > 0
        assert set(row["ticks"]) == {"quiet", "late", "back"}
    show(report)
    assert "16" in capsys.readouterr().out


def test_the_fleet_is_watched_and_its_outage_is_seen(fleets: None) -> None:
    lot = engine.Lot(8, 2)
    for _ in range(8):
        lot.turn()
    seen = lot.snapshot()
    [run] = seen["runs"].values()
    assert (run["world_size"], len(run["ranks"]), seen["incidents"]) == (16, 16, [])
    assert {row["phase"] for row in run["ranks"]} == {"train"}
    lot.outage()
    assert [incident["klass"] for incident in lot.snapshot()["incidents"]] == ["control_plane_delay"]
