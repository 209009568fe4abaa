"""Looks at the machine around the GPUs, cheaply. What may hang is looked at by a process that is given up."""

import asyncio
import contextlib
import ctypes
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from rankpulse.agent.gpu_books import GpuBooks
from rankpulse.agent.preflight_look import Asked, Look
from rankpulse.core import host_rules
from rankpulse.core.health_book import CLEAR, INSPECT, SICK, WATCH, Condition
from rankpulse.core.host_rules import Port, Ports, Stuck, Waiting
from rankpulse.core.preflight import FAIL, OK

_SELDOM: Final = 4  # looks at disks and RDMA cards: one of so many
_PROCESSES_MAX, _AT_A_TIME = 10_000, 100
_UNSYNCHRONISED: Final = 0x40
_KTHREADD: Final = 2


@dataclass(slots=True)
class HostWatch:
    """One per agent. `root`: where /proc and /sys lie; `look`: at what may hang."""

    books: GpuBooks
    look: Look
    root: str = "/"
    clock_error_s: float | None = None  # by the kernel's own estimate; None: nobody keeps it in time
    pressure: float | None = None
    looked_at: float = -math.inf  # at the kernel's answers, last; monotonic
    ports: dict[str, Port] = field(default_factory=dict)  # as they were seen last
    _ports: Ports = field(default_factory=Ports)
    _links: Ports = field(default_factory=Ports)
    _waiting: Waiting = field(default_factory=Waiting)

    async def run(self) -> None:
        books, every_s, count = self.books, self.books.settings.host_poll_s, 0
        if not every_s:
            await asyncio.Event().wait()
        cards = os.path.join(self.root, "sys/class/infiniband")
        self.look.ports = cards if _names(cards) else ""
        while True:
            self.at_once()
            if count % 2 == 0:
                books.of_host("stuck_processes", self._waiting.look(await self._stuck()))
            if count % _SELDOM == 0 and (self.look.settings.checkpoint_dir or self.look.ports):
                await self.what_may_hang()
            count += 1
            await asyncio.sleep(every_s)

    def at_once(self) -> None:
        """Answers of the kernel alone."""
        books = self.books
        self.looked_at = books.clock.monotonic()
        self.pressure = host_rules.pressure(_text(os.path.join(self.root, "proc/pressure/memory")))
        before = "memory_pressure" in {finding.what for finding in books.book.open}
        books.of_host("memory_pressure", host_rules.of_pressure(self.pressure, before=before))
        self._told(self._links, host_rules.links(dict(self._interfaces())), "network_link")
        self.clock_error_s = clock_error_s()

    async def _stuck(self) -> list[Stuck]:
        """A few at a time: a node may have thousands of processes, and beats do not wait for them."""
        proc, found = os.path.join(self.root, "proc"), list[Stuck]()
        names = [name for name in _names(proc) if name.isdecimal()][:_PROCESSES_MAX]
        for begin in range(0, len(names), _AT_A_TIME):
            found += filter(None, (stuck(proc, int(name)) for name in names[begin : begin + _AT_A_TIME]))
            await asyncio.sleep(0)
        return found

    async def what_may_hang(self) -> None:
        seen = await self.look.at(Asked())
        for finding in seen.findings:
            what = {"network": "rdma_hangs"}.get(finding.check, "checkpoint_directory")
            if finding.level == FAIL:
                self.books.of_host(what, Condition(SICK, INSPECT, finding.text))
            elif finding.level == OK:
                self.books.of_host(what, CLEAR)
        if seen.ports:
            self.books.of_host("rdma_hangs", CLEAR)
            self._told(self._ports, seen.ports, "rdma_port")

    def samples(self, host: str) -> dict[str, dict[tuple[str, ...], float]]:
        """As named in `core.catalogue.HOST`."""
        found: dict[str, dict[tuple[str, ...], float]] = {}
        if self.clock_error_s is not None:
            found["rankpulse_host_clock_error_seconds"] = {(host,): self.clock_error_s}
        if self.pressure is not None:
            found["rankpulse_host_memory_pressure_ratio"] = {(host,): self.pressure / 100}
        ports = self.ports.values()
        found["rankpulse_host_port_up"] = {(host, port.name): float(port.up) for port in ports}
        found["rankpulse_host_port_errors"] = {
            (host, port.name, kind): float(count) for port in ports for kind, count in port.counters.items()
        }
        return found

    def _told(self, ports: Ports, seen: Sequence[Port], what: str) -> None:
        self.ports |= {port.name: port for port in seen}
        verdict, flapped = ports.look(seen)
        self.books.of_host(what, verdict)
        at = self.books.clock.utc()
        for name in flapped:
            text = f"{name} went down and came up again"
            self.books.told(self.books.book.passed(f"{what}_flap", Condition(WATCH, INSPECT, text), at))

    def _interfaces(self) -> Iterator[tuple[str, tuple[str, int]]]:
        """Those with a card behind them."""
        root = os.path.join(self.root, "sys/class/net")
        for name in _names(root):
            if os.path.exists(f"{root}/{name}/device"):
                downs = _text(f"{root}/{name}/carrier_down_count").strip()
                state = _text(f"{root}/{name}/operstate").strip()
                yield name, (state, int(downs) if downs.isdecimal() else 0)


def stuck(proc: str, pid: int) -> Stuck | None:
    """A program in state D; not a thread of the kernel's own."""
    head, _, tail = _text(f"{proc}/{pid}/stat").rpartition(")")
    fields = tail.split()
    if len(fields) > 19 and fields[0] == "D" and int(fields[1]) != _KTHREADD:
        return Stuck(pid, int(fields[19]), head.partition("(")[2])
    return None


class _Timex(ctypes.Structure):
    """struct timex, as far as it is read; the kernel fills 208 bytes."""

    _fields_ = (
        ("modes", ctypes.c_uint), ("offset", ctypes.c_long), ("freq", ctypes.c_long), ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long), ("status", ctypes.c_int), ("rest", ctypes.c_byte * 256),
    )  # fmt: skip


def clock_error_s() -> float | None:
    """The largest error that the kernel expects of its clock; None: it is not kept in time, or it does not say."""
    told = _Timex()
    try:
        result = ctypes.CDLL(None).adjtimex(ctypes.byref(told))
    except (AttributeError, OSError):
        return None
    return None if result < 0 or told.status & _UNSYNCHRONISED else told.maxerror / 1e6


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except OSError:
        return []


def _text(path: str) -> str:
    with contextlib.suppress(OSError), open(path, encoding="utf-8", errors="replace") as file:
        return file.read(1 << 16)
    return ""
