"""What a process costs by its own account in /proc, and how soon a monitor's pages answer."""

import asyncio
import os
import re
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

TICKS: Final = os.sysconf("SC_CLK_TCK")
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
MB: Final = 1e6
PAGES: Final = ("/state", "/metrics", "/")
_BUCKET: Final = re.compile(r'^(\w+)_bucket\{.*?le="([^"]+)"[^}]*\} (\S+)', re.MULTILINE)


class Process:
    """CPU and memory of one process, from when this was made."""

    def __init__(self, pid: int) -> None:
        self._pid, self._at = pid, time.monotonic()
        self._cpu, self.most_mb = self.cpu_s(), 0.0
        self._last = self._at, self._cpu

    def cpu_s(self) -> float:
        """Seconds of processor so far, 0 when it is gone."""
        try:
            fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / TICKS

    def memory_mb(self) -> float:
        """Resident now."""
        try:
            now = int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * PAGE / MB
        except OSError:
            return 0.0
        self.most_mb = max(self.most_mb, now)
        return now

    def cores(self) -> float:
        """Processors in use, on average since the beginning."""
        return (self.cpu_s() - self._cpu) / max(time.monotonic() - self._at, 0.001)

    def cores_lately(self) -> float:
        """Since this was last asked."""
        before, self._last = self._last, (time.monotonic(), self.cpu_s())
        return (self._last[1] - before[1]) / max(self._last[0] - before[0], 0.001)


async def answer_s(url: str) -> tuple[float, bytes]:
    """Seconds until the whole answer is here. Raises OSError."""
    began = time.monotonic()

    def fetch() -> bytes:
        with urllib.request.urlopen(url, timeout=20.0) as answer:  # noqa: S310 - our own monitor's
            return bytes(answer.read())

    body = await asyncio.to_thread(fetch)
    return time.monotonic() - began, body


def buckets(metrics: str, name: str) -> dict[float, float]:
    """A histogram in the text of /metrics: how many lie at or below each upper bound."""
    return {float(edge): float(count) for found, edge, count in _BUCKET.findall(metrics) if found == name}


def quantile(now: Mapping[float, float], before: Mapping[float, float], share: float) -> float | None:
    """The upper bound below which this share lies of what came between two readings; None: nothing came."""
    rows = sorted((edge, count - before.get(edge, 0.0)) for edge, count in now.items())
    total = rows[-1][1] if rows else 0.0
    return next((edge for edge, count in rows if count >= share * total), None) if total else None


def value(metrics: str, name: str, labels: str = "") -> float | None:
    """One sample. `labels`: as they are written, with braces."""
    for line in metrics.splitlines():
        if line.startswith(name + labels + " "):
            return float(line.rpartition(" ")[2])
    return None
