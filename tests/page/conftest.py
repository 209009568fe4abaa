"""A browser for all tests of a worker, and the page over a bad night."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from page_bench import CHROMIUM, DRIVER, Site, browser
from scene import all_standings


@pytest.fixture(scope="session")
def _chromium() -> Iterator[Any]:
    if not (CHROMIUM and DRIVER):
        if os.environ.get("CI"):
            pytest.fail("no chromium or chromedriver in PATH: on Debian and Ubuntu install chromium-driver")
        pytest.skip("no chromium or chromedriver in PATH: on Debian and Ubuntu install chromium-driver")
    with browser() as driver:
        yield driver


@pytest.fixture
def chromium(_chromium: Any) -> Iterator[Any]:
    """As wide as a desk, in the light, with nothing said so far."""
    import looking

    looking.size(_chromium, 1400)
    looking.media(_chromium)
    looking.complaints(_chromium)
    looking.asked_for(_chromium)
    yield _chromium
    _chromium.get("about:blank")


@pytest.fixture(scope="module")
def night() -> Iterator[Any]:
    """A page over a fleet in which every state is there; read it, and leave it as it is."""
    world = all_standings()
    site = Site(world.engine, lambda: world.now, store_version="3.5.9").start()
    yield site
    site.close()
