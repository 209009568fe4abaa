"""Facts about this machine."""

import contextlib
import os
import platform
import re
import resource
import socket
from functools import cache
from importlib import metadata
from typing import Final, NamedTuple

from rankpulse.core.records import Scalar

_FILES: Final = 16384


class Host(NamedTuple):
    """What does not change while the machine is up. `boot_id` names one boot of one kernel."""

    name: str
    boot_id: str
    kernel: str
    cores: int
    memory_bytes: int


def read() -> Host:
    return Host(
        name=socket.gethostname()[:256],
        boot_id=_line("/proc/sys/kernel/random/boot_id"),
        kernel=platform.release(),
        cores=os.cpu_count() or 0,
        memory_bytes=_meminfo().get("MemTotal", 0),
    )


def allow_files() -> None:
    """Every worker, torchrun and conversation costs descriptors: as many as the system lets us have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if hard == resource.RLIM_INFINITY else min(hard, _FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def facts(host: Host) -> dict[str, Scalar]:
    """For the node's state. What moves all the time is rounded, for the state is written on change."""
    memory, total = _meminfo().get("MemAvailable", 0), host.memory_bytes or 1
    try:
        load = round(os.getloadavg()[0])
    except OSError:
        load = -1
    return {
        "host": host.name,
        "boot_id": host.boot_id,
        "kernel": host.kernel,
        "cores": host.cores,
        "memory_bytes": host.memory_bytes,
        "memory_available_percent": round(100 * memory / total, -1),
        "load": load,
    }


def exit_codes(kernel: str) -> str:
    """Why exit codes may be missing on this kernel, or ""."""
    numbers = tuple(int(word) for word in re.findall(r"\d+", kernel)[:2])
    if numbers >= (6, 15):
        return ""
    return f"kernel {kernel} tells them only until the launcher has collected its worker (6.15 and later always do)"


@cache
def version() -> str:
    """It costs a file to read, and is asked for all the time."""
    try:
        return metadata.version("rankpulse")
    except metadata.PackageNotFoundError:
        return "unknown"


def _line(path: str) -> str:
    try:
        with open(path) as file:
            return file.readline().strip()
    except OSError:
        return ""


def _meminfo() -> dict[str, int]:
    """Bytes by name."""
    try:
        with open("/proc/meminfo") as file:
            rows = [line.replace(":", "").split() for line in file]
    except OSError:
        return {}
    return {row[0]: int(row[1]) * 1024 for row in rows if len(row) == 3}
