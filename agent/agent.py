"""The sidecar of one node: it watches, counts and tells; it never judges."""

import asyncio
import contextlib
import os
import random
import secrets
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from rankpulse.agent import folder, health_kept, kmsg, ledger, proc, rundir
from rankpulse.agent import host as hosts
from rankpulse.agent.arrivals import Arrivals
from rankpulse.agent.checksums import Checksums
from rankpulse.agent.claim import Me, NameTaken
from rankpulse.agent.clock import Clock
from rankpulse.agent.endpoints import Endpoints
from rankpulse.agent.facts import Fact, build_beat
from rankpulse.agent.folder import Folder
from rankpulse.agent.gpu_books import GpuBooks
from rankpulse.agent.gpu_devices import Devices
from rankpulse.agent.gpu_watch import Gpus
from rankpulse.agent.health import HealthTold
from rankpulse.agent.host_watch import HostWatch
from rankpulse.agent.kmsg import KernelLog
from rankpulse.agent.launchers import Launchers
from rankpulse.agent.ledger import Ledger
from rankpulse.agent.log import Log
from rankpulse.agent.node_faults import NodeFaults
from rankpulse.agent.numbers import Numbers
from rankpulse.agent.outbox import Outbox
from rankpulse.agent.preflight_look import Look
from rankpulse.agent.probe import ProbeServer
from rankpulse.agent.publish import Publisher
from rankpulse.agent.report import Report
from rankpulse.agent.slots import Scanner
from rankpulse.agent.together import Together
from rankpulse.agent.watch import Workers
from rankpulse.core import look_evidence, records
from rankpulse.core.addresses import hosts_of
from rankpulse.core.gpu_plan import Plan
from rankpulse.core.kernel_log import of_message
from rankpulse.core.kernel_prefix import Framed
from rankpulse.core.keys import Keys, check_node
from rankpulse.core.records import Beat, NodeState
from rankpulse.core.settings import Settings, run_dir
from rankpulse.store.api import Store, StoreError
from rankpulse.web.door import Door

EXIT_OK: Final = 0
EXIT_BAD: Final = 2  # settings or directories that cannot serve
EXIT_TAKEN: Final = 3  # another agent has the name or the directory
_STATES_EVERY_S: Final = 0.5
_FIRST_SCAN_S: Final = 5.0
_FAREWELL_S: Final = 3.0
_RETRY_S: Final = 1.0
_NO_LOG_S: Final = 30.0
_LIVE_S: Final = 10.0  # a record of the kernel that is younger was read as it came


