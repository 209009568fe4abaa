"""What is done to a machine while a trace is recorded: a timetable drawn from a seed, and the hands that keep it."""

import asyncio
import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Final

import msgspec

QUIET_S: Final = 15.0  # at the beginning: what a detector learns before anything happens
DEATH_BEFORE_END_S: Final = 45.0
TURN_S: Final = 12.0  # one kind of trouble after the other
STORE, AGENTS, OBSERVER, CPU, DELAY, STALL, CUT, DEATH = (
    "store stopped",
    "agents stopped",
    "observer busy",
    "processors busy",
    "network late",
    "network stalled",
    "network cut",
    "death",
)


class Trouble(msgspec.Struct, frozen=True):
    """Seconds from the beginning. `group`: which process of agents, and its way to the store; -1: all."""

    kind: str
    at: float
    until: float
    group: int = -1
    late_s: float = 0.0  # of `DELAY`


def timetable(seconds: float, groups: int, seed: int) -> list[Trouble]:
    """Turns of trouble, and near the end the death of the last group."""
    rng, at = random.Random(seed), QUIET_S  # noqa: S311
    found: list[Trouble] = []
    kinds = [CPU, DELAY, STALL, AGENTS, STORE, OBSERVER, CUT]
    while at + TURN_S < seconds - DEATH_BEFORE_END_S:
        kind = kinds[len(found) % len(kinds)]
        lasts = {CPU: 10.0, DELAY: 8.0, OBSERVER: rng.uniform(0.5, 3.5)}.get(kind, rng.uniform(1.0, 6.0))
        late_s = rng.uniform(0.2, 1.5) if kind == DELAY else 0.0
        group = rng.randrange(groups) if kind in (DELAY, STALL, AGENTS, CUT) else -1
        found.append(Trouble(kind, round(at, 3), round(at + lasts, 3), group, round(late_s, 3)))
        at += TURN_S
    dead_at = seconds - DEATH_BEFORE_END_S
    return [*found, Trouble(DEATH, dead_at, seconds, groups - 1)]


class Proxy:
    """The way of one group to the store: `drills/proxy.py` in a process of its own."""

    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self._process, self.endpoint = process, f"127.0.0.1:{port}"

    @classmethod
    async def open(cls, port: int) -> "Proxy":
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "rankpulse.drills.proxy", "127.0.0.1", str(port)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        return cls(process, int(await process.stdout.readline()))

    async def do(self, line: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line.encode() + b"\n")
        await self._process.stdout.readline()

    async def close(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()


class Hands:
    """Keeps the timetable. `pids`: of the groups of agents."""

    def __init__(self, proxies: list[Proxy], pids: list[int], store_pid: int, began: float) -> None:
        self._proxies, self._pids, self._store, self._began = proxies, pids, store_pid, began

    async def keep(self, table: list[Trouble]) -> None:
        for trouble in table:
            await asyncio.sleep(max(0.0, self._began + trouble.at - time.monotonic()))
            await self._one(trouble)

    async def _one(self, trouble: Trouble) -> None:
        lasts = trouble.until - trouble.at
        if trouble.kind == STORE:
            await self._stopped([self._store], lasts)
        elif trouble.kind == AGENTS:
            await self._stopped([self._pids[trouble.group]], lasts)
        elif trouble.kind == OBSERVER:
            time.sleep(lasts)  # noqa: ASYNC251  (this loop is the observer)
        elif trouble.kind == CPU:
            await _busy(lasts)
        elif trouble.kind == DEATH:
            os.kill(self._pids[trouble.group], signal.SIGKILL)
        else:
            await self._network(trouble, lasts)

    async def _network(self, trouble: Trouble, lasts: float) -> None:
        begin, end = {
            DELAY: (f"delay {trouble.late_s} {trouble.late_s / 3:.3f}", "delay 0"),
            STALL: ("stall", "release"),
            CUT: ("cut", "mend"),
        }[trouble.kind]
        proxy = self._proxies[trouble.group]
        await proxy.do(begin)
        await asyncio.sleep(lasts)
        await proxy.do(end)

    async def _stopped(self, pids: list[int], lasts: float) -> None:
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        try:
            await asyncio.sleep(lasts)
        finally:
            for pid in pids:
                os.kill(pid, signal.SIGCONT)


async def _busy(lasts: float) -> None:
    """Twice as many processes that only burn time as there are cores."""
    context = multiprocessing.get_context("spawn")
    count = 2 * (os.cpu_count() or 1)
    hogs = [context.Process(target=_burn, args=(lasts,), daemon=True) for _ in range(count)]
    for hog in hogs:
        hog.start()
    await asyncio.sleep(lasts)
    for hog in hogs:
        hog.kill()


def _burn(seconds: float, now: Callable[[], float] = time.monotonic) -> None:
    end = now() + seconds + 5.0
    while now() < end:
        sum(range(1000))
