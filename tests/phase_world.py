"""A job of mixed phases on a virtual clock, day after day, under the real engine: what its agents see, honestly told.

Each day has evaluations, checkpoints, a recompilation that nobody announces, and stalls of the data loader with a heavy
tail; now and then a worker dies and the job starts anew. Quiet stretches of training are cut short: every step of them
is like the others, and takes far less than any deadline. All that can look like a hang is played in full.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

import msgspec
from core_world import Proc, World

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.evidence import Position, Row
from rankpulse.core.settings import parse

NODES = {"node-a": 2, "node-b": 2}
STEP_S = 2.0
PATIENT_SIGHT = parse({"detect": {"observer_gap_s": 5.0}})  # ticks may be further apart
BEHIND, WAITS = "behind", "waits"  # what a rank does in a standstill: not in the collective, or waiting in it


class Light(World):
    """The store keeps records as they are: nothing is encoded, and beats that tell nothing new are not made anew."""

    def __post_init__(self) -> None:
        self.rows: dict[str, tuple[object, r.Record]] = {}
        super().__post_init__()

    def put(self, key: str, record: r.Record) -> None:
        self.revision += 1
        self.store[key] = (record, self.revision)  # type: ignore[assignment]
        self.engine.step(ev.Seen(key, record, self.revision, self.now))

    def beat(self, node: str) -> None:
        mine = [p for p in self.procs if p.node == node and p.alive]
        told = tuple((p, p.step, p.phase, p.state) for p in mine)
        self.seq[node] = self.seq.get(node, 0) + 1
        known = self.rows.get(node)
        if known is None or known[0] != told:
            super().beat(node)  # builds the rows
            last = self.store[self.keys.beat(node)][0]
            self.rows[node] = (told, last)
            return
        beat = msgspec.structs.replace(known[1], seq=self.seq[node])
        self.put(self.keys.beat(node), beat)

    def incidents(self) -> list[r.Incident]:
        return [record for record, _ in self.store.values() if isinstance(record, r.Incident)]

    def orders(self) -> list[r.Order]:
        return [record for record, _ in self.store.values() if isinstance(record, r.Order)]

    def relist(self) -> None:
        self.engine.step(ev.Relisted(self.revision, self.now))
        for key, (record, revision) in sorted(self.store.items(), key=lambda item: item[1][1]):
            self.engine.step(ev.Seen(key, record, revision, self.now))  # type: ignore[arg-type]


@dataclass
class Job:
    """The job and its agents. `slow_down`: what the time of a step is multiplied with.

    `idle_tick_s`: between ticks while a phase lasts in which nothing happens; a tick that comes later can only make a
    monitor slower to speak, never keep it from speaking.
    """

    rng: Random
    world: Light = field(default_factory=lambda: Light(PATIENT_SIGHT))
    nodes: dict[str, int] = field(default_factory=lambda: dict(NODES))
    round: int = 0
    step: int = 0
    slow_down: float = 1.0
    idle_tick_s: float = 1.0
    suspicions: int = 0  # evidence was asked for
    hung: Proc | None = None
    busy: set[int] = field(default_factory=set)  # ranks at work while others wait, or all of them
    seconds: float = 0.0
    lasted: dict[str, list[float]] = field(default_factory=dict)  # by phase, what it truly took
    _answers: list[tuple[float, int, r.Order, str]] = field(default_factory=list)
    _asked: set[str] = field(default_factory=set)
    _ids: Iterator[int] = field(default_factory=count)
    _beats: dict[str, float] = field(default_factory=dict)
    _ticked_at: float = 0.0

    def __post_init__(self) -> None:
        self.world.arm()
        for at, node in enumerate(self.nodes):
            self._beats[node] = self.world.now + 1.0 + at / len(self.nodes)

    # --- what the job does

    def start(self, first_step_s: float) -> None:
        """A round begins: its first step takes long, for it compiles."""
        self.round += 1
        self.world.procs = [p for p in self.world.procs if p.alive]
        for proc in self.world.meets(self.nodes, self.round, first_step=self.step + 1):
            proc.step = proc.first_step = -1
            proc.phase = "init"
        self.busy = set(range(len(self.procs)))
        self._pass(first_step_s, "until the first step")
        self.busy = set()
        self._stepped()

    @property
    def procs(self) -> list[Proc]:
        return [p for p in self.world.procs if p.alive]

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self._pass(STEP_S * self.slow_down * self.rng.lognormvariate(0.0, 0.03), "train")
            self._stepped()

    def quiet(self, steps: int) -> None:
        """So many steps go by that are like the others: their pace is learned from, and nothing else is played."""
        [run] = [run for run in self.world.engine.folder.fleet.runs.values() if run.open()]
        for _ in range(steps):
            run.clocks.stepped(1, STEP_S * self.slow_down * self.rng.uniform(0.94, 1.06))

    def stall(self, seconds: float, ranks: set[int]) -> None:
        """A step takes so much longer, because these ranks are at work outside of it and have told nobody."""
        self.busy = ranks
        self._pass(STEP_S + seconds, "train stalls")
        self.busy = set()
        self._stepped()

    def phase(self, name: str, seconds: float, *, at_work: bool = True) -> None:
        """All ranks enter a phase, and leave it together."""
        self._enter(name)
        self.busy = {p.rank for p in self.procs} if at_work else set()
        self._pass(seconds, name)
        self.busy = set()
        self._enter("train")

    def dies(self) -> None:
        """A worker is killed, and torchrun starts the next round."""
        first, *others = self.procs
        self.world.ends(first, signal=9)
        for proc in others:
            self.world.ends(proc, signal=15)
        self._pass(1.0, "")

    def hangs(self, rank: int, phase: str, after_s: float) -> float:
        """A rank hangs in a phase, `after_s` into it. Returns the seconds until an incident says so."""
        if phase != "train":
            self._enter(phase)
        self._pass(after_s, "")
        self.hung, began = next(p for p in self.procs if p.rank == rank), self.world.now
        while not self.convictions():
            self._pass(0.25, "")
            assert self.world.now - began < 4000, "it was never found"
        return self.world.now - began

    def ended_by_order(self) -> None:
        """The restart that the monitor orders: the round ends, and another begins."""
        began = self.world.now
        while not self.world.of_kind("restart"):
            self._pass(0.5, "")
            assert self.world.now - began < 120, "nobody ended it"
        order = self.world.of_kind("restart")[-1]
        for proc in self.procs:
            self.world.ends(proc, signal=9, order_id=order.order_id)
        self.hung = None
        self._pass(1.0, "")

    def convictions(self) -> list[r.Incident]:
        """Open incidents that blame a rank for a standstill."""
        return [i for i in self.world.incidents() if i.klass == "collective_hang" and i.state == "open"]

    def told(self) -> list[r.Incident]:
        """All that was ever said of standstills."""
        return [i for i in self.world.incidents() if i.klass in ("collective_hang", "unknown")]

    def _enter(self, phase: str) -> None:
        for proc in self.procs:
            proc.phase = phase

    def _stepped(self) -> None:
        self.step += 1
        for proc in self.procs:
            proc.step, proc.phase = self.step, "train"
            if proc.first_step < 0:
                proc.first_step = self.step

    # --- what is seen of it

    def _pass(self, seconds: float, phase: str) -> None:
        """Time passes: beats, answers and ticks come at their times."""
        if phase:
            self.lasted.setdefault(phase, []).append(seconds)
        self.seconds += seconds
        world, until = self.world, self.world.now + seconds
        while True:
            node = min(self._beats, key=self._beats.__getitem__)
            at = self._beats[node]
            if self._answers and self._answers[0][0] <= min(at, until):
                at, _, order, who = heapq.heappop(self._answers)
                world.now = max(world.now, at)
                self._answer(order, who)
                world.tick()
                continue
            if at > until:
                world.now = until
                return
            world.now = at
            self._beats[node] = at + 1.0 + self.rng.uniform(-0.004, 0.004)
            world.beat(node)
            if node == "node-a":
                world.engine.step(ev.CanarySeen(at))
            elif at - self._ticked_at >= (self.idle_tick_s if phase in ("evaluate", "checkpoint") else 0.9):
                self._ticked_at = at
                world.tick()
                self._collect()

    def _collect(self) -> None:
        """Agents answer orders of evidence after a second or two."""
        for order in self.world.orders():
            if order.kind.startswith("collect") and order.order_id not in self._asked:
                self._asked.add(order.order_id)
                self.suspicions += 1
                for node in order.nodes:
                    heapq.heappush(
                        self._answers, (self.world.now + self.rng.uniform(0.7, 1.8), next(self._ids), order, node)
                    )

    def _answer(self, order: r.Order, node: str) -> None:
        rows = [self._row(p) for p in self.procs if p.node == node]
        self.world.observe(r.EVIDENCE, node, order_id=order.order_id, rows=msgspec.json.encode(rows).decode())

    def _row(self, proc: Proc) -> Row:
        """Honestly: who is at work uses the CPU, who waits does not, and who hangs is in no collective."""
        here = 10 * self.step
        absent = proc is self.hung or (proc.rank in self.busy and self.hung is None)
        place = Position("world", here if absent else here + 1, here, "all_reduce")
        at_work = absent and proc is not self.hung
        state = "R" if at_work else "S"
        return Row(proc.rank, proc.pid, proc.start, state, "", at_work, "ok", (place,))


def day(job: Job, *, steps: int, quiet: int = 200, evaluations: int = 12, saves: int = 48, stalls: int = 40) -> None:
    """One day: what happens in it comes in a random order, with `steps` of training in between, the others `quiet`."""
    rng, ranks = job.rng, len(job.procs)
    events = ["evaluate"] * evaluations + ["checkpoint"] * saves + ["stall"] * stalls + ["recompile"]
    rng.shuffle(events)
    for event in events:
        job.quiet(quiet)
        job.train(steps)
        if event == "evaluate":
            job.phase(event, rng.uniform(60, 70))
        elif event == "checkpoint":
            job.phase(event, rng.uniform(18, 26))
        elif event == "recompile":
            job.stall(rng.uniform(20, 60), set(range(ranks)) if rng.random() < 0.5 else {rng.randrange(ranks)})
        else:
            job.stall(min(rng.lognormvariate(0.4, 1.2), 90.0), {rng.randrange(ranks)})
