"""The torchrun of one node and its agent's part in the rendezvous: every decision is `core.rendezvous`'s own."""

from dataclasses import replace
from random import Random
from typing import Any, Final

from rankpulse.agent.arrivals import UNWATCHED
from rankpulse.agent.evidence import encode
from rankpulse.agent.facts import Fact, Reading, exit_detail
from rankpulse.agent.proc import Exit
from rankpulse.core import codec, rendezvous
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.core.records import RunRow
from rankpulse.core.rendezvous import Me, Met, Refused, Timing, Txn, View
from rankpulse.drills.sim.etcd import Etcd, Watch
from rankpulse.drills.sim.job import Job, Worker
from rankpulse.drills.sim.machine import Machine
from rankpulse.drills.sim.sidecar import Sidecar
from rankpulse.drills.sim.trace import Trace
from rankpulse.store.api import Change, Changes, Delete, Guard, Listing, Outcome, Put, Sight, StoreError, Write

TIMING: Final = Timing()
LAG_S: Final = (0.05, 0.25)  # agents look at what came together, not at each arrival
KILL_S: Final = 30.0  # torchelastic's own patience with workers that do not end


class Records:
    """Each change is decoded once for all agents."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys
        self._last: dict[tuple[str, int], r.Record | None] = {}

    def of(self, key: str, value: bytes, revision: int) -> r.Record | None:
        if (key, revision) not in self._last:
            if len(self._last) > 5000:
                self._last.clear()
            parsed = self._keys.parse(key)
            self._last[key, revision] = codec.decode_at(parsed, value) if parsed is not None else None
        return self._last[key, revision]


class Torchrun:
    """One per machine of a job, over all its lives; `ask` begins each."""

    def __init__(
        self, machine: Machine, sidecar: Sidecar, job: Job, etcd: Etcd, records: Records, rng: Random, trace: Trace
    ) -> None:
        self.machine, self.sidecar, self.job, self._rng, self._trace = machine, sidecar, job, rng, trace
        self.node, self._etcd, self._keys, self._records = machine.name, etcd, records._keys, records
        self.workers: list[Worker] = []
        self.me: Me | None = None
        self.round = 0  # the established one, 0: none
        self._uid = ""
        self._join = 0
        self._pid = 0
        self._launcher = ""
        self._stopping = False
        self._busy = False  # a write is under way
        self._woken_at = float("inf")
        self._view: View | None = None
        self._watch: Watch | None = None
        self._unseen: list[Worker] = []  # ended while no agent watched
        self._done: set[tuple[str, str]] = set()
        self._released: set[tuple[str, int]] = set()
        sidecar.started = self._follow

    # --- lives

    def launch(self) -> None:
        """A new torchrun, on a machine that has just come up."""
        self._pid = self._next_pid()
        self._launcher = f"{self._pid}.{self._start()}"
        self.workers, self.round, self._uid, self._join = [], 0, "", 0
        self._stopping = self._busy = False
        self._unseen = []
        self.me = None
        self._ask()

    def lose(self) -> None:
        """The machine is gone."""
        for worker in self.workers:
            worker.alive = False
        self.workers, self.round, self.me, self._unseen = [], 0, None, []
        self._done.clear()
        self._released.clear()
        self.lose_agent()

    def lose_agent(self) -> None:
        if self._watch is not None:
            self._etcd.unwatch(self._watch)
        self._watch = self._view = None
        self._busy, self._woken_at = False, float("inf")

    def _next_pid(self) -> int:
        self.pids = getattr(self, "pids", 1000) + 1
        return self.pids

    def _start(self) -> int:
        return int(self._etcd.heap.now * 100) + 1000 * self.machine.boot

    def _ask(self) -> None:
        self._join += 1
        self._stopping = False
        job = self.job
        self.me = Me(
            self.node, self._launcher, 1000, job.label, job.min_nodes, len(job.nodes), self._join, self.node, 29400,
            self._etcd.heap.now, self._uid, self.round,
        )  # fmt: skip
        self.round = 0
        self._wake(0.0)

    # --- what its agent sees

    def _follow(self) -> None:
        """The agent speaks for the node: it tells of what it missed, and lists what others said."""
        for worker in self._unseen:
            detail = exit_detail(Exit(), None, None, worker.order_id, UNWATCHED, worker.held)
            self.sidecar.emit(self._fact(r.WORKER_EXITED, worker, detail))
        self._unseen = []
        life = self.machine.life

        def listed(value: Any, error: StoreError | None, at: float) -> None:
            self.machine.agent_at(life, at, self._listed, value, error)

        self._etcd.call(self.node, lambda store: store.list(self._keys.prefix), listed, write=False)

    def _listed(self, listing: Listing | None, error: StoreError | None) -> None:
        if listing is None or error is not None:
            self.machine.agent_after(1.0, self._follow)
            return
        self._view = View(self._keys)
        life = self.machine.life
        self._take(listing)
        self._watch = Watch(
            self.node,
            True,
            lambda sight: self.machine.agent_at(life, self._etcd.heap.now, self._see, sight),
            LAG_S,
            listing.revision,
        )
        self._etcd.watch(self._watch)
        self._sweep()
        self._look()

    def _take(self, listing: Listing) -> None:
        assert self._view is not None
        items = [item for item in listing.items if few(self._keys, item.key)]
        self._view.relisted(frozenset(item.key for item in items), self._etcd.heap.now)
        for item in items:
            self._fold(Change(item.key, item.value, item.modified))

    def _see(self, sight: Sight) -> None:
        if isinstance(sight, Listing):
            self._take(sight)
        elif isinstance(sight, Changes):
            for change in sight.changes:
                self._fold(change)
        self._look()

    def _fold(self, change: Change) -> None:
        if self._view is None:
            return
        if change.value is None:
            self._view.gone(change.key, self._etcd.heap.now)
            return
        record = self._records.of(change.key, change.value, change.revision)
        if record is None:
            return
        if not isinstance(record, r.Order) or record.kind == "restart":
            self._view.put(change.key, record, change.revision, self._etcd.heap.now)
        if isinstance(record, r.Order):
            self._obey(record)

    def _sweep(self) -> None:
        """Joiners of torchruns that were on this machine before are gone."""
        assert self._view is not None
        for txn in rendezvous.sweep(self._view, self.node, frozenset({self._launcher}), self.sidecar.utc()):
            self._write(txn, lambda _done: None)
        self.machine.agent_after(30.0, self._sweep_again, self._view)

    def _sweep_again(self, view: View) -> None:
        if view is self._view:
            self._sweep()

    # --- the rendezvous

    def _wake(self, delay_s: float) -> None:
        """Look again then, or earlier."""
        at = self._etcd.heap.now + delay_s
        if at < self._woken_at - 0.001 or self._woken_at < self._etcd.heap.now:
            self._woken_at = at
            self.machine.agent_at(self.machine.life, at, self._woken, at)

    def _woken(self, at: float) -> None:
        if at == self._woken_at:
            self._woken_at = float("inf")
        self._look()

    def _look(self) -> None:
        """Decide anew, from what the agent sees."""
        view = self._view
        if view is None:
            return
        if self.round and not self._stopping and (found := rendezvous.again(view, self._uid, self.round)):
            self._trace.note("meets_again", node=self.node, round=self.round, why=found.reason)
            self.machine.after(self._rng.uniform(0.01, 0.3), self.stop_workers, self.round)
        if self.me is None or self._busy:
            return
        if self.me.run_uid != self._uid:
            self.me = replace(self.me, run_uid=self._uid)
        now = self._etcd.heap.now
        uid = f"{self.job.label}-{self._rng.getrandbits(32):08x}"
        step = rendezvous.decide(view, self.me, now, self.sidecar.utc(), TIMING, uid)
        if step.txn is not None:
            me = self.me
            self._write(step.txn, lambda done: self._written(done, me, step.answer))
        elif isinstance(step.answer, Met):
            self._met(step.answer)
        elif isinstance(step.answer, Refused):
            self._refused(step.answer)
        elif step.wake_at is not None:
            self._wake(max(step.wake_at - now, 0.05))

    def _written(self, done: bool, me: Me, answer: object) -> None:
        if done and self.me is me and isinstance(answer, Met):
            self._met(answer)
        elif done and self.me is me and isinstance(answer, Refused):
            self._refused(answer)
        else:
            self._wake(0.02 if done else self._rng.uniform(0.1, 0.5))

    def _refused(self, answer: Refused) -> None:
        """Whoever starts torchruns starts another."""
        self._trace.note("refused", node=self.node, kind=answer.kind, why=answer.reason)
        self.me = None
        self.machine.after(5.0, self.launch)

    def _write(self, txn: Txn, then: Any) -> None:
        guards = [Guard(key, modified) for key, modified in txn.guards]
        writes: list[Write] = [
            *(Put(key, codec.encode(record)) for key, record in txn.puts),
            *(Delete(key) for key in txn.deletes),
        ]
        life, self._busy = self.machine.life, True

        def known(value: Outcome | None, error: StoreError | None, at: float) -> None:
            self.machine.agent_at(life, at, settle, value, error)

        def settle(value: Outcome | None, error: StoreError | None) -> None:
            self._busy = False
            done = error is None and value is not None and value.done
            if done and value is not None and self._view is not None:
                self._know(txn, value.revision)
            then(done)

        self._etcd.call(self.node, lambda store: store.txn(guards, writes), known)

    def _know(self, txn: Txn, revision: int) -> None:
        """What we wrote ourselves is folded at once."""
        assert self._view is not None
        for key, record in txn.puts:
            self._view.put(key, record, revision, self._etcd.heap.now)
            if isinstance(record, r.Joiner) and record.launcher == self._launcher and not record.left:
                self._uid = record.run_uid
        for key in txn.deletes:
            self._view.gone(key, self._etcd.heap.now)

    def _met(self, met: Met) -> None:
        assert self.me is not None
        self._uid, self.round, self.me, self._stopping = met.run_uid, met.round, None, False
        if met.run_uid != self.job.uid:  # launched anew: its rounds count from one again
            self.job.uid, self.job.round = met.run_uid, 0
        self.job.convene(met.round, met.nodes * self.job.gpus)
        self._trace.note("met", node=self.node, run=met.run_uid, round=met.round, rank=met.rank, nodes=met.nodes)
        self.machine.after(self._rng.uniform(0.5, 2.0), self._spawn, met)
        self._look()

    # --- workers

    def _spawn(self, met: Met) -> None:
        if self.round != met.round or self._stopping:
            return
        world_size = met.nodes * self.job.gpus
        row = RunRow(
            self.job.label, f"{met.run_uid}-{met.round}", self._launcher, world_size, True, met.run_uid, met.round
        )
        self.workers = []
        for local in range(self.job.gpus):
            rank = met.rank * self.job.gpus + local
            worker = Worker(rank, local, self.node, self._next_pid(), self._start(), row)
            self.workers.append(worker)
            if self.job.round == met.round:
                self.job.join(worker)
            self._see_later(Fact(r.WORKER_JOINED, row, rank, local, worker.pid, worker.start, {"missing": ""}))

    def readings(self) -> list[Reading]:
        return [self.job.reading(worker) for worker in self.workers if worker.alive]

    def _fact(self, kind: str, worker: Worker, detail: Any) -> Fact:
        return Fact(kind, worker.row, worker.rank, worker.local, worker.pid, worker.start, detail)

    def _see_later(self, fact: Fact) -> None:
        """The agent notices within its scan."""
        self.machine.agent_after(self._rng.uniform(0.005, 0.03), self.sidecar.emit, fact)

    def end(self, worker: Worker, exit_: Exit, error: str = "", message: str = "") -> None:
        """A worker's process ends; its agent sees it at once, if there is one."""
        if not worker.alive or not self.machine.up:
            return
        worker.alive = False
        worker.held = self.job.style.held and exit_.code != 0 and not worker.order_id and not self._stopping
        if not self.machine.agent_up:
            self._unseen.append(worker)
        else:
            ending = {"kind": "error", "error": error, "message": message} if error else None
            pulse = self.job.reading(worker).pulse
            detail = exit_detail(exit_, ending, pulse, worker.order_id, held=worker.held)
            self._see_later(self._fact(r.WORKER_EXITED, worker, detail))
        self._trace.note("exit", node=self.node, rank=worker.rank, pid=worker.pid, code=exit_.code, signal=exit_.signal)
        if self._stopping:
            self._stopped()
        elif not worker.held:
            self.machine.after(self._rng.uniform(0.05, 1.0), self.stop_workers, self.round)

    def stop_workers(self, round_: int) -> None:
        """As torchelastic does: all local workers get SIGTERM, and after a while SIGKILL; then it asks again."""
        if self.round != round_ or self._stopping or not round_:
            return
        self._stopping = True
        for worker in self.workers:
            if worker.alive:
                deaf = worker.deaf and worker.stuck_at is not None
                delay_s = KILL_S if deaf else self._rng.uniform(0.05, 1.5)
                self.machine.after(delay_s, self.end, worker, Exit(None, 9 if deaf else 15))
        self._stopped()

    def _stopped(self) -> None:
        if self._stopping and self.round and not any(worker.alive for worker in self.workers):
            self.workers = []
            self._ask()

    # --- orders

    def _obey(self, order: r.Order) -> None:
        if self.node not in order.nodes and not order.seats.get(self.node):
            return
        mark = (order.order_id, order.kind)
        if mark in self._done:
            return
        self._done.add(mark)
        if order.kind == "restart":
            self._restart(order)
        elif order.kind == "kill":
            self._end_all(order)
        elif order.kind == "release":
            self._release(order)
        elif order.kind.startswith("collect-"):
            self.machine.agent_after(self._rng.uniform(0.2, 0.9), self._collect, order)

    def _restart(self, order: r.Order) -> None:
        if (order.run_uid, order.round) != (self._uid, self.round):
            self._report(order, 0)
            return
        guilty = {(m.rank, m.pid) for m in order.culprits if m.node == self.node}
        for worker in self.workers:
            worker.order_id = order.order_id
        killed = self._kill([w for w in self.workers if (w.rank, w.pid) in guilty])
        self.machine.agent_after(0.02, self._look)
        self.machine.agent_after(order.grace_s, self._end_round, order, list(self.workers), killed)

    def _end_all(self, order: r.Order) -> None:
        mine = self.workers if (order.run_uid, order.round) == (self._uid, self.round) else []
        for worker in mine:
            worker.order_id = order.order_id
        self._report(order, self._kill(mine))

    def _end_round(self, order: r.Order, workers: list[Worker], killed: int) -> None:
        self._report(order, killed + self._kill(workers))

    def _kill(self, workers: list[Worker]) -> int:
        living = [worker for worker in workers if worker.alive]
        for worker in living:
            self.end(worker, Exit(None, 9))
        return len(living)

    def _release(self, order: r.Order) -> None:
        if (order.run_uid, order.round) == (self._uid, self.round) and any(w.held for w in self.workers):
            self.machine.after(self._rng.uniform(0.05, 0.5), self.stop_workers, self.round)
        self._report(order, 0)

    def _collect(self, order: r.Order) -> None:
        mine = [w for w in self.workers if w.alive and (order.run_uid, order.round) == (self._uid, self.round)]
        rows = encode([self.job.row(worker) for worker in mine])
        run = mine[0].row if mine else None
        self.sidecar.emit(Fact(r.EVIDENCE, run, detail={"order_id": order.order_id, "rows": rows}))

    def _report(self, order: r.Order, killed: int) -> None:
        self.sidecar.emit(Fact(r.ORDER_DONE, detail={"order_id": order.order_id, "killed": killed}))


def few(keys: Keys, key: str) -> bool:
    """Whether agents follow this key."""
    head = key[len(keys.prefix) : len(keys.prefix) + 5]
    return head in ("rdzv/", "order", "gates", "cordo")
