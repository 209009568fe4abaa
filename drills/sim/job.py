"""The model of a training job: ranks in lockstep, with run-ahead, phases, local SGD, and what a fault does to them.

A plain model, not torch: what matters is what agents can see of it. Which round its torchruns are in is decided by the
real rendezvous.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from rankpulse.agent.facts import Reading
from rankpulse.core.evidence import Position, Row
from rankpulse.core.records import RunRow
from rankpulse.core.slot import PHASE_INIT, PHASE_TRAIN, Pulse
from rankpulse.drills.sim.clockwork import Heap

EVALUATE, CHECKPOINT = "evaluate", "checkpoint"
NAN: Final = float("nan")
OPS_PER_STEP: Final = 12
SEEN_S: Final = 2.0  # a phase that is shorter falls between two beats
LEARNED_STEPS, LEARNED_STAYS = 60, 5  # from then on a pace is known for certain, whoever watches


@dataclass
class Worker:
    """One rank's process. `stuck_at`: the step in which it hangs, None: it does not."""

    rank: int
    local: int
    node: str
    pid: int
    start: int
    row: RunRow
    first_step: int = -1
    alive: bool = True
    stuck_at: int | None = None
    stuck_since: float = 0.0
    deaf: bool = False  # SIGTERM does not end it
    order_id: str = ""  # marked by an order: its end is ours
    held: bool = False


@dataclass
class Style:
    """How a job trains; drawn once per run."""

    step_s: float
    ahead: int  # how far its ranks' hosts run ahead of each other
    local: int  # steps between two synchronisations, 1: every step
    evaluate_every: int
    evaluate_s: float
    save_every: int
    save_s: float
    init_s: float
    held: bool  # `rankpulse run`: a dead worker is held until the verdict
    noisy: bool  # peers of a dead rank end with an error of their own (gloo); else they just wait (nccl)


def draw_style(rng: Random) -> Style:
    step_s = rng.choice((0.25, 0.6, 1.0, 2.5))
    local = rng.choice((1, 1, 1, 1, 16))
    return Style(
        step_s=step_s,
        ahead=rng.randrange(4),
        local=local,
        evaluate_every=int(rng.uniform(25, 80) / step_s),
        evaluate_s=rng.uniform(3.0, 20.0),
        save_every=int(rng.uniform(12, 40) / step_s),
        save_s=rng.uniform(0.3, 5.0),
        init_s=rng.uniform(3.0, 9.0),
        held=rng.random() < 0.5,
        noisy=rng.random() < 0.5,
    )


