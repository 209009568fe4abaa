"""GPUs for tests: a stand-in for pynvml, and for the driver's library itself where there are a C compiler and pynvml.

Both read a JSON file or the environment anew in every process that looks, so that a test can break and mend GPUs.
"""

import importlib.util
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

STAND_IN = """
import json, os, time, types
_say = json.load(open(os.environ["GPU_BENCH"]))
class NVMLError(Exception):
    def __init__(self, value):
        super().__init__(f"NVML error {value}")
        self.value = value
def _check(what):
    if _say.get("hangs") == what:
        time.sleep(600)
    if _say.get("errors", {}).get(what):
        raise NVMLError(_say["errors"][what])
def nvmlInit():
    _check("init")
def nvmlDeviceGetCount():
    return len(_say["gpus"])
def nvmlSystemGetDriverVersion():
    return b"595.45.04"
def nvmlDeviceGetHandleByIndex(index):
    if _say["gpus"][index].get("error"):
        raise NVMLError(_say["gpus"][index]["error"])
    return _say["gpus"][index]
def nvmlDeviceGetName(gpu):
    return "NVIDIA H200"
def nvmlDeviceGetPciInfo(gpu):
    return types.SimpleNamespace(busId=b"00000000:0F:00.0")
def nvmlDeviceGetRemappedRows(gpu):
    return 0, 0, int(gpu.get("pending", 0)), int(gpu.get("failed", 0))
def nvmlDeviceGetFieldValues(gpu, ids):
    assert ids == [230]
    action = gpu.get("action", 0)
    value = types.SimpleNamespace(uiVal=action)
    return [types.SimpleNamespace(nvmlReturn=3 if action is None else 0, valueType=1, value=value)]
"""
SOURCE = Path(__file__).parent / "nvml_stub" / "nvml.c"


class GpuBench:
    """`say` what the GPUs are like from now on."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "gpus.json"
        (directory / "pynvml.py").write_text(STAND_IN)
        self.say([{}, {}])

    def say(self, gpus: list[dict[str, Any]], **more: Any) -> None:
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps({"gpus": gpus, **more}))
        draft.rename(self.path)


def in_front(monkeypatch: pytest.MonkeyPatch, name: str, directory: Path) -> None:
    """For processes that are started from here."""
    before = os.environ.get(name)
    monkeypatch.setenv(name, f"{directory}:{before}" if before else str(directory))


def bench(directory: Path, monkeypatch: pytest.MonkeyPatch) -> GpuBench:
    made = GpuBench(directory)
    in_front(monkeypatch, "PYTHONPATH", directory)
    monkeypatch.setenv("GPU_BENCH", str(made.path))
    return made


class NvmlStub:
    """A libnvidia-ml that the real pynvml loads: `say` what it answers from now on, see `nvml_stub/nvml.c`."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / "nvml.script"
        self._said: dict[str, int | str] = {}
        self._events: list[str] = []
        self.say(gpus=2)

    def say(self, changes: dict[str, int | str | None] | None = None, **more: int | str | None) -> None:
        """None: it is not said any more."""
        for key, value in {**(changes or {}), **more}.items():
            if value is None:
                self._said.pop(key, None)
            else:
                self._said[key] = value
        draft = self.path.with_suffix(".draft")
        draft.write_text("".join(f"{line}\n" for line in [*(f"{k} {v}" for k, v in self._said.items()), *self._events]))
        draft.rename(self.path)

    def event(self, gpu: int, xid: int, *, kind: int = 8, gi: int = 0xFFFFFFFF, ci: int = 0xFFFFFFFF) -> None:
        self._events.append(f"event {len(self._events) + 1} {gpu} {kind} {xid} {gi} {ci}")
        self.say()

    @staticmethod
    def bus(gpu: int) -> str:
        return f"0000:{0x0F + gpu:02x}:00"


def library(directory: Path, monkeypatch: pytest.MonkeyPatch, *, without: tuple[str, ...] = ()) -> NvmlStub:
    """For processes that are started from here. `without`: functions that this library does not have."""
    compiler = shutil.which("cc")
    if compiler is None or importlib.util.find_spec("pynvml") is None:
        assert "CI" not in os.environ, "CI must install gcc and nvidia-ml-py"
        pytest.skip("needs a C compiler (apt-get install gcc libc6-dev) and nvidia-ml-py (pip install -e '.[dev]')")
    output = ["-shared", "-fPIC", "-o", str(directory / "libnvidia-ml.so.1"), str(SOURCE)]
    subprocess.run([compiler, *(f"-D{name}=absent_{name}" for name in without), *output], check=True)
    in_front(monkeypatch, "LD_LIBRARY_PATH", directory)
    stub = NvmlStub(directory)
    monkeypatch.setenv("NVML_STUB", str(stub.path))
    return stub
