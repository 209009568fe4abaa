"""What the machine around the GPUs tells: memory pressure, network ports, processes stuck in the kernel. Pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from rankpulse.core.health_book import CLEAR, INSPECT, SICK, WATCH, Condition, Verdict
from rankpulse.core.words import printable

_PRESSURE, _EASED = 10.0, 2.5  # percent of a minute in which every process waited for memory
_AVG60: Final = re.compile(r"^full .*\bavg60=(\d+\.\d+)", re.MULTILINE)
_LOOKS: Final = 3  # so often in a row a process has to be seen stuck
_NAMED: Final = 3


class Port(msgspec.Struct, frozen=True):
    """One port of an RDMA card. `state`: as the kernel has it, `4: ACTIVE`."""

    name: str
    state: str = ""
    counters: dict[str, int] = {}

    @property
    def up(self) -> bool:
        return "ACTIVE" in self.state


class Stuck(NamedTuple):
    """A process that cannot be interrupted: it waits in the kernel."""

    pid: int
    start: int
    name: str


def pressure(text: str) -> float | None:
    """Percent of the last minute in which all processes waited for memory, out of /proc/pressure/memory."""
    found = _AVG60.search(text)
    return float(found[1]) if found else None


def of_pressure(percent: float | None, *, before: bool) -> Verdict:
    if percent is None:
        return None
    text = f"short of memory: everything waits for it {percent:.0f} % of the time"
    return Condition(WATCH, INSPECT, text) if percent > (_EASED if before else _PRESSURE) else CLEAR


@dataclass(slots=True)
class Ports:
    """Which ports have been up. One that was never connected is nobody's fault."""

    _up: set[str] = field(default_factory=set)
    _downs: dict[str, int] = field(default_factory=dict)

    def look(self, ports: Iterable[Port]) -> tuple[Verdict, list[str]]:
        """Whether all that were up are up, and which went down and up since the last look."""
        seen = list(ports)
        self._up |= {port.name for port in seen if port.up}
        there = {port.name for port in seen if port.up}
        down = sorted(self._up - there)
        flapped = [port.name for port in seen if self._flapped(port)]
        text = printable(f"network port {', '.join(down[:8])} is down", 200)
        return (Condition(SICK, INSPECT, text) if down else CLEAR), flapped

    def _flapped(self, port: Port) -> bool:
        now = port.counters.get("link_downed")
        if now is None:
            return False
        before = self._downs.get(port.name, now)
        self._downs[port.name] = now
        return now > before and port.up


@dataclass(slots=True)
class Waiting:
    """Who was seen stuck, and how often in a row: many are for a moment, while they read or write."""

    _looks: dict[Stuck, int] = field(default_factory=dict)

    def look(self, stuck: Iterable[Stuck]) -> Verdict:
        self._looks = {one: self._looks.get(one, 0) + 1 for one in stuck}
        long = sorted((one for one, looks in self._looks.items() if looks >= _LOOKS), key=lambda one: one.pid)
        if not long:
            return CLEAR
        names = ", ".join(f"{printable(one.name, 32)} ({one.pid})" for one in long[:_NAMED])
        return Condition(WATCH, INSPECT, f"{len(long)} processes are stuck in the kernel: {names}")


def links(known: Mapping[str, tuple[str, int]]) -> list[Port]:
    """Network interfaces by name, with their state and how often the carrier was lost, as ports."""
    named = {"up": "4: ACTIVE"}
    return [Port(name, named.get(state, state), {"link_downed": downs}) for name, (state, downs) in known.items()]
