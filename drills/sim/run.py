"""One seed: faults strike, the rules are asked after every event, and at the end recovery is demanded."""

import logging
from collections import Counter
from random import Random
from typing import IO, Final

import msgspec

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.drills.sim import plan as p
from rankpulse.drills.sim.checks import Scene, Written, broken
from rankpulse.drills.sim.clockwork import Heap
from rankpulse.drills.sim.cluster import Cluster
from rankpulse.drills.sim.inject import Faults
from rankpulse.drills.sim.job import Job
from rankpulse.drills.sim.person import Operator
from rankpulse.drills.sim.plan import Options, Truth
from rankpulse.drills.sim.trace import Trace
from rankpulse.store.api import Change

WARM_S: Final = 75.0  # undisturbed, so that there is something to learn
GAP_S: Final = 22.0  # between faults, on average
LAST_S: Final = 60.0  # before the end no more faults, so that the last one has begun when recovery is demanded
RECOVER_S: Final = 420.0  # after the last fault: all trains, nothing is open, nobody is blind
LOOK_S: Final = 2.0
IDLE_MAX_S: Final = 60.0  # the longest stay in any phase of a healthy job, with a margin
TOLD_WITHIN_S: Final = {p.CRASH: 10.0, p.ERROR: 10.0, p.HANG: 120.0, p.NODE: 120.0, p.RACK: 120.0}
SETTLE_S: Final = 10.0  # after any disturbance
SILENT_KEYS: Final = ("/beat", "/agent", "/state")


class Violation(msgspec.Struct, frozen=True):
    """A rule that did not hold."""

    rule: str
    text: str
    at: float


class Outcome(msgspec.Struct, kw_only=True):
    """What came of one seed. `delays`: seconds from the fault to the incident, by kind of fault."""

    seed: int
    digest: str = ""
    violation: Violation | None = None
    injected: dict[str, int] = {}
    detected: dict[str, int] = {}
    overtaken: dict[str, int] = {}
    delays: dict[str, list[float]] = {}
    clear: dict[str, list[float]] = {}  # of these, where nothing else stood in the way
    orders: int = 0
    asked: int = 0  # by the operator
    mistaken: list[str] = []
    events: int = 0
    beats: int = 0
    recovered_s: float = 0.0
    last: list[str] = []


