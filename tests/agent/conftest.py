"""Fixtures of the agent's tests: a short run directory, and real worker processes that end with the test."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from agent_bench import Crew


@pytest.fixture
def run_dir() -> Iterator[str]:
    """A directory with a short name: unix sockets have little room for theirs."""
    path = tempfile.mkdtemp(prefix="rp-")
    Path(path).chmod(0o1777)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def crew(run_dir: str) -> Iterator[Crew]:
    with Crew(run_dir) as crew:
        yield crew
