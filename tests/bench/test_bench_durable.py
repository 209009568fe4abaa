"""The bench of checkpoint storms: its bound holds, and its arguments are looked at."""

import json

import pytest

from rankpulse.bench.durable import run


@pytest.mark.live
def test_a_small_storm(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("fsspec")
    assert run(nodes=6, megabytes=3, bandwidth=32, json=True) == 0
    report = json.loads(capsys.readouterr().out)
    assert [row["writers"] for row in report["rows"]] == [1, 2, 4, 6]
    for row in report["rows"]:
        assert 1 <= row["at_once"] <= row["writers"]
        assert 0 < row["part_s"] <= row["all_s"]
        assert 0 < row["read_s"] <= row["read_most_s"]


@pytest.mark.parametrize("wrong", [{"nodes": 0}, {"megabytes": -1}, {"bandwidth": 0}])
def test_bad_arguments_are_named(wrong: dict[str, int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(**wrong) == 2
    assert f"--{next(iter(wrong))}" in capsys.readouterr().err
