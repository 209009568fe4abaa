"""A Prometheus for tests: the real one, with its tool. In CI it must be there; elsewhere its tests are skipped."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

PACKAGE = dict.fromkeys(("amtool", "prometheus-alertmanager"), "prometheus-alertmanager")


@pytest.fixture(scope="session")
def binary() -> Callable[[str], str]:
    """Path of a program of the system packages `prometheus` and `prometheus-alertmanager`."""

    def find(name: str) -> str:
        path = shutil.which(name)
        if path is None and os.environ.get("CI"):
            pytest.fail(f"CI must install {name}: apt-get install {PACKAGE.get(name, 'prometheus')}")
        if path is None:
            pytest.skip(f"{name} is not here: apt-get install {PACKAGE.get(name, 'prometheus')}")
        return path

    return find


@pytest.fixture(scope="session")
def rule_file() -> Path:
    from rankpulse.dashboards.shipped import OUT

    return OUT / "rules" / "rankpulse.yml"
