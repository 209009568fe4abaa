"""Makes `from published import ...` work: tests are no package."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def packages() -> Path:
    """A folder with the packages of schemas/requirements.txt."""
    from published import place

    return place()
