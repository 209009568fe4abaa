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
# the functions that we use, as nvml.h declares them
LIBRARY = r"""
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int said(const char *name) { const char *v = getenv(name); return v ? atoi(v) : 0; }
int nvmlInitWithFlags(unsigned f) { if (said("STUB_HANGS")) sleep(600); return said("STUB_INIT"); }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlSystemGetDriverVersion(char *v, unsigned n) { strncpy(v, "595.45.04", n); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) {
    if (i == 1 && said("STUB_LOST")) return 15;
    *h = (void *)(long)(i + 1); return 0; }
int nvmlDeviceGetName(void *h, char *v, unsigned n) { strncpy(v, "Stub", n); return 0; }
struct pci { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void *h, struct pci *p) { strcpy(p->bus_id, "00000000:0F:00.0"); return 0; }
int nvmlDeviceGetRemappedRows(void *h, unsigned *c, unsigned *u, unsigned *p, unsigned *f) {
    *c = *u = *f = 0; *p = said("STUB_PENDING"); return 0; }
struct field { unsigned id, scope; long long at, took; int type, ret; union { unsigned ui; double d; } value; };
int nvmlDeviceGetFieldValues(void *h, int n, struct field *f) {
    if (sizeof *f != 40) abort();
    f->ret = f->id == 230 ? 0 : 3; f->type = 1;
    f->value.ui = (long)h == 2 ? said("STUB_ACTION") : 0; return 0; }
const char *nvmlErrorString(int e) { return "stub"; }
"""


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


def library(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A libnvidia-ml that the real pynvml loads."""
    compiler = shutil.which("cc")
    if compiler is None or importlib.util.find_spec("pynvml") is None:
        assert "CI" not in os.environ, "CI must install gcc and nvidia-ml-py"
        pytest.skip("needs a C compiler (apt-get install gcc libc6-dev) and nvidia-ml-py (pip install -e '.[dev]')")
    source = directory / "stub.c"
    source.write_text(LIBRARY)
    subprocess.run([compiler, "-shared", "-fPIC", "-o", str(directory / "libnvidia-ml.so.1"), str(source)], check=True)
    in_front(monkeypatch, "LD_LIBRARY_PATH", directory)
