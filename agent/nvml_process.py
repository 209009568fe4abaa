"""The process that calls NVML, as its keeper sees it: orders, lines, a deadline, and an end that waits for nobody."""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from rankpulse.agent.clock import Clock
from rankpulse.core.gpu_reading import LINE_MAX, Said, parse

CHILD: Final = (sys.executable, "-P", "-m", "rankpulse.agent.nvml_child")
INIT, EVENTS = "init", "events"
_DIES_S: Final = 1.0
_GRACE_S: Final = 0.5  # what it said while this process was held up is heard first


class Hangs(Exception):
    """It said nothing for too long. `where`: what it touched last."""

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self.where = where


class Ended(Exception):
    """It ended by itself. `told`: and said why."""

    def __init__(self, *, told: bool = False) -> None:
        super().__init__()
        self.told = told


class NvmlProcess:
    """One of them. `limits`: seconds without a word, by what it touches; of a GPU `call_s`."""

    def __init__(self, process: Process, limits: Mapping[str, float], call_s: float, clock: Clock) -> None:
        self._process, self._limits, self._call_s, self._clock = process, limits, call_s, clock
        self.where, self.since, self._owed = INIT, clock.monotonic(), 0

    @classmethod
    async def start(
        cls, gpus: Iterable[str] | None, *, events: bool, wait_ms: int, start_s: float, call_s: float, clock: Clock,
        command: Sequence[str] = CHILD,
    ) -> "NvmlProcess":  # fmt: skip
        """Raises OSError."""
        asked = {"gpus": None if gpus is None else list(gpus), "events": events, "wait_ms": wait_ms}
        process = await asyncio.create_subprocess_exec(
            *command, json.dumps(asked), stdin=PIPE, stdout=PIPE, stderr=DEVNULL, limit=LINE_MAX
        )
        return cls(process, {INIT: start_s, EVENTS: call_s + wait_ms / 1000}, call_s, clock)

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, bus: str, *, slow: bool, processes: bool = False) -> None:
        if not self._owed and self.where not in (INIT, EVENTS):
            self.where, self.since = "", self._clock.monotonic()
        self._owed += 1
        order = {"read": f"{bus}.0", "slow": slow, "processes": processes}
        assert self._process.stdin
        with contextlib.suppress(OSError, RuntimeError):  # that it has ended is heard on its other side
            self._process.stdin.write(json.dumps(order).encode() + b"\n")

    def deadline(self) -> float:
        """Until when a word is expected."""
        if not self._owed and self.where not in (INIT, EVENTS):
            return float("inf")
        return self.since + self._limits.get(self.where, self._call_s)

    async def said(self, until: float) -> Said | None:
        """The next line; None: there is none until then. Raises `Hangs` where a word is overdue, and `Ended`."""
        said = await self._line(min(until, self.deadline()) - self._clock.monotonic())
        if said is None and self._clock.monotonic() >= self.deadline():
            said = await self._line(_GRACE_S)
            if said is None:
                raise Hangs(self.where)
        if said is not None:
            self._hear(said)
        return said

    def _hear(self, said: Said) -> None:
        self.since = self._clock.monotonic()
        if said.begin:
            self.where = said.begin
        elif said.driver is not None or said.events_lost is not None:
            self.where = ""
        elif said.bus and (said.values is not None or said.failed is not None):
            self._owed -= 1

    async def end(self) -> bool:
        """Kill it. False: the kernel does not let it go; it is left to itself."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_DIES_S):
                    await self._process.wait()
        return self.gone

    @property
    def gone(self) -> bool:
        return self._process.returncode is not None

    async def _line(self, timeout_s: float) -> Said | None:
        assert self._process.stdout
        try:
            async with asyncio.timeout(max(timeout_s, 0.0)):
                line = await self._process.stdout.readline()
        except TimeoutError:
            return None
        except ValueError:  # longer than any line of ours
            raise Ended from None
        if not line:
            raise Ended
        return parse(line) or Said()


def state_of(pid: int) -> str:
    """Its state and where in the kernel it waits, for the text of a finding: `state D in nvidia_ioctl`."""
    state = where = ""
    with contextlib.suppress(OSError, IndexError):
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
        with open(f"/proc/{pid}/wchan", encoding="utf-8", errors="replace") as file:
            where = file.read(64).strip("\0 \n0")
    return " in ".join(filter(None, (f"state {state}" if state else "", where)))
