"""The cluster: machines, agents, jobs, store and monitors, wired; and what is true of it at any moment."""

from random import Random
from typing import Final

from rankpulse.core import codec
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.core.settings import Settings, preset
from rankpulse.drills.sim.clockwork import Heap
from rankpulse.drills.sim.etcd import Etcd
from rankpulse.drills.sim.job import Job, draw_style
from rankpulse.drills.sim.machine import Machine
from rankpulse.drills.sim.plan import Book, Options
from rankpulse.drills.sim.sidecar import UTC, Sidecar
from rankpulse.drills.sim.torchrun import Records, Torchrun, few
from rankpulse.drills.sim.trace import Trace
from rankpulse.drills.sim.watcher import Monitor, Seen
from rankpulse.store.api import Change, Put

RACK_MAX: Final = 8  # machines; and never more than an eighth of the cluster
CLUSTER: Final = "sim"


class Cluster:
    """Everything that is simulated. `cuts`: of a node or a monitor, how many faults keep it from the store."""

    def __init__(self, options: Options, rng: Random, trace: Trace, heap: Heap) -> None:
        self.options, self.heap, self.trace, self.rng = options, heap, trace, rng
        self.settings: Settings = preset(options.preset)
        self.keys = Keys(CLUSTER)
        self.truth = Book()
        self.cuts: dict[str, int] = {}
        self.isolated: dict[str, int] = {}
        self.etcd = Etcd(heap, Random(rng.getrandbits(64)), self.reaches, lambda key: few(self.keys, key))
        self.machines: dict[str, Machine] = {}
        self.sidecars: dict[str, Sidecar] = {}
        self.torchruns: dict[str, Torchrun] = {}
        self.jobs: list[Job] = []
        self.able: dict[str, bool] = {}
        self.monitors: dict[str, Monitor] = {}
        self._dead: list[Monitor] = []
        self._records = Records(self.keys)
        self._build()

    def _build(self) -> None:
        names = [f"n{i:03d}" for i in range(self.options.nodes)]
        rack = max(2, min(RACK_MAX, len(names) // 8))
        for i, name in enumerate(names):
            self.machines[name] = Machine(self.heap, name, f"r{i // rack:02d}")
            self.able[name] = True
        idle = self.rng.choice((0, 0, 1, 2)) if len(names) > 8 else 0
        at = 0
        for number, size in enumerate(self._sizes(len(names) - idle)):
            self._job(f"job{number}", tuple(names[at : at + size]))
            at += size
        for name in names[at:]:
            self.sidecars[name] = self._sidecar(name, None)
        for name in names:
            self.heap.after(self.rng.uniform(0.0, 3.0), self.sidecars[name].start)
        for name in ("m1", "m2"):
            self.heap.after(self.rng.uniform(0.0, 2.0), self.start_monitor, name)

    def _sizes(self, nodes: int) -> list[int]:
        """How the nodes are divided among jobs."""
        many = self.rng.choice((1, 1, 2, 3)) if nodes >= 12 else 1
        sizes = [nodes // many] * many
        sizes[0] += nodes - sum(sizes)
        return sizes

    def _job(self, label: str, nodes: tuple[str, ...]) -> None:
        rng = Random(self.rng.getrandbits(64))
        least = max(1, len(nodes) - max(2, len(nodes) // 3)) if len(nodes) > 2 else 1
        job = Job(self.heap, rng, label, nodes, self.options.gpus, least, draw_style(rng), self.able)
        self.jobs.append(job)
        for name in nodes:
            self.sidecars[name] = self._sidecar(name, job)
            self.heap.after(self.rng.uniform(1.0, 6.0), self.torchruns[name].launch)

    def _sidecar(self, name: str, job: Job | None) -> Sidecar:
        machine, rng = self.machines[name], Random(self.rng.getrandbits(64))
        interval_s = self.settings.detect.heartbeat_interval_s
        sidecar = Sidecar(machine, self.etcd, self.keys, rng, interval_s, lambda: self._readings(name))
        if job is not None:
            self.torchruns[name] = Torchrun(machine, sidecar, job, self.etcd, self._records, rng, self.trace)
        return sidecar

    def _readings(self, name: str) -> list:  # type: ignore[type-arg]
        torchrun = self.torchruns.get(name)
        return torchrun.readings() if torchrun is not None else []

    # --- monitors

    def start_monitor(self, name: str) -> None:
        if name in self.monitors:
            self._dead.append(self.monitors[name])
        rng = Random(self.rng.getrandbits(64))
        self.monitors[name] = Monitor(name, self.heap, self.etcd, self.keys, self.settings, rng, self.look)
        self.trace.note("monitor", name=name)

    def close(self) -> None:
        """Leave every program of this cluster."""
        for monitor in [*self._dead, *self.monitors.values()]:
            monitor.program.close()

    def leader(self) -> Monitor | None:
        return next((one for one in self.monitors.values() if one.leads()), None)

    def look(self, node: str) -> Seen:
        """A direct look at an agent, past the store: the answer, how long it takes to come, and what the agent says."""
        machine, timeout_s = self.machines.get(node), self.settings.probe.timeout_s
        if machine is None or not self.able[node]:
            return ev.SILENT, timeout_s, None
        if not machine.agent_up:
            return ev.REFUSED, self.etcd.delay(), None
        if machine.stalled or not self.sidecars[node].inc:
            return ev.ACCEPTED, timeout_s, None
        return ev.ANSWERED, self.etcd.delay() + self.etcd.delay(), self.sidecars[node].beat()

    # --- the network

    def reaches(self, end: str) -> bool:
        """Whether packets get from this node or monitor to the store."""
        machine = self.machines.get(end)
        return not self.cuts.get(end) and (machine is None or (machine.up and not self.isolated.get(end)))

    def cut(self, end: str, on: bool) -> None:
        """From the store alone."""
        self.cuts[end] = self.cuts.get(end, 0) + (1 if on else -1)
        if not on and self.reaches(end):
            self.etcd.healed(end)

    def isolate(self, node: str, on: bool) -> None:
        """From everything."""
        self.isolated[node] = self.isolated.get(node, 0) + (1 if on else -1)
        self.refresh(node)
        if not on and self.reaches(node):
            self.etcd.healed(node)

    def refresh(self, node: str) -> None:
        """Whether its ranks can take part in collectives."""
        self.able[node] = self.machines[node].awake and not self.isolated.get(node)
        for job in self.jobs:
            if node in job.nodes:
                job.poke()

    # --- people

    def put(self, key: str, record: r.Record) -> None:
        """A person writes, when the store takes it."""
        data = codec.encode(record)

        def known(_value: object, error: object, at: float) -> None:
            if error is not None:
                self.heap.at(at + 1.0, self.put, key, record)

        self.etcd.call("person", lambda store: store.txn([], [Put(key, data)]), known)

    def arm(self, on: bool) -> None:
        self.put(self.keys.arm(), r.Arm(armed=on, author="sim", reason="drill", at=UTC + self.heap.now))
        self.trace.note("arm", on=on)

    def record(self, change: Change) -> r.Record | None:
        if change.value is None:
            return None
        return self._records.of(change.key, change.value, change.revision)

    def job_of(self, node: str) -> Job | None:
        return next((job for job in self.jobs if node in job.nodes), None)

    def job_by_uid(self, uid: str) -> Job | None:
        return next((job for job in self.jobs if job.uid == uid), None)
