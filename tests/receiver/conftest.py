"""Makes `from receiver_world import ...` work: tests are no package."""

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "monitor"))  # hook.py


@pytest.fixture
def ram() -> Iterator[Path]:
    """A folder in memory: plays of many lives need no disk that is waited for."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)