class Simulation:
    """One seed, step by step."""

    def __init__(
        self,
        seed: int,
        options: Options,
        file: IO[str] | None = None,
        *,
        until: float | None = None,
        say: IO[str] | None = None,
    ) -> None:
        """`file`: for the trace; `until`: stop at this second, without demanding anything; `say`: tell what happens."""
        self._stop_at = until
        self.seed, self.options = seed, options
        rng = Random(f"{seed}/{options.nodes}/{options.gpus}/{','.join(options.faults)}")
        self.heap = Heap()
        self.trace = Trace(lambda: self.heap.now, file, say)
        self.cluster = Cluster(options, Random(rng.getrandbits(64)), self.trace, self.heap)
        self.faults = Faults(self.cluster, Random(rng.getrandbits(64)))
        self.operator = Operator(self.cluster, Random(rng.getrandbits(64)))
        self.scene = Scene(self.cluster.settings, self.cluster.truth)
        self.cluster.etcd.told = self._changed
        for job in self.cluster.jobs:
            job.convened = self._convened
        self._rng = Random(rng.getrandbits(64))
        self._ends_at = options.minutes * 60.0
        self._named: dict[int, set[str]] = {}
        self._exits: dict[str, tuple[int, int]] = {}  # by key of the observation
        self._ordered_at: dict[str, float] = {}
        self._beats = 0
        self._violation: Violation | None = None
        self._recovered_s = 0.0
        self._parsed: dict[str, bool] = {}

    def run(self) -> Outcome:
        """Play it. What monitors say is in the trace, and not in the log."""
        log = logging.getLogger("rankpulse.monitor")
        level = log.level
        log.setLevel(logging.CRITICAL + 1)
        try:
            return self._play()
        finally:
            log.setLevel(level)

    def _play(self) -> Outcome:
        heap = self.heap
        heap.at(self._rng.uniform(5.0, 30.0), self.cluster.arm, True)
        if self._rng.random() < 0.3:
            off = self._rng.uniform(100.0, self._ends_at)
            heap.at(off, self.cluster.arm, False)
            heap.at(off + self._rng.uniform(30.0, 120.0), self.cluster.arm, True)
        heap.at(WARM_S, self._strike)
        heap.at(LOOK_S, self._look)
        try:
            self._live(min(self._ends_at, self._stop_at or self._ends_at))
            if self._stop_at is None or self._stop_at > self._ends_at:
                self._demand_recovery()
            return self._outcome()
        finally:
            self.cluster.close()

    def _live(self, until: float) -> None:
        while self._violation is None and self.heap.step(until):
            if self.scene.new or self.scene.failures:
                self._check()

    def _strike(self) -> None:
        if self.heap.now >= self._ends_at - LAST_S:
            return
        self.faults.strike()
        self.heap.after(0.5 + self._rng.expovariate(1.0 / GAP_S), self._strike)

    def _look(self) -> None:
        """What is looked at from time to time: the operator's page, and what programs failed at."""
        self.operator.look(self.scene.incidents)
        for monitor in self.cluster.monitors.values():
            self.scene.failures += [f"{monitor.name}: {text}" for text in monitor.eyes.failures]
            if monitor.program.failure is not None:
                self.scene.failures.append(f"{monitor.name} ended: {monitor.program.failure!r}")
        self.heap.after(LOOK_S, self._look)

    # --- what was written

    def _changed(self, change: Change) -> None:
        key = change.key
        quiet = key.endswith(SILENT_KEYS) or "/canary/" in key or "/obs/" in key or "/rdzv/" in key
        self.trace.change(change, quiet)
        if change.value is None or quiet:
            if key.endswith("/beat") and change.value is not None:
                self._beats += 1
            elif "/obs/" in key and change.value is not None:
                self._observed(key, change)
            if not key.endswith("/state") or change.value is None:
                return
        record = self.cluster.record(change)
        if isinstance(record, r.RunState):
            self._run_state(record)
        elif isinstance(record, r.Leader):
            self.scene.leader = record
        elif isinstance(record, r.Arm):
            self.scene.armed = record.armed
            self.scene.disarmed_at = self.scene.disarmed_at if record.armed else self.heap.now
        elif isinstance(record, r.Incident | r.Order):
            self._decided(key, record)

    def _observed(self, key: str, change: Change) -> None:
        self.scene.observed.add(key)
        obs = self.cluster.record(change)
        if isinstance(obs, r.Observation) and obs.kind == r.WORKER_EXITED:
            self._exits[key] = (obs.rank, obs.pid)

    def _decided(self, key: str, record: r.Incident | r.Order) -> None:
        now, data = self.heap.now, codec.encode(record)
        decisions = [one.eyes.decided.get((key, data)) for one in self.cluster.monitors.values()]
        found = max((one for one in decisions if one is not None), key=lambda one: one.at, default=None)
        self.scene.new.append(Written(now, key, record, found))
        if isinstance(record, r.Order):
            self.scene.orders.setdefault((record.run_uid, record.round, record.kind), []).append(record)
            if record.kind == "restart":
                self._count(record)
            self.trace.note("order", kind=record.kind, run=record.run_uid, round=record.round, incident=record.incident)
        else:
            self.trace.note(
                "incident", id=record.id, klass=record.klass, state=record.state, nodes=list(record.nodes[:9]),
                round=record.round, culprits=[[m.rank, m.pid] for m in record.culprits], action=record.action,
                outcome=record.outcome, summary=record.summary, confidence=record.confidence,
            )  # fmt: skip
            self._detected(record)

    def _count(self, order: r.Order) -> None:
        """Orders without a step of progress in between."""
        job = self.cluster.job_by_uid(order.run_uid)
        moved = job is not None and job.moved_at > self._ordered_at.get(order.run_uid, -1.0)
        self.scene.progress[order.run_uid] = 1 if moved else self.scene.progress.get(order.run_uid, 0) + 1
        self._ordered_at[order.run_uid] = self.heap.now

    def _run_state(self, state: r.RunState) -> None:
        job = self.cluster.job_by_uid(state.run_uid)
        if job is None or state.outcome == "running":
            return
        lost = {node for truth in self.cluster.truth.truths if truth.kind in p.LOSSES for node in truth.nodes}
        if state.outcome != "abandoned" or not set(job.nodes) <= lost:
            self.scene.ended_runs.append(
                f"run {state.run_uid} is said to have ended, and goes on: {state.outcome}, {state.reason}"
            )

    def _detected(self, incident: r.Incident) -> None:
        """Which of the truths it tells of."""
        book = self.cluster.truth
        found: list[Truth] = []
        if incident.state == "open" and incident.klass == "node_dead":
            for truth in book.truths:
                if truth.kind in p.DEATHLIKE and set(truth.nodes) & set(incident.nodes) and truth.lasts(self.heap.now):
                    named = self._named.setdefault(truth.number, set())
                    named |= set(incident.nodes)
                    found += [truth] if set(self._concerned(truth)) <= named else []
        elif incident.state == "open":
            named_ranks = {(member.rank, member.pid) for member in incident.culprits}
            cited = {self._exits[key] for key in incident.evidence if key in self._exits}
            for truth in book.truths:
                if truth.run == incident.run_uid and _tells(incident, truth, named_ranks, cited | named_ranks):
                    found.append(truth)
        for truth in found:
            if truth.detected_at is None:
                truth.detected_at = self.heap.now

    def _concerned(self, truth: Truth) -> list[str]:
        """Its nodes that take part in a job."""
        return [node for node in truth.nodes if self.cluster.job_of(node) is not None]

    def _check(self) -> None:
        scene = self.scene
        scene.now = self.heap.now
        wrong = broken(scene)
        if wrong is not None:
            self._violation = Violation(*wrong, round(self.heap.now, 3))
        for one in scene.new:
            if isinstance(one.record, r.Incident):
                scene.incidents[one.record.id] = one.record
        scene.new.clear()

    # --- the end

    def _demand_recovery(self) -> None:
        """Faults have stopped, those under way end: now everything has to be well within the bound."""
        began = self.heap.now
        until = min(began + RECOVER_S, self._stop_at or began + RECOVER_S)
        while self._violation is None and self.heap.now < until:
            self._live(self.heap.now + 5.0)
            if not self._unwell():
                self._recovered_s = self.heap.now - began
                self._missed()
                return
        if self._violation is None and until == began + RECOVER_S:
            self._violation = Violation("recovers", "; ".join(self._unwell()[:5]), round(self.heap.now, 3))

    def _unwell(self) -> list[str]:
        """What is not as it should be without faults."""
        now, wrong = self.heap.now, []
        for job in self.cluster.jobs:
            if not job.training or job.blocked() or now - job.moved_at > IDLE_MAX_S + job.style.step_s * 40:
                wrong.append(f"{job.label} ({job.uid}) does not train, round {job.round}, phase {job.phase}")
        wrong += [
            f"incident {i.id} is open: {i.klass}, {i.summary}"
            for i in self.scene.incidents.values()
            if i.state == "open"
        ]
        leader = self.cluster.leader()
        if leader is None:
            wrong.append("no monitor leads")
        wrong += [f"{m.name} is blind: {why}" for m in self.cluster.monitors.values() if (why := m.blind())]
        return wrong

    def _missed(self) -> None:
        """What was done and never told of, although there was time."""
        for truth in self.cluster.truth.truths:
            if truth.detected_at is None and self._due(truth):
                text = f"{truth.kind} at {truth.at:.1f} s on {', '.join(truth.nodes)} was never told of"
                self._violation = Violation("detects", text, round(self.heap.now, 3))
                return

    def _due(self, truth: Truth) -> bool:
        """Whether it lasted for longer than it may take to tell, other faults of that time allowed for."""
        bound_s = TOLD_WITHIN_S.get(truth.kind)
        if bound_s is None or truth.round < 0:
            return False
        until = min(truth.until or self.heap.now, truth.ceased_at or self.heap.now)
        others = [one for one in self.cluster.truth.truths if one is not truth and one.at < until]
        for one in others:
            over = min(until, one.until if one.until is not None else until)
            bound_s += max(0.0, over + SETTLE_S - max(one.at, truth.at)) if over > truth.at else 0.0
        truth.overtaken = until - truth.at <= bound_s
        return not truth.overtaken

    def _convened(self, job: Job) -> None:
        """What was true of an earlier round is over."""
        for truth in self.cluster.truth.truths:
            if truth.run == job.uid and truth.round < job.round and truth.kind in TOLD_WITHIN_S:
                truth.ceased_at = truth.ceased_at or self.heap.now
                if truth.kind in p.BREAK_RUNS:
                    truth.until = truth.until or self.heap.now

    def _outcome(self) -> Outcome:
        scene, outcome = self.scene, Outcome(seed=self.seed, digest=self.trace.digest(), violation=self._violation)
        injected: Counter[str] = Counter()
        detected: Counter[str] = Counter()
        overtaken: Counter[str] = Counter()
        for truth in self.cluster.truth.truths:
            injected[truth.kind] += 1
            overtaken[truth.kind] += truth.overtaken and truth.detected_at is None
            if truth.detected_at is None:
                continue
            detected[truth.kind] += 1
            delay_s = round(truth.detected_at - truth.at, 3)
            outcome.delays.setdefault(truth.kind, []).append(delay_s)
            if self.cluster.truth.undisturbed(truth, truth.detected_at):
                outcome.clear.setdefault(truth.kind, []).append(delay_s)
        outcome.injected, outcome.detected, outcome.overtaken = dict(injected), dict(detected), dict(overtaken)
        outcome.orders = sum(len(orders) for (_, _, kind), orders in scene.orders.items() if kind == "restart")
        outcome.asked, outcome.mistaken, outcome.recovered_s = self.operator.asked, scene.mistaken, self._recovered_s
        outcome.events, outcome.beats = self.heap.events, self._beats
        outcome.last = list(self.trace.last) if self._violation is not None else []
        return outcome


def _tells(incident: r.Incident, truth: Truth, named: set[tuple[int, int]], cited: set[tuple[int, int]]) -> bool:
    """Whether an incident tells of what was done to a rank.

    A crash in a round that had not recovered is part of the incident of the round before, which cites its exit.
    """
    if truth.kind == p.HANG:
        return truth.round == incident.round and bool(truth.members & named)
    return truth.kind in (p.CRASH, p.ERROR) and truth.round >= incident.round and bool(truth.members & cited)
