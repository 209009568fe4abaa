"""One swarm from its start to its report: what is done when, and what is measured meanwhile."""

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from random import Random
from typing import Final, NamedTuple

from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import Incident, Leader
from rankpulse.core.settings import StoreSettings
from rankpulse.drills.swarm import gauges, plan
from rankpulse.drills.swarm.plan import Injection, Options
from rankpulse.drills.swarm.report import Found, Report
from rankpulse.drills.swarm.truth import Truth
from rankpulse.drills.swarm.world import Swarm
from rankpulse.store.api import Changes, Listing, Store, StoreError
from rankpulse.store.etcd import open_store

DELAY: Final = "rankpulse_monitor_beat_delay_seconds"
FOLDED: Final = "rankpulse_monitor_events_total"
REFUSED: Final = "rankpulse_monitor_refused_total"
PAGES_EVERY_S: Final = 20.0
SETTLE_S: Final = 8.0  # after the last node began to speak, before anything is measured
AGAIN_S: Final = 1.0  # until an injection is tried again for which there was no node
LEADER_S: Final = 60.0
log = logging.getLogger("rankpulse.swarm")


class Pids(NamedTuple):
    """Of the processes that are ours, 0: not ours."""

    monitor: int = 0
    etcd: int = 0


class Now(NamedTuple):
    """For the display while it runs."""

    passed_s: float
    living: int
    beats_s: float
    p99_s: float | None
    cores: dict[str, float]
    killed: int
    found: int
    accused: int


class Measured:
    """Gauges over the time that counts."""

    def __init__(self, swarm: Swarm, pids: Pids, url: str) -> None:
        self.swarm, self.url = swarm, url
        self.own = gauges.Process(os.getpid())
        self.monitor = gauges.Process(pids.monitor) if pids.monitor else None
        self.etcd = gauges.Process(pids.etcd) if pids.etcd else None
        meter = swarm.meter
        self.began = time.monotonic()
        self.first, self.sent, self.done, self.refused = len(meter.delays), meter.sent, meter.done, meter.refused
        self.expected = 0.0
        self.answers: dict[str, list[float]] = {path: [] for path in gauges.PAGES}
        self.metrics: list[str] = []
        self._last = self.began, meter.done, len(meter.delays)
        self.passed_s = 0.0

    def look(self) -> Now:
        """Once a second."""
        at, done, delays = self._last
        now, meter, truth = time.monotonic(), self.swarm.meter, self.swarm.truth
        self._last, self.passed_s = (now, meter.done, len(meter.delays)), now - self.began
        speaking = sum(node.alive and not node.standing for node in self.swarm.nodes.values())
        self.expected += speaking * (now - at) / self.swarm.options.interval_s
        parts = {"swarm": self.own, "monitor": self.monitor, "etcd": self.etcd}
        for part in parts.values():
            if part is not None:
                part.memory_mb()
        killed = truth.killed()
        return Now(
            self.passed_s,
            speaking,
            (meter.done - done) / max(now - at, 0.001),
            meter.quantile(0.99, delays),
            {name: part.cores_lately() for name, part in parts.items() if part is not None},
            len(killed),
            sum(deed.found is not None for deed in killed),
            len(truth.wrong()),
        )

    @property
    def done_at_last(self) -> int:
        return self._last[1]

    async def ask(self) -> None:
        """The monitor's pages, each once."""
        for path in self.answers if self.url else ():
            try:
                seconds, body = await gauges.answer_s(self.url + path)
            except OSError as error:
                log.warning("%s does not answer: %s", path, error)
                seconds, body = 20.0, b""
            self.answers[path].append(seconds)
            if path == "/metrics" and body:
                self.metrics.append(body.decode())


async def run(
    options: Options,
    injections: Sequence[Injection],
    settings: StoreSettings,
    cluster: str,
    pids: Pids,
    show: Callable[[Now], None],
) -> Report:
    """Live through it. Raises `StoreError`, TimeoutError when no monitor leads, and what ended a node."""
    keys = Keys(cluster)
    store = await open_store(settings)
    began = time.monotonic()
    try:
        url = await _leader(store, keys)
        async with Swarm(options, settings, keys) as swarm, _listening(store, keys, swarm.truth):
            speaking_s = time.monotonic() - began
            await asyncio.sleep(SETTLE_S)
            measured = Measured(swarm, pids, url)
            await measured.ask()
            doing = asyncio.create_task(_do(swarm, injections, measured.began))
            try:
                await _watch(measured, options, show, doing)
            finally:
                doing.cancel()
                await asyncio.gather(doing, return_exceptions=True)
            await measured.ask()
            status = await store.status()
            return _report(measured, speaking_s, status.db_bytes, status.version)
    finally:
        await store.close()


