"""Recorded traces: what a recording holds, and that every detector can be run over one."""

import itertools
from pathlib import Path

import pytest

from rankpulse.bench.detect import record, replay, stress
from rankpulse.bench.detect.record import Head


def made(path: Path, seconds: float = 100.0, nodes: int = 8, dead_at: float = 50.0) -> Path:
    """A recording of a quiet hour with a death, as the recorder would write it."""
    rows: list[record.Row] = []
    for tick in range(int(seconds * 4)):
        at = tick / 4
        rows += [["h", at, node, tick // 4, at, int(min(at, dead_at) / 2)] for node in range(nodes) if tick % 4 == 1]
        rows += [["c", at]] if tick % 4 == 2 else []
        rows.append(["t", at])
    rows = [row for row in rows if not (row[0] == "h" and row[2] >= nodes - 4 and row[1] > dead_at)]
    head = Head(
        nodes=nodes,
        seconds=seconds,
        seed=1,
        interval_s=1.0,
        table=stress.timetable(seconds, nodes // 4, 1),
        dead=list(range(nodes - 4, nodes)),
        dead_at=dead_at,
        etcd="3.5",
        machine="none",
    )
    record.write(path, head, rows)
    return path


def test_every_detector_is_run_over_a_recording(tmp_path: Path) -> None:
    rows = {row["name"]: row for row in replay.replay(made(tmp_path / "trace.gz"))}
    assert rows["fixed 30 s"]["detection_s"] == pytest.approx(29.25, abs=1.0)
    assert rows["rankpulse fast"]["detection_s"] < 18.0
    assert rows["rankpulse default"]["detection_s"] is not None
    assert all(row["mistakes"] == 0 for row in rows.values())
    assert "rankpulse fast" in replay.table(list(rows.values()))


def test_a_recording_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = made(tmp_path / "trace.gz")
    head, rows = record.read(path)
    record.write(tmp_path / "again.gz", head, rows)
    assert (tmp_path / "again.gz").read_bytes() == path.read_bytes()


def test_troubles_take_turns_and_end_before_the_death() -> None:
    table = stress.timetable(300.0, 4, 7)
    assert table == stress.timetable(300.0, 4, 7)
    assert {trouble.kind for trouble in table} >= {
        stress.CPU,
        stress.STORE,
        stress.STALL,
        stress.OBSERVER,
        stress.DEATH,
    }
    assert all(one.until <= other.at for one, other in itertools.pairwise(table))
    assert table[-1].kind == stress.DEATH


@pytest.mark.parametrize(
    ("out", "seconds", "nodes", "said"),
    [
        ("x", 10.0, 16, "--seconds must be between 75 and 86400, not 10"),
        ("x", float("nan"), 16, "--seconds must be between 75 and 86400, not nan"),
        ("x", 120.0, 6, "--nodes must be a multiple of 4 from 8 to 256, not 6"),
        ("x", 120.0, 4, "--nodes must be a multiple of 4 from 8 to 256, not 4"),
        ("nowhere/x", 120.0, 8, "No such file or directory: name a file that can be written"),
        (".", 120.0, 8, "Is a directory: name a file that can be written"),
    ],
)
def test_what_cannot_be_recorded_is_said_at_once(
    tmp_path: Path, out: str, seconds: float, nodes: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record.run(str(tmp_path / out), seconds, nodes, 1) == 2
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.drill
def test_a_recording_from_real_sockets(tmp_path: Path) -> None:
    assert record.run(str(tmp_path / "trace.gz"), 80.0, 8, 1) == 0
    rows = {row["name"]: row for row in replay.replay(tmp_path / "trace.gz")}
    assert rows["rankpulse fast"]["detection_s"] is not None
