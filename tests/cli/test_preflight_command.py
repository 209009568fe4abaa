"""`rankpulse preflight`, and what `rankpulse status` says of nodes that are refused."""

import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rankpulse.cli import status
from rankpulse.cli.main import app

WHY = "refused, because GPU 3 asks for a reset"


@pytest.fixture
def closed_port() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        yield f"127.0.0.1:{taken.getsockname()[1]}"


def preflight(*args: str, config: Path | None = None) -> tuple[int, str]:
    clean = {key: None for key in os.environ if key.startswith("RANKPULSE_")}
    more = ["--config", str(config)] if config else []
    result = CliRunner().invoke(app, ["preflight", *args, *more], env=clean)
    return result.exit_code, result.stdout


def test_without_a_store_everything_else_is_looked_at(closed_port: str, tmp_path: Path) -> None:
    code, said = preflight("--store", closed_port, "--run-dir", str(tmp_path), "--json")
    found = {row["check"]: row for row in json.loads(said)}
    assert code == 1
    assert found["store"]["level"] == "fail"
    assert found["run directory"]["level"] == found["clock"]["level"] == "ok"
    assert found["store"]["remedy"]


def test_where_the_gate_is_switched_off_that_is_said(closed_port: str, tmp_path: Path) -> None:
    config = tmp_path / "rankpulse.toml"
    config.write_text('[preflight]\nenabled = false\ncheckpoint_dir = "/not/there"\n')
    _, said = preflight("--store", closed_port, "--run-dir", str(tmp_path), config=config)
    assert "warn     gate: it is switched off: whatever is found here keeps nobody out" in said


@pytest.mark.live
def test_with_a_store_it_says_how_long_that_takes_and_what_is_wrong(etcd: str, tmp_path: Path) -> None:
    config = tmp_path / "rankpulse.toml"
    args = ("--store", etcd, "--run-dir", str(tmp_path))
    config.write_text(f'[preflight]\ncheckpoint_dir = "{tmp_path}"\ncheckpoint_free_mb = 0\n')
    code, said = preflight(*args, config=config)
    assert code == 0, said
    assert "ok       store: a read takes" in said
    assert "ok       checkpoint directory:" in said
    config.write_text('[preflight]\ncheckpoint_dir = "/not/there"\n')
    code, said = preflight(*args, config=config)
    assert code == 1
    assert "fail     checkpoint directory: /not/there: No such file or directory" in said


def test_status_names_nodes_that_are_refused_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    nothing = {"leader": None, "monitor": None, "arm": None, "armed": False, "cordons": [], "runs": []}
    node = {
        "node": "n1", "host": "h", "incarnation": 1, "workers": 0, "beat_at": None, "silence_s": None,
        "deadline_s": None, "suspect": None, "suspicion": None, "look": None, "leaving": False, "watched": True,
    }  # fmt: skip
    nodes = [{**node, "missing": {"preflight": WHY}}, {**node, "node": "n2", "missing": {"preflight": "gpu: unknown"}}]
    more = {"cluster": "c", "store": [], "refused": {}, "incidents_open": [], "nodes": nodes}
    status.page({**nothing, **more})
    said = capsys.readouterr().out
    assert f"n1: {WHY}" in said
    assert "n2: gpu" not in said
