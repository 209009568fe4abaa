"""Records a trace from a real etcd and real sockets on one machine, under stress of processors and network.

The file is gzipped JSON lines: a head (`Head`), then one row per event in order: `["h", arrived, node, number, made,
step]` a beat, `["c", at]` the watcher's own key came back, `["t", at]` the watcher's loop ran, `["l", at]` and `["b",
at]` its watch was lost and came back. Seconds from the beginning, as the watcher saw them.
"""

import asyncio
import contextlib
import gzip
import json
import os
import platform
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.publishers import CLUSTER
from rankpulse.bench.detect.stress import DEATH, Hands, Proxy, Trouble, timetable
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import Beat
from rankpulse.core.settings import CANARY_EVERY_S, StoreSettings, preset
from rankpulse.store.api import Changes, Lost, Store, StoreError
from rankpulse.store.embedded import EmbeddedEtcd, NoEtcd
from rankpulse.store.etcd import open_store

START_S: Final = 45.0  # until every agent must have been heard
LEAST_S: Final = 75.0
NODES: Final = (8, 256)
Row = list[Any]


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a recorded trace."""

    v: int = 1
    nodes: int
    seconds: float
    seed: int
    interval_s: float
    table: list[Trouble]
    dead: list[int]
    dead_at: float
    etcd: str
    machine: str


def run(out: str, seconds: float, nodes: int, seed: int) -> int:
    """Record and write. Returns 0, 1 when it could not be recorded, 2 when asked wrongly."""
    wrong = _wrong(seconds, nodes) or _no_place(Path(out))
    if wrong:
        print(wrong, file=sys.stderr)
        return 2
    try:
        rows, head = asyncio.run(_record(seconds, nodes, seed))
        write(Path(out), head, rows)
    except (NoEtcd, StoreError, OSError, TimeoutError) as error:
        print(f"could not be recorded: {error}", file=sys.stderr)
        return 1
    heard = sum(row[0] == "h" for row in rows)
    print(f"{out}: {heard} beats of {nodes} nodes in {seconds:g} s, {len(head.table)} troubles", file=sys.stderr)
    return 0


def _wrong(seconds: float, nodes: int) -> str:
    if nodes % z.NODES_PER_RACK or not NODES[0] <= nodes <= NODES[1]:
        low, high = NODES
        return f"--nodes must be a multiple of {z.NODES_PER_RACK} from {low} to {high}, not {nodes}"
    if not LEAST_S <= seconds <= z.DAY_S:  # nan lies nowhere
        return f"--seconds must be between {LEAST_S:g} and {z.DAY_S:g}, not {seconds:g}"
    return ""


def _no_place(path: Path) -> str:
    """Looked for before minutes are spent on what could not be kept."""
    fresh = not path.exists()
    try:
        with open(path, "ab"):
            pass
        if fresh:
            path.unlink()
    except OSError as error:
        return f"--out {path}: {error.strerror}: name a file that can be written"
    return ""


def write(path: Path, head: Head, rows: list[Row]) -> None:
    lines = [msgspec.json.encode(head).decode(), *(json.dumps(row, separators=(",", ":")) for row in rows)]
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as file:
        file.write(("\n".join(lines) + "\n").encode())


def read(path: Path) -> tuple[Head, list[Row]]:
    """A recorded trace. Raises OSError and ValueError (also msgspec's)."""
    with gzip.open(path, "rb") as file:
        head, *rows = file.read().splitlines()
    return msgspec.json.decode(head, type=Head), [msgspec.json.decode(row) for row in rows]


async def _record(seconds: float, nodes: int, seed: int) -> tuple[list[Row], Head]:
    groups = nodes // z.NODES_PER_RACK
    table = timetable(seconds, groups, seed)
    dead_at = next(trouble.at for trouble in table if trouble.kind == DEATH)
    with EmbeddedEtcd() as etcd:
        async with _crew(etcd, groups, nodes, dead_at) as (hands, watcher):
            await asyncio.sleep(watcher.began - time.monotonic())
            troubles = asyncio.create_task(hands.keep(table))
            await asyncio.sleep(watcher.began + seconds - time.monotonic())
            troubles.cancel()
            await asyncio.gather(troubles, return_exceptions=True)
        head = Head(
            nodes=nodes,
            seconds=seconds,
            seed=seed,
            interval_s=z.INTERVAL_S,
            table=table,
            dead=list(range(nodes - z.NODES_PER_RACK, nodes)),
            dead_at=dead_at,
            etcd=etcd.version,
            machine=f"{os.cpu_count()} cores, {platform.system()} {platform.release()}",
        )
    return [row for row in watcher.rows if 0.0 <= row[1] <= seconds], head


class Watcher:
    """Notes what a monitor would be told, and when."""

    def __init__(self, store: Store, began: float) -> None:
        self.rows: list[Row] = []
        self.began, self._store, self._keys = began, store, Keys(CLUSTER)
        self._nodes: set[int] = set()
        self._wanted, self._all = 0, asyncio.Event()

    def _now(self) -> float:
        return round(time.monotonic() - self.began, 4)

    async def follow(self) -> None:
        canary, lost = self._keys.canary("record"), False
        async for sight in self._store.follow(self._keys.prefix):
            now = self._now()
            if isinstance(sight, Lost):
                self.rows.append(["l", now])
                lost = True
                continue
            if lost:
                self.rows.append(["b", now])
                lost = False
            for change in sight.changes if isinstance(sight, Changes) else ():
                if change.key == canary:
                    self.rows.append(["c", now])
                elif change.value is not None:
                    self.rows += self._heard(change.value, now)

    def _heard(self, value: bytes, now: float) -> Iterator[Row]:
        beat = codec.decode(Beat, value)
        node = int(beat.node[1:])
        self._nodes.add(node)
        if self._wanted and len(self._nodes) >= self._wanted:
            self._all.set()
        yield ["h", now, node, beat.seq - 1, round(beat.at, 4), beat.ranks[0].step]

    async def sing(self) -> None:
        while True:
            with contextlib.suppress(StoreError):
                await self._store.put(self._keys.canary("record"), b"la")
            await asyncio.sleep(CANARY_EVERY_S)

    async def tick(self) -> None:
        every_s = preset("default").monitor.tick_interval_s
        while True:
            await asyncio.sleep(every_s)
            self.rows.append(["t", self._now()])

    async def all_heard(self, nodes: int) -> None:
        self._wanted = nodes
        await self._all.wait()


@asynccontextmanager
async def _crew(etcd: EmbeddedEtcd, groups: int, nodes: int, dead_at: float) -> AsyncIterator[tuple[Hands, Watcher]]:
    """Everything that takes part; the clock begins once every agent is heard."""
    began = time.monotonic() + START_S
    watcher = Watcher(await open_store(StoreSettings(endpoints=(etcd.endpoint,))), began)
    tasks = [asyncio.create_task(work) for work in (watcher.follow(), watcher.sing(), watcher.tick())]
    proxies: list[Proxy] = []
    agents: list[asyncio.subprocess.Process] = []
    try:
        for group in range(groups):
            proxies.append(await Proxy.open(etcd.port))
            agents.append(await _agents(proxies[-1].endpoint, group, nodes, began, dead_at))
        async with asyncio.timeout(began - time.monotonic()):
            await watcher.all_heard(nodes)
        yield Hands(proxies, [agent.pid for agent in agents], etcd.pid, began), watcher
    except TimeoutError:
        raise TimeoutError(f"this machine is too busy: its agents did not start within {START_S:g} s") from None
    finally:
        for task in tasks:
            task.cancel()
        for agent in agents:
            if agent.returncode is None:
                agent.kill()
            await agent.wait()
        for proxy in proxies:
            await proxy.close()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _agents(endpoint: str, group: int, nodes: int, began: float, dead_at: float) -> asyncio.subprocess.Process:
    first, count = group * z.NODES_PER_RACK, z.NODES_PER_RACK
    args = (endpoint, *map(str, (first, count, nodes)), repr(began), repr(dead_at))
    return await asyncio.create_subprocess_exec(sys.executable, "-m", "rankpulse.bench.detect.publishers", *args)
