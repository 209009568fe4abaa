"""The real engine in stretches of the trace: what it decides, and that leaving out quiet time changes nothing."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rankpulse.bench.detect import page, pauses, plot, straight, trace
from rankpulse.bench.detect.deaths import die, victims
from rankpulse.bench.detect.job import Death, Timeline
from rankpulse.bench.detect.past import Past
from rankpulse.bench.detect.patrol import FLEET, TAIL_S, Span, node_day, patrol, stretches
from rankpulse.bench.detect.plan import quick
from rankpulse.bench.detect.points import DEFAULT, FAST
from rankpulse.bench.detect.run import run
from rankpulse.bench.detect.shift import work
from rankpulse.bench.detect.trace import Spans
from rankpulse.core.records import FleetLearned

CLI = (sys.executable, "-m", "rankpulse.cli.main", "bench", "detect")


def small(seed: int = 1, scale: float = 1.0, seconds: float = 600.0) -> trace.Day:
    return trace.make_day(seed, 0, scale, nodes=16, seconds=seconds)


def test_a_dead_node_is_told_and_a_rack_in_one_decision() -> None:
    day = small()
    beats, line = node_day(day), Timeline(day)
    told = die(day, beats, line, FAST, [Death(frozenset({3}), 300.0), Death(frozenset(range(4, 8)), 300.0)])
    assert (told.before, told.rack_decisions) == (0, [1])
    assert 5.0 < told.nodes_s[0] < 8.0
    assert told.racks_s[0] < 18.0


@pytest.mark.parametrize("kind", pauses.KINDS)
def test_no_pause_of_observer_or_store_convicts_anybody(kind: str) -> None:
    assert pauses.convicted(pauses.paused(1, 0, kind, 3), FAST) == 0


def test_a_freeze_that_healed_is_learned_also_where_the_day_is_not_driven_on() -> None:
    day = trace.make_day(1, 0, 1e-9, nodes=8, seconds=1700.0)
    day = dataclasses.replace(day, freezes=Spans(np.array([300.0]), np.array([309.0]), np.array([2])))
    found = patrol(day, node_day(day), Timeline(day), DEFAULT)
    assert found.convicted == []
    record = found.learned[FLEET]
    assert isinstance(record, FleetLearned)
    assert (record.healed, [round(seconds) for seconds in record.healed_s]) == (1, [10])


def test_stretches_begin_early_enough_and_join() -> None:
    day = trace.make_day(1, 0, 1e-9, nodes=8, seconds=1700.0)  # before the first checkpoint, and after an evaluation
    silent = [Span(300.0, 305.0), Span(330.0, 332.0), Span(600.0, 606.0)]
    found = stretches(day, silent, 0.0)
    assert [(span.begin, span.end) for span in found] == [(240.0, 332.0 + TAIL_S), (540.0, 606.0 + TAIL_S)]
    assert stretches(day, silent[:1], 280.0)[0].begin == 280.0


def test_a_stretch_inherits_lateness_unless_others_were_silent_too() -> None:
    day = trace.make_day(1, 0, 1e-9, nodes=8, seconds=1700.0)
    freezes = Spans(np.array([300.0, 500.0, 500.1]), np.array([303.0, 504.0, 504.0]), np.array([1, 2, 3]))
    day = dataclasses.replace(day, freezes=freezes)
    told = Past(day, node_day(day)).before(600.0)
    assert {(beat.node, beat.inc) for beat in told} == {(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)}
    assert min(beat.arrived for beat in told) > 600.0 - 2 * 510.0
    assert Past(day, node_day(day)).before(1200.0) == []


@pytest.mark.live
def test_quiet_time_left_out_changes_nothing() -> None:
    """Weather forty times as bad as usual, and two freezes that nothing tells from deaths."""
    day = trace.make_day(4, 0, 40.0, nodes=16, seconds=1200.0)
    start, node = np.array([300.0, 1000.0]), np.array([3, 7])
    day = dataclasses.replace(day, freezes=Spans(start, start + 14.0, node))
    for way in (FAST, straight.UNSURE):
        row = straight.both(day, way)
        assert row["same"], row
        assert row["straight"], "this seed was meant to have convictions"
        assert row["driven_s"] <= day.seconds


def test_victims_are_spread_over_the_day() -> None:
    found = victims(trace.make_day(1, 0), 200, racks=True)
    assert all(len(death.nodes) == 4 for death in found)
    assert max(death.at for death in found) > 60_000 > 20_000 > min(death.at for death in found)


@pytest.mark.live
def test_a_day_depends_on_its_number_alone() -> None:
    few = {"seconds": 900.0, "deaths": 3, "our_deaths": 1, "layer_days": 0, "manner_days": 0}
    plan = msgspec.structs.replace(quick(5, 1.0, 2), **few)
    assert work(plan, 1) == work(plan, 1)


@pytest.mark.live
def test_the_command_names_every_detector(tmp_path: Path) -> None:
    args = ("--quick", "--days", "1", "--seed", "3", "--json", "--out", str(tmp_path))
    done = subprocess.run([*CLI, *args], capture_output=True, text=True, timeout=280, check=True)
    report = json.loads(done.stdout)
    names = [row["name"] for row in report["detectors"]]
    assert names[:2] == ["rankpulse fast", "rankpulse default"]
    assert {"fixed 30 s", "Bertier", "phi, Akka", "phi, Cassandra", "5 x max (NVRx)"} <= set(names)
    wanted = {"detection_mean_s", "detection_p99_s", "detection_max_s", "mistakes_per_rank_day"}
    wanted |= {"false_restarts_per_10k_gpu_days", "job_seconds_lost_per_day"}
    assert all(wanted <= row.keys() for row in report["detectors"])
    assert "fixed 30 s" in (tmp_path / "report.md").read_text()
    assert "## What was promised, what was measured" in page.page([report], [], "a recording")
    assert plot.svg(report).count("<circle") + plot.svg(report).count("<polygon") == len(names)
    again = subprocess.run([*CLI, *args], capture_output=True, text=True, timeout=60, check=True)
    assert json.loads(again.stdout)["detectors"] == report["detectors"]


@pytest.mark.parametrize("reports", [[], ["none.json"], ["other.json"], ["broken.json"]], ids=str)
def test_a_page_that_cannot_be_made_says_how_one_is(
    tmp_path: Path, reports: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other.json").write_text('{"scale": 5.0}')
    (tmp_path / "broken.json").write_text('{"scale"')
    assert page.main(str(tmp_path / "page"), *(str(tmp_path / name) for name in reports)) == 2
    assert "that of --scale 1 among them" in capsys.readouterr().err
    assert not (tmp_path / "page").exists()


@pytest.mark.parametrize("asked", [{"scale": 2.0}, {"days": 0}, {"jobs": 0}, {"seed": -1}])
def test_what_is_asked_wrongly_is_named(asked: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(**asked) == 2
    assert f"--{next(iter(asked))}" in capsys.readouterr().err
