"""`rankpulse gpu`, over the real binding and a library of ours."""

import json
import os
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rankpulse.cli.main import app

sys.path.insert(0, str(Path(__file__).parents[1] / "agent"))

from gpu_bench import NvmlStub, library


def gpu(*args: str, run_dir: Path, gpus: int = 2) -> tuple[int, str]:
    clean = {key: None for key in os.environ if key.startswith("RANKPULSE_")}
    config = run_dir / "rankpulse.toml"
    config.write_text(f"[preflight]\ngpus = {gpus}\n[gpu]\ncall_timeout_s = 1.0\n")
    result = CliRunner().invoke(app, ["gpu", "--config", str(config), "--run-dir", str(run_dir), *args], env=clean)
    return result.exit_code, result.stdout


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NvmlStub:
    return library(tmp_path, monkeypatch)


@pytest.mark.live
def test_gpus_that_are_well_and_who_holds_them(stub: NvmlStub, tmp_path: Path) -> None:
    stub.say({"1.temperature": 71, "1.process": 4711})
    code, said = gpu("--processes", run_dir=tmp_path)
    assert code == 0, said
    assert "ok       GPU 1 (0000:10:00) NVIDIA Stub: 71 C" in said
    assert "pid 4711 holds 1.0 GiB" in said
    assert "driver 595.45.04, by a look now" in said


@pytest.mark.live
def test_gpus_that_are_not_and_one_that_hangs(stub: NvmlStub, tmp_path: Path) -> None:
    stub.say({"gpus": 3, "0.field:230": 2, "1.hang:nvmlDeviceGetName": 1, "2.error:nvmlDeviceGetFieldValues": 15})
    code, said = gpu("--json", run_dir=tmp_path, gpus=4)
    known = json.loads(said)
    assert code == 1
    assert [(row["level"], row["action"]) for row in known["gpus"]] == [
        ("broken", "drain_reboot"), ("unknown", "reset_gpu"), ("broken", "drain_reboot"),
    ]  # fmt: skip
    assert [finding["what"] for finding in known["findings"]] == ["missing"]


@pytest.mark.live
def test_a_driver_that_does_not_start_is_said(stub: NvmlStub, tmp_path: Path) -> None:
    stub.say({"error:nvmlInitWithFlags": 18})
    code, said = gpu(run_dir=tmp_path)
    assert "different versions" in said
    assert code == 0, "what runs goes on"


def test_a_machine_without_gpus(tmp_path: Path) -> None:
    code, said = gpu(run_dir=tmp_path, gpus=0)
    assert (code, said) == (0, "no NVIDIA GPU on this machine\n")
