"""The program that adds up over two GPUs, over a torch of ours: what it asks for, and what it says of the answers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rankpulse.agent.preflight_look import COLLECTIVE

TORCH = """
import os
from types import SimpleNamespace

TOTALS = [float(one) for one in os.environ["TOTALS"].split()]

class Tensor:
    def __init__(self, value, device):
        self.value, self.device = value, device
    def __eq__(self, other):
        return SimpleNamespace(all=lambda: self.value == other)

def full(shape, value, device):
    assert shape == (1 << 20,)
    return Tensor(value, device)

def empty_like(one):
    return Tensor(None, one.device)
"""
CUDA = """
import os

def device_count():
    return int(os.environ["GPUS"])

def synchronize(number):
    assert number in (0, 1)
"""
NCCL = """
from torch import TOTALS

def all_reduce(inputs, outputs):
    assert [(one.value, one.device) for one in inputs] == [(1.0, "cuda:0"), (2.0, "cuda:1")]
    assert [one.device for one in outputs] == ["cuda:0", "cuda:1"]
    if not TOTALS:
        raise RuntimeError("NCCL Error 2: unhandled system error")
    for one, total in zip(outputs, TOTALS):
        one.value = total
"""


def said(directory: Path, *, gpus: int, totals: str) -> dict[str, str]:
    """What the program prints, as the agent runs it."""
    cuda = directory / "torch" / "cuda"
    cuda.mkdir(parents=True)
    (directory / "torch" / "__init__.py").write_text(TORCH)
    (cuda / "__init__.py").write_text(CUDA)
    (cuda / "nccl.py").write_text(NCCL)
    path = os.pathsep.join([str(directory), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    env = {**os.environ, "PYTHONPATH": path, "GPUS": str(gpus), "TOTALS": totals}
    ran = subprocess.run(COLLECTIVE, env=env, capture_output=True, text=True, timeout=60, check=True)
    answer = json.loads(ran.stdout)
    assert isinstance(answer, dict)
    return answer


@pytest.mark.parametrize(
    ("gpus", "totals", "level", "part"),
    [
        (2, "3.0 3.0", "ok", "a sum over two GPUs took"),
        (8, "3.0 3.0", "ok", "a sum over two GPUs took"),
        (2, "3.0 2.0", "fail", "a sum over two GPUs came out wrong on GPU 1"),
        (2, "", "fail", "RuntimeError: NCCL Error 2: unhandled system error"),
        (1, "3.0 3.0", "unknown", "it takes two GPUs, and torch sees 1"),
    ],
)
def test_what_it_says(tmp_path: Path, gpus: int, totals: str, level: str, part: str) -> None:
    [(found, text)] = said(tmp_path, gpus=gpus, totals=totals).items()
    assert (found, part in text) == (level, True), text


def test_without_torch_it_does_not_know(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    ran = subprocess.run(
        COLLECTIVE, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60, check=True
    )
    assert json.loads(ran.stdout) == {"unknown": "torch is not in the agent's environment (no torch here)"}
    assert COLLECTIVE[0] == sys.executable
