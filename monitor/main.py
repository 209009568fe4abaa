"""Puts the monitor together and runs it until it is told to stop."""

import asyncio
import logging
import os
import re
import secrets
import signal
import socket
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from random import Random
from typing import Any, Final

from rankpulse.core.engine import Engine
from rankpulse.core.keys import BadName, Keys, check_name
from rankpulse.core.settings import BadSettings, Settings
from rankpulse.core.store_care import crowded
from rankpulse.monitor import clock as clocks
from rankpulse.monitor import topology
from rankpulse.monitor.acts import Act, Acts, nobody
from rankpulse.monitor.asker import Asker
from rankpulse.monitor.canary import Canary
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.diagnoser import Diagnoser
from rankpulse.monitor.election import Election
from rankpulse.monitor.executor import Executor
from rankpulse.monitor.http import Pages, PortTaken
from rankpulse.monitor.ledger_export import LedgerExport
from rankpulse.monitor.loop import Heard, Loop
from rankpulse.monitor.metrics import registry
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.serve import HEADERS, READ_ONLY, OnCall
from rankpulse.monitor.prober import Prober
from rankpulse.monitor.translate import Translator
from rankpulse.monitor.upkeep import Upkeep
from rankpulse.monitor.vitals import Vitals
from rankpulse.monitor.webhook import Postman
from rankpulse.store.api import Store, StoreError
from rankpulse.store.etcd import open_store
from rankpulse.store.secret import Tokens
from rankpulse.web.door import Door

STUCK_S: Final = 30.0  # a loop that has not turned for so long is not alive
EXIT_BAD_SETUP: Final = 2
log = logging.getLogger("rankpulse.monitor")


def default_name() -> str:
    """Host name and pid, in the characters a key may have."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname()).lstrip(".-")[:100]
    return f"{host or 'monitor'}-{os.getpid()}"


def boot_id() -> str:
    """Names this boot of this machine's kernel, "" where that cannot be known."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.readline().strip()
    return ""


def package_version() -> str:
    try:
        return version("rankpulse")
    except PackageNotFoundError:
        return "unknown"


class Monitor:
    """All parts of one monitor, from its settings and clock."""

    def __init__(self, settings: Settings, clock: Clock, act: Act = nobody) -> None:
        """`act`: does what is asked for over HTTP. Raises `StoreError` and `OSError` for files that cannot serve."""
        self.settings, self.clock, self.vitals = settings, clock, Vitals()
        self.keys = Keys(settings.cluster)
        self.name = check_name(settings.monitor.name or default_name(), "monitor.name")
        self.engine = Engine(settings, self.keys, topology.read(settings.monitor.topology_file))
        self.loop: Loop | None = None
        self.election: Election | None = None
        self.url = ""
        self.tokens = Tokens(settings.probe.token_file, "probe.token_file", clock=clock.now, warn=log.warning)
        self.prober = Prober(
            self._hear,
            timeout_s=settings.probe.timeout_s,
            tokens=self.tokens,
            boot_id=boot_id(),
            clock=clock,
            vitals=self.vitals,
        )
        self.asker = Asker(self._hear, tokens=self.tokens, boot_id=boot_id(), clock=clock, vitals=self.vitals)
        self.diagnoser = Diagnoser(self._hear, clock=clock)
        self.postman = Postman(
            settings.webhook,
            self._hear,
            leads=lambda: self.election is not None and self.election.term() is not None,
            clock=clock,
            vitals=self.vitals,
        )
        self.page = OnCall(self.engine, self.about, clock, secrets.token_hex(6))
        self.acts = Acts(act, clock)
        self.vitals.acts = self.acts.counts
        door = Door(settings.http, _say, clock=clock.now, hint=READ_ONLY, headers=HEADERS)
        self.vitals.http_refused = door.refused
        self.pages = Pages(
            door=door,
            state=self.state,
            alive=self.alive,
            ready=self.not_ready,
            registry=registry(self.state, self.vitals),
            page=[*self.acts.routes(), *self.page.routes()],
        )

    def assemble(self, store: Store) -> list[Any]:
        """The coroutines that make it live once there is a store."""
        settings, clock, keys = self.settings, self.clock, self.keys
        token = secrets.token_hex(8).encode()
        canary = Canary(store, keys.canary(self.name), token, clock, self.vitals.store_write_s.observe)
        rng = Random(secrets.randbits(64))  # noqa: S311 - spreads retries, guards nothing
        self.election = Election(
            store, keys, name=self.name, url=self.url, ttl_s=settings.monitor.lease_ttl_s, clock=clock, rng=rng
        )
        self.loop = Loop(
            self.engine,
            store,
            keys,
            settings,
            election=self.election,
            executor=Executor(store, keys, self.election, self.vitals),
            canary=canary,
            translator=Translator(keys, keys.canary(self.name), token),
            clock=clock,
            vitals=self.vitals,
            prober=self.prober,
            postman=self.postman,
            helpers=(self.asker, self.diagnoser),
        )
        upkeep = Upkeep(
            store,
            clock,
            self.vitals,
            every_s=settings.monitor.compact_every_s,
            leads=self._leads,
            quota_bytes=settings.monitor.store_quota_mb << 20,
            crowded=lambda: crowded(len(self.engine.folder.fleet.nodes), settings.detect.heartbeat_interval_s),
        )
        export = LedgerExport(settings.ledger, keys, self.engine.folder.ledger, clock, self.vitals, leads=self._leads)
        return [self.loop.run(), canary.run(), self.election.run(), upkeep.run(), export.run()]

    def _hear(self, answer: Heard) -> None:
        if self.loop is not None:
            self.loop.hear(answer)

    def _leads(self) -> bool:
        return self.loop is not None and self.loop.office > 0

    def state(self) -> dict[str, Any]:
        """The engine's snapshot with what the shell knows about itself."""
        now = self.clock.now()
        shown = self.engine.snapshot(now)
        why = self._trouble(shown)
        status = self.vitals.store
        looks = self.prober.shown()
        return {
            **shown,
            "nodes": {name: {**node, "look": looks.get(name)} for name, node in shown.get("nodes", {}).items()},
            "monitor": self.name,
            "version": package_version(),
            "url": self.url,
            "leads": self._leads(),
            "epoch": shown["epoch"] or 0,
            "blind": bool(why),
            "blind_reason": why,
            "store": {
                "version": status.version if status else "",
                "alarms": list(status.alarms) if status else [],
                "age_s": None if self.vitals.store_at is None else now - self.vitals.store_at,
                "error": self.vitals.store_error,
            },
        }

    def about(self) -> About:
        """What the page says of this monitor itself."""
        status, settings = self.vitals.store, self.settings.monitor
        return About(
            monitor=self.name,
            version=package_version(),
            leads=self._leads(),
            trouble=self._own_trouble() or self.engine.sight.why_blind(self.clock.now()),
            store_version=status.version if status else "",
            alarms=status.alarms if status else (),
            store_error=self.vitals.store_error,
            lag_s=self.vitals.loop_lag_s,
            grafana=settings.grafana_url,
            runbooks=settings.runbooks_url,
        )

    def not_ready(self) -> str:
        """Why nothing may be concluded from what this monitor sees, or ""."""
        return self._trouble(self.engine.snapshot(self.clock.now()))

    def _trouble(self, shown: dict[str, Any]) -> str:
        return self._own_trouble() or str(shown["blind_reason"])

    def _own_trouble(self) -> str:
        """What the shell knows to be wrong with its sight."""
        if self.vitals.engine_failure:
            return f"decisions cannot be taken: {self.vitals.engine_failure}"
        if self.vitals.sight_lost or not self.vitals.listed:
            return self.vitals.sight_lost or "the store has not been listed yet"
        return ""

    def alive(self) -> str:
        last = self.vitals.last_turn
        if last is not None and self.clock.now() - last > STUCK_S:
            return f"the loop has not turned for {self.clock.now() - last:.0f} s"
        return ""


