"""A small swarm on a real etcd with a real monitor."""

import msgspec
import pytest

from rankpulse.core import diagnosis as d
from rankpulse.drills.swarm.command import command
from rankpulse.drills.swarm.plan import Options
from rankpulse.drills.swarm.report import Report

pytestmark = pytest.mark.live


def test_who_dies_is_found_and_nobody_else_accused(capsys: pytest.CaptureFixture[str]) -> None:
    options = Options(
        nodes=16, gpus=2, runs=2, for_s=120.0, kill=1, preset="drill", warm_s=4.0, seen_s=115.0, early=True,
        connections=2,
    )  # fmt: skip
    assert command(options, (), "", "", True) == 0
    report = msgspec.json.decode(capsys.readouterr().out, type=Report)
    assert [one.after_s is not None for one in report.killed] == [True]
    assert report.accused == []
    assert set(report.incidents) <= {d.NODE_DEAD, d.CONTROL_PLANE_DELAY}
    assert report.beats_acknowledged > 0
    assert report.to_engine_p99_s is not None
    assert set(report.pages_s) == {"/state", "/metrics", "/"}


def test_without_a_monitor_it_says_so(etcd: str, cluster: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(Options(nodes=1, runs=1, kill=0, for_s=5.0), ("127.0.0.1:1",), cluster, "", False) == 2
    assert "no monitor leads" in capsys.readouterr().err
