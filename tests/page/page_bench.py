"""A monitor's page over an engine that a test drives, served from a thread; and a browser to look at it."""

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from doors import open_door
from prometheus_client import CollectorRegistry

from rankpulse.core.engine import Engine
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.http import Pages
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.serve import OnCall

UTC = 1_800_000_000.0


class Site:
    """`about` and the world may be changed between `start` and `stop`; `pause` holds the server's loop up."""

    def __init__(self, engine: Engine, now: Callable[[], float], **about: Any) -> None:
        self.engine, self.about = engine, About(**{"monitor": "mon-a", "version": "1", "leads": True, **about})
        self._loop, self._now = asyncio.new_event_loop(), now
        self.url, self.page = "", self._oncall("life-1")
        self._pages: Pages | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def _oncall(self, token: str) -> OnCall:
        return OnCall(self.engine, lambda: self.about, Clock(now=self._now, utc=lambda: UTC + self._now()), token)

    def call(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    def do(self, act: Callable[[], Any]) -> Any:
        """In the server's thread, so that it never sees half of it."""

        async def run() -> Any:
            return act()

        return self.call(run())

    def start(self, listen: str = "127.0.0.1:0", token: str = "life-1") -> "Site":
        self.page = self._oncall(token)
        self._pages = Pages(
            state=dict, alive=str, ready=str, registry=CollectorRegistry(), page=self.page.routes(), door=open_door()
        )  # fmt: skip
        self.url = self.call(self._pages.start(listen))
        return self

    def stop(self) -> None:
        if self._pages is not None:
            self.call(self._pages.stop())
            self._pages = None

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)


CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
DRIVER = shutil.which("chromedriver") or ""
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-dev-shm-usage",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions",
    "--hide-scrollbars", "--force-color-profile=srgb",
)  # fmt: skip


@contextmanager
def browser(width: int = 1400, height: int = 1000, *flags: str) -> Iterator[Any]:
    """A Chromium of its own, with a profile that goes with it."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    profile = tempfile.mkdtemp(prefix="chromium-")
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}", *flags):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER, env={**os.environ, "HOME": profile}))
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)  # a window is never as narrow as a phone
    try:
        yield driver
    finally:
        driver.quit()
        shutil.rmtree(profile, ignore_errors=True)