async def main(settings: Settings, *, stop: asyncio.Event | None = None, act: Act = nobody) -> int:
    """Run until SIGTERM, SIGINT or `stop`; with `stop` given, signals are the caller's. `act`: see `Monitor`.

    Returns the exit code: 0 after a clean stop, 2 when it cannot serve with these settings.
    """
    _log_to_stderr()
    if stop is None:
        stop = asyncio.Event()
        _stop_on_signals(stop)
    try:
        monitor = Monitor(settings, clocks.system(), act)
        if settings.monitor.listen:
            monitor.url = await monitor.pages.start(settings.monitor.listen)
            log.info("monitor %s: %s/state", monitor.name, monitor.url)
            log.info("the page for people: %s/", monitor.url)
    except (BadSettings, BadName, PortTaken, StoreError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"http.cert_file and http.key_file are no usable pair: {error}")
    try:
        return await _live(monitor, await open_store(settings.store), stop)
    except StoreError as error:  # settings that only the store can judge; an unreachable one is waited for
        return _refuse(str(error))
    finally:
        await monitor.pages.stop()


async def _live(monitor: Monitor, store: Store, stop: asyncio.Event) -> int:
    tasks = [asyncio.ensure_future(part) for part in monitor.assemble(store)]
    stopped = asyncio.ensure_future(stop.wait())
    try:
        done, _ = await asyncio.wait([*tasks, stopped], return_when=asyncio.FIRST_COMPLETED)
        for task in done - {stopped}:
            task.result()  # parts end only by failing
        return 0
    finally:
        for task in [*tasks, stopped]:
            task.cancel()
        await asyncio.gather(*tasks, stopped, return_exceptions=True)
        await _farewell(monitor, store)


async def _farewell(monitor: Monitor, store: Store) -> None:
    """Leave office and the store within a few seconds, whatever the store does."""
    with suppress(TimeoutError, StoreError):
        async with asyncio.timeout(4.0):
            if monitor.election is not None:
                await monitor.election.resign()
            await store.delete(monitor.keys.canary(monitor.name))
    with suppress(TimeoutError, StoreError):
        async with asyncio.timeout(1.0):
            await store.close()


def _say(level: str, text: str) -> None:
    log.log(logging.getLevelNamesMapping()[level.upper()], "%s", text)


def _refuse(text: str) -> int:
    print(f"rankpulse monitor: {text}", file=sys.stderr)
    return EXIT_BAD_SETUP


def _stop_on_signals(stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)


def _log_to_stderr() -> None:
    """Our own lines, and what the store's client warns of."""
    if log.handlers or logging.getLogger().handlers:
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s monitor %(levelname)s %(message)s"))
    for logger in (log, logging.getLogger("rankpulse.store")):
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        logger.propagate = False