@dataclass
class Job:
    """One run. `able`, by node: whether the machine and its network let its ranks take part right now."""

    heap: Heap
    rng: Random
    label: str
    nodes: tuple[str, ...]
    gpus: int
    min_nodes: int
    style: Style
    able: dict[str, bool]
    uid: str = ""
    round: int = 0
    workers: dict[int, Worker] = field(default_factory=dict)
    expected: int = 0
    training: bool = False
    phase: str = PHASE_INIT
    step: int = 0
    saved: int = 0
    slow: float = 1.0
    moved_at: float = 0.0
    began_at: float = 0.0  # of the stretch between two synchronisations
    started_at: float = 0.0  # of the round
    made: int = 0  # steps, over all rounds
    stays: dict[str, int] = field(default_factory=dict)  # in other phases that lasted long enough to be seen
    convened: "Callable[[Job], None]" = lambda _job: None  # told of every round
    _lead: dict[int, int] = field(default_factory=dict)
    _pace: dict[int, float] = field(default_factory=dict)
    _turn: int = 0
    _phase_at: float = 0.0
    _asleep: bool = True

    # --- rounds

    def convene(self, number: int, world_size: int) -> None:
        """A round has met: workers of earlier ones are not its own."""
        if number <= self.round:
            return
        self.round, self.expected, self.training, self.phase = number, world_size, False, PHASE_INIT
        self.workers, self._asleep = {}, True
        self._turn += 1
        self.started_at = self.heap.now
        self.convened(self)

    def join(self, worker: Worker) -> None:
        self.workers[worker.rank] = worker
        self._lead[worker.rank] = self.rng.randint(0, self.style.ahead)
        self._pace[worker.rank] = self.rng.uniform(0.85, 1.0)
        if len(self.workers) == self.expected:
            self.heap.after(self.style.init_s * self.rng.uniform(0.9, 1.2), self._begin, self._turn)

    def _begin(self, turn: int) -> None:
        if turn != self._turn:
            return
        if self.blocked():
            self.heap.after(0.5, self._begin, turn)
            return
        self.training, self.phase, self.step = True, PHASE_TRAIN, self.saved
        self._resume()

    def blocked(self) -> bool:
        """Whether somebody is missing in the next collective."""
        return any(not w.alive or w.stuck_at is not None or not self.able[w.node] for w in self.workers.values())

    # --- steps

    def poke(self) -> None:
        """Something changed: go on if it can."""
        if self.training and self._asleep and not self.blocked():
            self._resume()

    def _resume(self) -> None:
        self._asleep = False
        self._turn += 1
        self.began_at = self.heap.now
        self.heap.after(self._stretch_s(), self._advance, self._turn)

    def _stretch_s(self) -> float:
        usual = self.style.step_s * self.slow * self.rng.lognormvariate(0.0, 0.05)
        return usual * self.style.local + (self.rng.expovariate(2.0) if self.rng.random() < 0.002 else 0.0)

    def _advance(self, turn: int) -> None:
        if turn != self._turn:
            return
        if self.blocked():
            self._asleep = True
            return
        before = self.step
        if self.phase == PHASE_TRAIN:
            self.step += self.style.local
            self.moved_at = self.heap.now
            self.made += self.style.local
            for worker in self.workers.values():
                if worker.first_step < 0:
                    worker.first_step = before + 1
        self.began_at = self.heap.now
        self.phase, lasts_s = self._next(before)
        self.heap.after(lasts_s, self._advance, turn)

    def _next(self, before: int) -> tuple[str, float]:
        """The phase that comes, and for how long until somebody looks again."""
        if self.phase != PHASE_TRAIN:
            if self.phase == CHECKPOINT:
                self.saved = self.step
            if self.heap.now - self._phase_at > SEEN_S:
                self.stays[self.phase] = self.stays.get(self.phase, 0) + 1
            return PHASE_TRAIN, self._stretch_s()
        self._phase_at = self.heap.now
        if before // self.style.evaluate_every != self.step // self.style.evaluate_every:
            return EVALUATE, self.style.evaluate_s * self.rng.uniform(0.8, 1.25)
        if before // self.style.save_every != self.step // self.style.save_every:
            return CHECKPOINT, self.style.save_s * self.rng.uniform(0.8, 1.25)
        return PHASE_TRAIN, self._stretch_s()

    def learned(self) -> bool:
        """Whether what it does now has been seen often enough: else nobody can call it hung for a long while."""
        if self.made < LEARNED_STEPS:
            return False
        return self.phase == PHASE_TRAIN or self.stays.get(self.phase, 0) >= LEARNED_STAYS

    # --- what can be seen of it

    def step_of(self, worker: Worker) -> int:
        if worker.stuck_at is not None:
            return worker.stuck_at
        if not self.training:
            return -1
        if worker.first_step < 0:
            return -1
        if self.style.local == 1:
            return self.step + (self._lead[worker.rank] if self.phase == PHASE_TRAIN else 0)
        if self.phase != PHASE_TRAIN:
            return self.step
        pace_s = self.style.step_s * self.slow * self._pace[worker.rank]
        return self.step + min(self.style.local, int((self.heap.now - self.began_at) / pace_s))

    def reading(self, worker: Worker) -> Reading:
        """What the agent of its node reads of it now."""
        step = self.step_of(worker)
        pulse = Pulse(step, worker.first_step, 0, NAN, self.phase, 1)
        return Reading(worker.row, worker.rank, worker.local, worker.pid, worker.start, "S", pulse)

    def row(self, worker: Worker) -> Row:
        """What its agent finds when it is asked for evidence: the flight recorder's positions.

        Who hangs has not called the collective that its peers wait in; where everybody runs, all are in the same.
        """
        base = max(self.step, 0) * OPS_PER_STEP + 3
        waits = worker.stuck_at is None and self.training
        position = Position("default_pg", base + (1 if waits else 0), base, "ALLREDUCE", self.expected)
        state = "S"
        return Row(worker.rank, worker.pid, worker.start, state, "futex_wait_queue", False, "ok", (position,))

    def hang(self, worker: Worker) -> None:
        step = self.step_of(worker)
        worker.stuck_at, worker.stuck_since = step, self.heap.now