async def _leader(store: Store, keys: Keys) -> str:
    """Where the leading monitor serves its pages."""
    async with asyncio.timeout(LEADER_S):
        while True:
            with contextlib.suppress(StoreError):
                if item := await store.get(keys.leader()):
                    return codec.decode(Leader, item.value).url
            await asyncio.sleep(0.2)


@contextlib.asynccontextmanager
async def _listening(store: Store, keys: Keys, truth: Truth) -> AsyncIterator[None]:
    """What the monitor says goes into the book of truth as it comes."""

    async def listen() -> None:
        async for sight in store.follow(keys.incidents()):
            values = (
                [item.value for item in sight.items]
                if isinstance(sight, Listing)
                else [change.value for change in sight.changes if change.value is not None]
                if isinstance(sight, Changes)
                else []
            )
            for value in values:
                truth.heard(codec.decode(Incident, value), time.monotonic())

    task = asyncio.create_task(listen())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _do(swarm: Swarm, injections: Sequence[Injection], began: float) -> None:
    for one in sorted(injections, key=lambda one: one.at):
        await asyncio.sleep(max(0.0, began + one.at - time.monotonic()))
        done = await swarm.do(one)
        while not done:
            await asyncio.sleep(AGAIN_S)
            done = await swarm.do(one)


async def _watch(
    measured: Measured, options: Options, show: Callable[[Now], None], doing: "asyncio.Task[None]"
) -> None:
    asked_at = measured.began
    asking: asyncio.Task[None] | None = None
    while (now := time.monotonic()) < measured.began + options.for_s:
        measured.swarm.check()
        seen = measured.look()
        show(seen)
        if options.early and doing.done() and seen.found == seen.killed:
            break
        if now - asked_at >= PAGES_EVERY_S and (asking is None or asking.done()):
            asked_at, asking = now, asyncio.create_task(measured.ask())
        await asyncio.sleep(1.0)
    measured.look()
    if asking is not None:
        await asking


def _report(measured: Measured, speaking_s: float, db_bytes: int, version: str) -> Report:
    swarm, options, meter, truth = measured.swarm, measured.swarm.options, measured.swarm.meter, measured.swarm.truth
    first, last = (measured.metrics[0], measured.metrics[-1]) if measured.metrics else ("", "")
    before, after = gauges.buckets(first, DELAY), gauges.buckets(last, DELAY)
    monitor, etcd = measured.monitor, measured.etcd
    return Report(
        nodes=options.nodes,
        gpus=options.gpus,
        runs=options.runs,
        interval_s=options.interval_s,
        seconds=measured.passed_s,
        speaking_after_s=speaking_s,
        beats_expected=round(measured.expected),
        beats_sent=meter.sent - measured.sent,
        beats_acknowledged=measured.done_at_last - measured.done,
        beats_refused=meter.refused - measured.refused,
        beats_folded=_grown(first, last, FOLDED, '{kind="beat"}'),
        errors=dict(meter.errors),
        store_p50_s=meter.quantile(0.5, measured.first),
        store_p99_s=meter.quantile(0.99, measured.first),
        to_engine_p50_s=gauges.quantile(after, before, 0.5),
        to_engine_p99_s=gauges.quantile(after, before, 0.99),
        monitor_cores=monitor.cores() if monitor else None,
        monitor_mb=monitor.most_mb if monitor else None,
        etcd_cores=etcd.cores() if etcd else None,
        etcd_mb=etcd.most_mb if etcd else None,
        etcd_db_mb=db_bytes / gauges.MB,
        swarm_cores=measured.own.cores(),
        swarm_mb=measured.own.most_mb,
        pages_s={path: (sorted(s)[len(s) // 2], max(s)) for path, s in measured.answers.items() if s},
        killed=[Found(node=deed.node, run=deed.run, after_s=deed.found) for deed in truth.killed()],
        accused=[
            {
                "id": i.id,
                "class": i.klass,
                "nodes": list(i.nodes[:4]),
                "count": len(i.nodes),
                "run": i.run_id,
                "summary": i.summary,
            }
            for i in truth.wrong()
        ],
        incidents=dict(Counter(incident.klass for incident in truth.incidents)),
        garbled=swarm.flooded,
        refused=_grown(first, last, REFUSED),
        load=os.getloadavg()[0],
        etcd_version=version,
    )


def _grown(first: str, last: str, name: str, labels: str = "") -> int | None:
    before, after = gauges.value(first, name, labels), gauges.value(last, name, labels)
    return int(after - (before or 0.0)) if after is not None else None


def planned(options: Options, injected: Sequence[Injection]) -> list[Injection]:
    """Deaths by lot, and what was asked for besides."""
    rng = Random(options.seed)  # noqa: S311 - draws faults, guards nothing
    return [*plan.deaths(options, rng), *injected]