class Agent:
    """One agent over a store. `run` returns an exit code: 0 after `stop` was set, 2 or 3 when it could not serve.

    `sees_all`: whether every process of the machine is visible (None: find out); `devices`: which GPUs it has. Raises
    `BadName` for a bad node name.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        *,
        stop: asyncio.Event,
        log: Log,
        host: hosts.Host | None = None,
        clock: Clock | None = None,
        rng: random.Random | None = None,
        sees_all: bool | None = None,
        devices: Devices | None = None,
    ) -> None:
        self._settings, self._store, self._stop, self._log, self._clock = settings, store, stop, log, clock or Clock()
        self._host, self._devices = host or hosts.read(), devices or Devices()
        self.node = check_node(settings.agent.node or self._host.name)
        self.run_dir = os.path.abspath(run_dir(settings.agent, os.environ))
        self.capabilities: dict[str, str] = {"host": "ok"}
        self._keys = Keys(settings.cluster)
        self._scanner = Scanner(self.run_dir, sees_all=sees_all)
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rankpulse-scan")
        self._scan_began: float | None = None
        self._read_at = float("-inf")  # all slots, last
        self._rng = rng or random.Random()  # noqa: S311 (only spreads retries)
        self._pidfd_problem = proc.pidfd_problem()

    async def run(self) -> int:
        """Serve until `stop` is set or another agent has the name. Every way out is said in the log."""
        try:
            rundir.prepare(self.run_dir)
            self._lock = rundir.lock(self.run_dir)
            hosts.allow_files()
        except rundir.BadRunDir as error:
            self._log.say("error", str(error))
            return EXIT_BAD
        except rundir.Locked as error:
            self._log.say("error", str(error))
            return EXIT_TAKEN
        try:
            self._compose()
            return await self._serve()
        finally:
            os.close(self._lock)
            self._pool.shutdown(wait=False)

    # -- parts --------------------------------------------------------------------------------------------------
    def _compose(self) -> None:
        self._spool = self._open_spool()
        self.outbox = Outbox(
            self.node,
            self._spool,
            self._settings.agent.spool_max,
            self._clock.utc,
            lambda why: self._able("spool", why),
            lambda text: self._log.say("warning", text),
        )
        self.outbox.load()
        emit = self.outbox.add
        launchers = Launchers(emit, self._remember)
        self.workers = Workers(self.node, self.run_dir, emit, self._remember, launchers, self._host.boot_id)
        self.numbers = Numbers(self.workers, emit, self._log, self._clock.monotonic)
        self.checksums = Checksums(self.workers, emit, self._clock.monotonic)
        launchers.busy = lambda: {worker.who.run for worker in self.workers.table.values()}
        self._settled = False
        self._watch_hardware(emit)
        self.publisher = self._publisher()
        self.together = self._together(emit)
        self.together.load()
        past = ledger.load(self._spool) if self._spool else None
        vouch = self.together.vouch_dead
        self._arrivals = Arrivals(self.workers, emit, self._log, self._host.boot_id, past, vouch)
        orders = self.together.orders
        self.probe = self._probe_server() if self._settings.probe.listen else None
        probes = self.probe.counts if self.probe else {}
        self._report = Report(
            self.node, self.workers, self.publisher, self.outbox, orders, self.capabilities, self.health, self.numbers,
            probes, warn=lambda text: self._log.say("warning", text), clock=self._clock.monotonic,
        )  # fmt: skip
        listen, sessions = self._settings.agent.listen, self.together.sessions()
        self._endpoints = Endpoints(
            self.run_dir, listen, self._door, self._report, self._metrics, self._able, sessions, self.probe
        )
        self._able("exit_codes", hosts.exit_codes(self._host.kernel))

    def _door(self) -> Door:
        """Of the HTTP port; what its predecessor has refused is counted on."""
        door = Door(self._settings.http, self._log.say, clock=self._clock.monotonic)
        door.refused.update(self._report.refused)
        self._report.refused = door.refused
        return door

    def _watch_hardware(self, emit: Callable[[Fact], None]) -> None:
        s, wanted = self._settings.gpu, self._settings.preflight.gpus
        plan = Plan(s.poll_s, s.slow_poll_s, s.retry_s, s.retry_max_s)
        self.books = GpuBooks(s, wanted, self._clock, emit, self._able, plan)
        if self._spool:
            health_kept.restore(self._spool, self._host.boot_id, self.books)
        self.books.changed = self._keep_health
        self.faults = NodeFaults(self.books, s.believe_injected)
        self.books.on_xid = self.faults.event
        self.gpus = Gpus(self.books, devices=self._devices)
        self._kernel_log = KernelLog(s.kernel_log, self._host.boot_id, self._spool, self._kernel_said, self._able)
        self._host_watch = HostWatch(self.books, Look(self._settings.preflight, gpus=False))
        self.health = HealthTold(self.node, self._host.name, self.gpus, self._host_watch, s.publish_s)

    def _kernel_said(self, records: list[tuple[Framed, bool]]) -> None:
        """What an earlier agent has told already is known, and not told again.

        The kernel's stamps run away from the clock by seconds over months: what comes now is of now.
        """
        now, utc = self._clock.monotonic(), self._clock.utc()
        for framed, fresh in records:
            age = now - framed.at if framed.at is not None else 0.0
            try:
                self._kernel_line(framed, utc - age if age > _LIVE_S else utc, fresh=fresh)
            except Exception as error:  # a bug of ours costs this line; read again and again it would cost all others
                self._log.change("kernel line", "error", f"a line of the kernel's log is passed over: {error!r:.200}")

    def _kernel_line(self, framed: Framed, at: float, *, fresh: bool) -> None:
        reading = of_message(framed)
        if fresh:
            self.faults.line(reading, at, framed.text)
        else:
            self.faults.known(reading, at)

    async def _follow_kernel_log(self) -> None:
        """Where none can be read, that seldom changes, and each try may start a program."""
        began = self._clock.monotonic()
        await self._kernel_log.run()
        if self.capabilities.get(kmsg.SOURCE) != "ok" and self._clock.monotonic() - began < _NO_LOG_S:
            await asyncio.sleep(_NO_LOG_S)

    def _keep_health(self) -> None:
        if self._spool:
            health_kept.save(self._spool, self._host.boot_id, self.books)

    def _open_spool(self) -> Folder | None:
        try:
            spool = folder.private(self._settings.agent.spool_dir or os.path.join(self.run_dir, "spool"))
        except folder.BadFolder as error:
            self._able("spool", f"observations are kept in memory only: {error}")
            return None
        self._able("spool", "")
        return spool

    def _publisher(self) -> Publisher:
        me = Me(self.node, secrets.token_hex(8), self._host.name, self._host.boot_id, os.getpid())
        return Publisher(
            self._store,
            self._keys,
            me,
            self._settings.detect.heartbeat_interval_s,
            self._clock,
            self._rng,
            self._log,
            self.outbox,
            self._make_beat,
            self._make_state,
            self.health,
        )

    def _probe_server(self) -> ProbeServer:
        dossiers = self.together.dossiers
        return ProbeServer(
            self.node,
            self._settings.probe,
            self._present_beat,
            towards=hosts_of(self._settings.store.endpoints),
            name=self._host.name,
            clock=self._clock.monotonic,
            log=self._log,
            more={look_evidence.COLLECT: dossiers.answer, look_evidence.DUMP: dossiers.fetch},
        )

    def _together(self, emit: Callable[[Fact], None]) -> Together:
        return Together(
            self.node,
            self._host.boot_id,
            self._keys,
            self._store,
            self.workers,
            self._clock,
            self._rng,
            self._log,
            emit,
            lambda: self.publisher.inc,
            self._remember,
            self._settings.detect.heartbeat_interval_s,
            self._spool,
            self._settings.preflight,
            self._able,
            self._settings.evidence,
        )

    def _make_beat(self, inc: int, seq: int, at: float) -> Beat:
        self._read_at = self._clock.monotonic()
        return build_beat(self.node, inc, seq, at, self.workers.readings())

    def _present_beat(self) -> Beat:
        """As it would be published at this moment, under the number of the last one; incarnation 0: not claimed yet."""
        self.workers.poll_states(self._clock.monotonic())
        return self._make_beat(self.publisher.inc, self.publisher.seq, self._clock.utc())

    def _make_state(self, inc: int, at: float) -> NodeState:
        return NodeState(
            node=self.node,
            inc=inc,
            at=at,
            host=self._host.name,
            agent_version=hosts.version(),
            interval_s=self._settings.detect.heartbeat_interval_s,
            capabilities=dict(self.capabilities),
            host_facts=hosts.facts(self._host),
            probe=self.probe.address if self.probe else "",
            rack=self._settings.agent.rack,
            boot_id=self._host.boot_id,
        )

    def _able(self, source: str, problem: str) -> None:
        """A source works (""), or lacks something; said on change."""
        before = self.capabilities.get(source)
        self.capabilities[source] = problem or "ok"
        if problem and before != problem:
            self._log.say("warning", f"{source}: {problem}")
        elif not problem and before not in (None, "ok"):
            self._log.say("info", f"{source}: works again")

    def _remember(self) -> None:
        """Write down who is watched, once what an earlier agent wrote there has been dealt with."""
        if self._spool and self._settled:
            ledger.save(
                self._spool, Ledger(self._host.boot_id, self.workers.rows(), self.workers.launchers.rows())
            )  # fmt: skip
        self.together.workers_changed()

    # -- life ---------------------------------------------------------------------------------------------------
    async def _serve(self) -> int:
        self.outbox.add(Fact(records.AGENT_STARTED, pid=os.getpid(), detail={"version": hosts.version()}))
        await self._endpoints.open()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FIRST_SCAN_S):
                await asyncio.shield(self._scan())
        self._arrivals.settle_past()
        self._settled = True
        self._remember()
        tasks = [asyncio.create_task(one) for one in self._loops()]
        try:
            return await self._until_the_end(tasks)
        finally:
            await self._close(tasks)

    def _loops(self) -> list[Coroutine[Any, Any, Any]]:
        return [
            self.publisher.run(),
            self._stop.wait(),
            self._kept_up("slots", self._scan_for_ever),
            self._kept_up("processes", self._states_for_ever),
            self._kept_up("rendezvous", self.together.run),
            self._kept_up("endpoints", self._endpoints.keep),
            self._kept_up("gpu", self.gpus.run),
            *([self._kept_up(kmsg.SOURCE, self._follow_kernel_log)] if self._settings.gpu.kernel_log else []),
            self._kept_up("machine", self._host_watch.run),
            self._kept_up("numbers", self._numbers_for_ever),
        ]

    async def _kept_up(self, source: str, loop: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A source that fails costs its capability, never the agent, and is tried again."""
        while True:
            try:
                await loop()
            except rundir.Locked:
                raise
            except Exception as error:
                self._able(source, f"failed: {type(error).__name__}: {error}"[:300])
            await asyncio.sleep(_RETRY_S)

    async def _until_the_end(self, tasks: list[asyncio.Task[Any]]) -> int:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            if task.cancelled():
                continue
            error = task.exception()
            if isinstance(error, (NameTaken, rundir.Locked)):
                self._log.say("error", str(error))
                return EXIT_TAKEN
            if error is not None:
                raise error
        await self._farewell(tasks)
        return EXIT_OK

    async def _farewell(self, tasks: list[asyncio.Task[Any]]) -> None:
        self._log.say("info", "stopping")
        self.together.checkpoints.close()
        self.outbox.add(Fact(records.AGENT_STOPPING, pid=os.getpid()))
        await _cancel(tasks)
        with contextlib.suppress(StoreError, TimeoutError, NameTaken):
            async with asyncio.timeout(_FAREWELL_S):
                await self.publisher.farewell()

    async def _close(self, tasks: list[asyncio.Task[Any]]) -> None:
        await _cancel(tasks)
        await self._endpoints.close()
        await self.together.close()
        self._remember()
        self._arrivals.close()
        self.workers.close()
        if self._spool:
            self._spool.close()

    async def _take_directory_again(self) -> None:
        """The run directory was removed or replaced: what lay in it is made anew. Raises `Locked` and `BadRunDir`."""
        rundir.prepare(self.run_dir)
        old, self._lock = self._lock, rundir.lock(self.run_dir)
        os.close(old)
        self._log.say("warning", f"run directory {self.run_dir} was removed or replaced under this agent: made anew")
        if self._spool is None or not self._spool.in_place():
            self._move_spool()
        await self._endpoints.open_socket()

    def _move_spool(self) -> None:
        old, self._spool = self._spool, self._open_spool()
        self.outbox.move(self._spool)
        self.together.move(self._spool)
        self._kernel_log.folder = self._spool
        self._remember()
        if old:
            old.close()

    def _metrics(self) -> Any:
        return self._report.metrics(self._clock.monotonic(), self._arrivals.refused, self._read_at)

    async def _scan_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self._rest_s(self._settings.agent.scan_interval_s))
            try:
                if not rundir.holds(self.run_dir, self._lock):
                    await self._take_directory_again()
            except rundir.BadRunDir as error:
                self._able("slots", str(error))
            else:
                await self._scan()

    async def _scan(self) -> None:
        """Look for new slots, in a thread: a process in trouble can hold up whoever reads its /proc files."""
        if self._scan_began is not None or self._scanner.quiet():
            return
        self._scan_began = self._clock.monotonic()
        try:
            findings = await asyncio.get_running_loop().run_in_executor(self._pool, self._scanner.scan)
        except OSError as error:
            self._able("slots", f"cannot look for workers: {error.strerror} ({self.run_dir})")
        else:
            self._able("slots", "")
            self._arrivals.take(findings, self._clock.monotonic())
        finally:
            self._scan_began = None

    async def _numbers_for_ever(self) -> None:
        """Apart from beats: they rest while the store is away, and must not fail with this."""
        every_s = self._settings.detect.heartbeat_interval_s
        while True:
            if self._clock.monotonic() - self._read_at >= every_s:  # mostly a beat has just read them
                self.workers.readings()
            self.numbers.look(self.publisher.inc)
            self.checksums.look(self.publisher.inc)
            self._able("numbers", "")
            await asyncio.sleep(self._rest_s(every_s))

    async def _states_for_ever(self) -> None:
        while True:
            now = self._clock.monotonic()
            self.workers.poll_states(now)
            self._able("processes", self._pidfd_problem)
            if self._scan_began is not None and now - self._scan_began > _FIRST_SCAN_S:
                self._able("slots", "looking for new workers hangs in the kernel: a process of this node is in trouble")
            for path, reason in self.workers.unreadable():
                self._log.change(path, "warning", f"slot {path} cannot be read, its last pulse stands: {reason}")
            await asyncio.sleep(self._rest_s(_STATES_EVERY_S))

    def _rest_s(self, every_s: float) -> float:
        """Until the next multiple of it: what is due at one time wakes the process up once."""
        return every_s - self._clock.monotonic() % every_s


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
