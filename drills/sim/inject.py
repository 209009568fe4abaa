"""Doing it: each fault as a function of the cluster and chance. What cannot be done right now is not done."""

from collections.abc import Callable
from random import Random
from typing import Final

from rankpulse.agent.facts import Fact
from rankpulse.agent.proc import Exit
from rankpulse.drills.sim import plan as p
from rankpulse.drills.sim.cluster import Cluster
from rankpulse.drills.sim.job import Job, Worker
from rankpulse.drills.sim.plan import Truth

UNKNOWN_KIND: Final = "gpu_xid"  # until GPU health is told: a kind of observation that nobody knows
PASSES_MAX_S: Final = 45.0


class Faults:
    """Draws faults and does them. `busy`: nothing of this kind twice at once, where that has no meaning."""

    def __init__(self, cluster: Cluster, rng: Random) -> None:
        self.c, self.rng, self.heap = cluster, rng, cluster.heap
        kinds = cluster.options.faults or tuple(p.FAULTS)
        self._kinds = [kind for kind in p.FAULTS if kind in kinds]
        self._weights = [p.FAULTS[kind][0] for kind in self._kinds]
        self._monitor_busy: set[str] = set()
        self._store_busy = False
        self._acts: dict[str, Callable[[str], Truth | None]] = {
            p.CRASH: self._crash, p.ERROR: self._crash, p.HANG: self._hang, p.SLOW: self._slow, p.XID: self._xid,
            p.NODE: self._node, p.RACK: self._rack, p.FREEZE: self._freeze, p.ISOLATE: self._isolate,
            p.RACK_PAUSE: self._rack_pause, p.SIDECAR: self._sidecar, p.STALL: self._stall, p.CUT_OFF: self._cut_off,
            p.OUTAGE: self._outage, p.ELECTION: self._election, p.RACK_CUT: self._rack_cut, p.CLOCK: self._clock,
            p.MONITOR_PAUSE: self._monitor_pause, p.MONITOR_CRASH: self._monitor_crash,
            p.MONITOR_CUT: self._monitor_cut,
        }  # fmt: skip

    def strike(self) -> None:
        """One fault, drawn."""
        kind = self.rng.choices(self._kinds, self._weights)[0]
        truth = self._acts[kind](kind)
        if truth is not None:
            self.c.trace.note(
                "fault", kind=kind, number=truth.number, nodes=list(truth.nodes), run=truth.run, round=truth.round,
                members=sorted(truth.members), until=truth.until,
            )  # fmt: skip

    def _add(self, kind: str, **what: object) -> Truth:
        return self.c.truth.add(kind, self.heap.now, **what)

    def _passing_s(self) -> float:
        """Most pauses are short."""
        return min(1.0 + self.rng.lognormvariate(1.5, 0.9), PASSES_MAX_S)

    # --- ranks

    def _victim(self) -> tuple[Job, Worker] | None:
        """A living rank of a job that trains undisturbed."""
        jobs = [job for job in self.c.jobs if job.training and job.phase != "init" and not job.blocked()]
        if not jobs:
            return None
        job = self.rng.choice(jobs)
        return job, job.workers[self.rng.choice(sorted(job.workers))]

    def _crash(self, kind: str) -> Truth | None:
        found = self._victim()
        if found is None:
            return None
        job, worker = found
        truth = self._of_rank(kind, job, worker)
        exit_ = Exit(None, self.rng.choice((9, 11, 7))) if kind == p.CRASH else Exit(1, None)
        text = ("RuntimeError", _mishap(truth.number)) if kind == p.ERROR else ("", "")
        self.c.torchruns[worker.node].end(worker, exit_, *text)
        if job.style.noisy:
            self._echo(job, worker)
        return truth

    def _echo(self, job: Job, dead: Worker) -> None:
        """Peers whose connections broke end by themselves, after a while."""
        turn = job.round
        for worker in [job.workers[rank] for rank in sorted(job.workers)]:
            if worker is not dead and self.rng.random() < 0.7:
                self.c.machines[worker.node].after(self.rng.uniform(0.2, 3.0), self._lose_peer, job, turn, worker)

    def _lose_peer(self, job: Job, turn: int, worker: Worker) -> None:
        if job.round == turn and worker.alive and worker.stuck_at is None:
            text = ("DistBackendError", "Connection closed by peer")
            self.c.torchruns[worker.node].end(worker, Exit(1, None), *text)

    def _of_rank(self, kind: str, job: Job, worker: Worker) -> Truth:
        members = frozenset({(worker.rank, worker.pid)})
        return self._add(kind, nodes=(worker.node,), members=members, run=job.uid, round=job.round)

    def _hang(self, kind: str) -> Truth | None:
        found = self._victim()
        if found is None:
            return None
        job, worker = found
        if not job.learned():
            return None  # of a phase that is not known yet nobody can tell for `detect.hang_prior_s`
        worker.deaf = self.rng.random() < 0.7
        job.hang(worker)
        return self._of_rank(kind, job, worker)

    def _slow(self, kind: str) -> Truth | None:
        found = self._victim()
        if found is None:
            return None
        job, worker = found
        factor, lasts_s = self.rng.uniform(1.3, 2.5), self.rng.uniform(20.0, 90.0)
        job.slow *= factor

        def over() -> None:
            job.slow /= factor

        self.heap.after(lasts_s, over)
        return self._add(kind, nodes=(worker.node,), until=self.heap.now + lasts_s)

    def _xid(self, kind: str) -> Truth | None:
        node = self.rng.choice(sorted(self.c.machines))
        fact = Fact(UNKNOWN_KIND, detail={"xid": self.rng.choice((13, 31, 48, 63, 79, 94)), "pci": "0000:3b:00"})
        self.c.machines[node].agent_after(0.0, self.c.sidecars[node].emit, fact)
        return self._add(kind, nodes=(node,), until=self.heap.now)

    # --- machines

    def _well(self) -> list[str]:
        """Nodes to which nothing is being done."""
        c = self.c
        return [n for n, m in c.machines.items() if m.agent_awake and not c.cuts.get(n) and not c.isolated.get(n)]

    def _whole_racks(self) -> list[list[str]]:
        racks: dict[str, list[str]] = {}
        for name in self._well():
            racks.setdefault(self.c.machines[name].rack, []).append(name)
        return [rack for rack in racks.values() if len(rack) > 1 and 4 * len(rack) <= len(self.c.machines)]

    def _lose(self, node: str, back_s: float) -> None:
        machine, torchrun = self.c.machines[node], self.c.torchruns.get(node)
        machine.lose()
        if torchrun is not None:
            torchrun.lose()
        self.c.sidecars[node].wipe()
        self.c.refresh(node)
        self.heap.after(back_s, self._reboot, node)

    def _reboot(self, node: str) -> None:
        self.c.machines[node].come_back()
        self.c.refresh(node)
        self.c.trace.note("reboot", node=node)
        self.heap.after(self.rng.uniform(0.5, 3.0), self.c.sidecars[node].start)
        if node in self.c.torchruns:
            self.c.machines[node].after(self.rng.uniform(4.0, 10.0), self.c.torchruns[node].launch)

    def _gone(self, kind: str, nodes: list[str], back_s: Callable[[], float]) -> Truth:
        """Machines are gone; the truth names those that take part in a round."""
        job = next((job for job in self.c.jobs if any(w.node in nodes for w in job.workers.values())), None)
        run, round_ = (job.uid, job.round) if job is not None else ("", -1)
        backs = [back_s() for _ in nodes]
        for node, back in zip(nodes, backs, strict=True):
            self._lose(node, back)
        return self._add(kind, nodes=tuple(nodes), run=run, round=round_, until=self.heap.now + max(backs))

    def _node(self, kind: str) -> Truth | None:
        well = self._well()
        if len(well) < 0.7 * len(self.c.machines):
            return None
        return self._gone(kind, [self.rng.choice(well)], lambda: self.rng.uniform(70.0, 200.0))

    def _rack(self, kind: str) -> Truth | None:
        racks = self._whole_racks()
        if not racks or len(self._well()) < 0.9 * len(self.c.machines):
            return None
        return self._gone(kind, self.rng.choice(racks), lambda: self.rng.uniform(100.0, 200.0))

    def _freeze(self, kind: str) -> Truth | None:
        well = self._well()
        if not well:
            return None
        node, lasts_s = self.rng.choice(well), self._passing_s()
        machine = self.c.machines[node]
        boot = machine.boot
        machine.freeze(True)
        self.c.refresh(node)

        def thaw() -> None:
            machine.freeze(False)
            if machine.boot == boot:
                self.c.refresh(node)

        self.heap.after(lasts_s, thaw)
        return self._add(kind, nodes=(node,), until=self.heap.now + lasts_s)

    def _apart(self, kind: str, nodes: list[str], lasts_s: float) -> Truth:
        for node in nodes:
            self.c.isolate(node, True)
            self.heap.after(lasts_s, self.c.isolate, node, False)
        return self._add(kind, nodes=tuple(nodes), until=self.heap.now + lasts_s)

    def _isolate(self, kind: str) -> Truth | None:
        well = self._well()
        return self._apart(kind, [self.rng.choice(well)], self._passing_s()) if well else None

    def _rack_pause(self, kind: str) -> Truth | None:
        racks = self._whole_racks()
        return self._apart(kind, self.rng.choice(racks), min(self._passing_s(), 25.0)) if racks else None

    # --- agents

    def _sidecar(self, kind: str) -> Truth | None:
        well = self._well()
        if not well:
            return None
        node, lasts_s = self.rng.choice(well), self.rng.uniform(3.0, 60.0)
        machine = self.c.machines[node]
        boot = machine.boot
        machine.lose_agent()
        if node in self.c.torchruns:
            self.c.torchruns[node].lose_agent()

        def back() -> None:
            if machine.boot == boot and not machine.agent_up:
                self.c.sidecars[node].start()

        machine.after(lasts_s, back)
        return self._add(kind, nodes=(node,), until=self.heap.now + lasts_s)

    def _stall(self, kind: str) -> Truth | None:
        well = self._well()
        if not well:
            return None
        node, lasts_s = self.rng.choice(well), self._passing_s()
        self.c.machines[node].stall(True)
        self.heap.after(lasts_s, self.c.machines[node].stall, False)
        return self._add(kind, nodes=(node,), until=self.heap.now + lasts_s)

    def _cut(self, kind: str, ends: list[str], lasts_s: float) -> Truth:
        for end in ends:
            self.c.cut(end, True)
            self.heap.after(lasts_s, self.c.cut, end, False)
        return self._add(kind, nodes=tuple(ends), until=self.heap.now + lasts_s)

    def _cut_off(self, kind: str) -> Truth | None:
        well = self._well()
        return self._cut(kind, [self.rng.choice(well)], self.rng.uniform(3.0, 60.0)) if well else None

    def _rack_cut(self, kind: str) -> Truth | None:
        racks = self._whole_racks()
        return self._cut(kind, self.rng.choice(racks), self.rng.uniform(3.0, 45.0)) if racks else None

    # --- the store, the monitors

    def _outage(self, kind: str) -> Truth | None:
        if self._store_busy:
            return None
        lasts_s = self.rng.uniform(2.0, PASSES_MAX_S)
        self._store_busy = self.c.etcd.killed = True

        def back() -> None:
            self._store_busy = self.c.etcd.killed = False
            self.c.etcd.promoted()

        self.heap.after(lasts_s, back)
        return self._add(kind, until=self.heap.now + lasts_s)

    def _election(self, kind: str) -> Truth | None:
        if self._store_busy:
            return None
        lasts_s = self.rng.uniform(0.5, 4.0)
        self.c.etcd.electing_until = self.heap.now + lasts_s
        self.heap.after(lasts_s, self.c.etcd.promoted)
        return self._add(kind, until=self.heap.now + lasts_s)

    def _clock(self, kind: str) -> Truth | None:
        off = self.rng.uniform(-3600.0, 3600.0)
        if self.rng.random() < 0.5:
            name = self.rng.choice(sorted(self.c.monitors))
            self.c.monitors[name].utc_off = off
        else:
            name = self.rng.choice(sorted(self.c.machines))
            self.c.machines[name].utc_off = off
        return self._add(kind, nodes=(name,), until=self.heap.now)

    def _monitor(self) -> str | None:
        """Most often the one that leads."""
        free = [name for name in sorted(self.c.monitors) if name not in self._monitor_busy]
        leads = [name for name in free if self.c.monitors[name].leads()]
        if not free:
            return None
        name = leads[0] if leads and self.rng.random() < 0.8 else self.rng.choice(free)
        self._monitor_busy.add(name)
        return name

    def _monitor_pause(self, kind: str) -> Truth | None:
        name = self._monitor()
        if name is None:
            return None
        program, lasts_s = self.c.monitors[name].program, self.rng.uniform(1.0, PASSES_MAX_S)
        program.pause()

        def go_on() -> None:
            self._monitor_busy.discard(name)
            program.resume()

        self.heap.after(lasts_s, go_on)
        return self._add(kind, nodes=(name,), until=self.heap.now + lasts_s)

    def _monitor_crash(self, kind: str) -> Truth | None:
        name = self._monitor()
        if name is None:
            return None
        self.c.monitors[name].program.kill()
        lasts_s = self.rng.uniform(2.0, 25.0)

        def again() -> None:
            self._monitor_busy.discard(name)
            self.c.start_monitor(name)

        self.heap.after(lasts_s, again)
        return self._add(kind, nodes=(name,), until=self.heap.now + lasts_s)

    def _monitor_cut(self, kind: str) -> Truth | None:
        name = self._monitor()
        if name is None:
            return None
        lasts_s = self.rng.uniform(2.0, PASSES_MAX_S)
        self.heap.after(lasts_s, self._monitor_busy.discard, name)
        return self._cut(kind, [name], lasts_s)


def _mishap(number: int) -> str:
    """The words of an error, never the same twice: the same again, and no progress, would be the program's own fault.

    In letters, since numbers in the words of an error do not tell it from another.
    """
    kernel = "".join(chr(ord("a") + int(digit)) for digit in str(number))
    return f"CUDA error: an illegal memory access in kernel_{kernel}"
