"""Agents and a job that obey the store: they beat, carry out orders, meet again by the gate's word, and train."""

from typing import Final

from core_world import World
from monitors import UTC

from rankpulse.core import codec
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.evidence import Position
from rankpulse.core.last_words import Words, told
from rankpulse.core.settings import Settings
from rankpulse.drills.sim.clockwork import Heap, finish
from rankpulse.store.memory import MemoryStore

EVERY_S: Final = 0.5
MEET_S: Final = 1.0  # from the last torchrun that asks to a new round
LOOK_S: Final = 0.1
UID: Final = "job-1"


class Fleet(World):
    """What `World` tells of agents goes to the store in memory; there is no engine in it."""

    def __init__(self, heap: Heap, settings: Settings) -> None:
        self.heap = heap
        self.memory = MemoryStore(lambda: heap.now)
        self.deaf: set[str] = set()  # nodes whose agents carry out no order
        self.dead: set[str] = set()  # machines
        self.spares: dict[str, int] = {}
        self.behind = -1  # the rank that is found behind in the collective
        self.can_train = True  # what comes after a restart
        self.round, self.met_at, self.heirs = 1, 0.0, 0
        self._asked: dict[str, int] = {}
        self._full_at: float | None = None
        self._obeyed: set[tuple[str, str]] = set()
        super().__init__(settings=settings)
        heap.after(EVERY_S, self._beat)

    def __post_init__(self) -> None:
        from rankpulse.core.keys import Keys

        self.keys = Keys(self.settings.cluster)

    @property
    def store(self) -> dict[str, tuple[bytes, int]]:
        return {key: (item.value, item.modified) for key, item in self.memory._items.items()}

    @store.setter
    def store(self, _value: object) -> None:
        """It is the one in memory."""

    def put(self, key: str, record: r.Record) -> None:
        finish(self.memory.put(key, codec.encode(record)))

    def erase(self, key: str) -> None:
        finish(self.memory.delete(key))

    def states(self, node: str) -> None:
        state = r.NodeState(
            node=node, inc=self.inc.setdefault(node, 1), at=UTC, host=node, agent_version="1",
            interval_s=EVERY_S, probe="10.0.0.1:9465", boot_id=f"boot-{node}",
        )  # fmt: skip
        self.put(self.keys.state(node), state)

    def begin(self, nodes: dict[str, int], **spares: int) -> None:
        """An armed cluster, and the first round of a job."""
        self.arm()
        for node in [*nodes, *spares]:
            self.states(node)
        self.size, self.spares = len(nodes), spares
        self.asks(nodes, 1)
        self.meets(nodes, 1, asks=False)
        for spare in spares:
            self.torchrun(spare, 1)

    def look(self, node: str) -> tuple[str, float, r.Beat | None]:
        """What a direct look comes to."""
        if node in self.dead:
            return ev.SILENT, self.settings.probe.timeout_s, None
        item = self.store.get(self.keys.beat(node))
        return ev.ANSWERED, LOOK_S, codec.decode(r.Beat, item[0]) if item else None

    def die(self, *nodes: str) -> None:
        """Machines, without a word. The job waits for them."""
        self.dead.update(nodes)
        self.training = False

    # --- what happens by itself

    def _beat(self) -> None:
        self.heap.after(EVERY_S, self._beat)
        self.now = self.heap.now
        self._advance()
        for node in sorted({p.node for p in self.procs} | set(self.inc)):
            if node not in self.dead:
                self.beat(node)
        for order in self.orders():
            self._carry_out(order)
        self._meet()
        self.memory.tick()

    def _carry_out(self, order: r.Order) -> None:
        for node in order.nodes:
            if node in self.dead or (order.order_id, node) in self._obeyed:
                continue
            if order.kind.startswith("collect"):
                self._obeyed.add((order.order_id, node))
                at = {rank: (Position("w", 7 + (rank != self.behind), 7, "all_reduce"),) for rank in range(8)}
                self.answers(order, node, at)
            elif node not in self.deaf:
                self._obeyed.add((order.order_id, node))
                self.heap.after(order.last_words_s, self._end_workers, order, node)

    def _end_workers(self, order: r.Order, node: str) -> None:
        """Trainers that were asked to save first have taken all the time that they had."""
        for proc in [p for p in self.procs if p.node == node and p.alive and p.row.round == order.round]:
            self.ends(proc, signal=15, order_id=order.order_id)
        said = Words("saved", self.last_step(), order.absent) if order.last_words_s else Words()
        self.observe(r.ORDER_DONE, node, order_id=order.order_id, killed=0, **told(said))
        self.ask_again(node, order.round + 1)

    def last_step(self) -> int:
        return max((p.step for p in self.procs), default=0)

    def ask_again(self, node: str, round_: int) -> None:
        if self._asked.get(node, 1) < round_:
            self._asked[node] = round_
            self.torchrun(node, round_)

    def _meet(self) -> None:
        """The next round forms by the gate's word, of everybody who may be in it."""
        gate = next((gate for gate in self.gates() if gate.round == self.round + 1), None)
        if gate is None or not self._asked:
            return
        if not gate.go:
            self._refused(gate)
            return
        out = {*gate.without, *gate.lost}
        members = {p.node for p in self.procs if p.row.round == self.round} | set(self._asked)
        ready = [node for node in sorted(members - out) if self._asked.get(node) == gate.round]
        ready += [node for node in sorted(self.spares.keys() - members - out) if node not in self.dead]
        if members - out - set(ready) or len(ready) < self.size:
            self._full_at = None
            return
        self._full_at = self._full_at or self.heap.now
        if self.heap.now - self._full_at >= MEET_S:
            self._full_at = None
            self._next(ready[: self.size], gate)

    def _next(self, nodes: list[str], gate: r.Gate) -> None:
        """From where the last round was, or before the step that it must not come to again."""
        first, limit = self.last_step() + 1, gate.resume_before_step
        first = max(min(first, limit), 1) if limit >= 0 else max(first, 1)
        self.round, self.training, self.met_at = gate.round, self.can_train, self.heap.now
        before = (limit, gate.resume_before_round)
        self.meets(dict.fromkeys(nodes, 2), gate.round, asks=False, first_step=first, before=before)

    def cancelled(self, reason: str) -> None:
        """Whoever started the job ends it: workers, and torchruns that ask for nothing any more."""
        for proc in [proc for proc in self.procs if proc.alive]:
            self.ends(proc, signal=15)
        for node in sorted({proc.node for proc in self.procs}):
            self.leaves(node, "failed", reason)
        self._asked.clear()

    def _refused(self, gate: r.Gate) -> None:
        """There shall be no further round."""
        for node in sorted(self._asked):
            self.torchrun(node, gate.round, left="refused (closed): the run is closed", outcome="gone")
        self.lists(closed=gate.reason, outcome="failed")
        self._asked.clear()

    # --- what is said of it afterwards

    def written(self, prefix: str) -> list[tuple[str, bytes]]:
        """Every put under `prefix`, in order."""
        return [(c.key, c.value) for c in self.memory._log if c.key.startswith(prefix) and c.value is not None]

    def ordered(self, kind: str) -> list[r.Order]:
        """Every order of this kind that was ever written."""
        found = [codec.decode(r.Order, value) for _, value in self.written(self.keys.orders())]
        return [order for order in found if order.kind.startswith(kind)]
