"""How far the job is: step and phase of every node at every moment of a day of the trace.

Training is synchronous: no step ends while a node is frozen, cut off from the fabric or dead. Checkpoints and
evaluations come by the clock. What the monitor learns of all this, it learns from beats that arrive.
"""

import bisect
import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.trace import Day, union

TRAIN, CHECKPOINT, EVALUATE = "train", "checkpoint", "evaluate"
FREE_SPREAD: Final = 0.05  # of a node's own pace, between the meetings of local SGD


class Place(NamedTuple):
    """Where the ranks of a node are."""

    step: int
    phase: str


class Manner(NamedTuple):
    """How the ranks run together. `ahead`: how many steps a rank may be ahead of what others need of it;
    `meet_every`: steps between two meetings (local SGD), 1: each step needs everybody."""

    ahead: int = 0
    meet_every: int = 1


TOGETHER: Final = Manner()


class Death(NamedTuple):
    """These nodes are gone from then on, and nobody passes the step that needs them."""

    nodes: frozenset[int]
    at: float


@dataclass
class Timeline:
    """What the day itself makes of the job, before anybody dies."""

    day: Day
    begins: list[float] = field(init=False)  # of the phases in which no step is made
    phases: list[tuple[float, str]] = field(init=False)  # their ends and names
    ends: list[float] = field(init=False)  # when each step ends
    edges: list[float] = field(init=False)  # where training begins or stops
    trained_by: list[float] = field(init=False)  # seconds of training until there

    def __post_init__(self) -> None:
        day = self.day
        phases = [(a, b, CHECKPOINT) for a, b in day.checkpoints.pairs()]
        phases = sorted([*phases, *((a, b, EVALUATE) for a, b in day.evaluations.pairs())])
        self.begins, self.phases = [a for a, _, _ in phases], [(b, name) for _, b, name in phases]
        self.edges, self.trained_by = [0.0], [0.0]
        for start, end in union(day.checkpoints, day.evaluations, day.stalls_job()).pairs():
            by = self.trained_by[-1] + start - self.edges[-1]
            self.edges += [start, end]
            self.trained_by += [by, by]
        count = int(day.seconds / z.STEP_S * 1.1) + 10
        lengths = z.STEP_S * (1.0 + z.STEP_SPREAD * day.rng("steps").standard_normal(count))
        steps = np.cumsum(np.maximum(lengths, 0.1))
        late = day.seconds + 2 * z.STEP_S * count
        knots = [*self.trained_by, self.trained_by[-1] + late - self.edges[-1]]
        self.ends = np.interp(steps, knots, [*self.edges, late]).tolist()

    def phase(self, at: float) -> str:
        i = bisect.bisect_right(self.begins, at) - 1
        return self.phases[i][1] if i >= 0 and at < self.phases[i][0] else TRAIN

    def trained(self, at: float) -> float:
        """Seconds of training until then."""
        return float(np.interp(at, self.edges, self.trained_by)) + (
            max(at - self.edges[-1], 0.0) if at > self.edges[-1] else 0.0
        )


class Job:
    """A day of it. `place` says where a node's ranks are by what they report."""

    def __init__(self, timeline: Timeline, manner: Manner = TOGETHER, death: Death | None = None) -> None:
        self.day, self.death = timeline.day, death
        self._line, self._manner = timeline, manner
        self._phase_until, self._last = math.inf, 2**62
        if death is not None:
            self._phase_until, self._last = death.at, self._limit(death)

    def place(self, node: int, at: float) -> Place:
        """Once a node has died no phase ends any more: everybody waits for it there."""
        step = bisect.bisect_right(self._line.ends, at) if self._manner == TOGETHER else self._step(node, at)
        return Place(min(step, self._last), self._line.phase(min(at, self._phase_until)))

    def _step(self, node: int, at: float) -> int:
        if self._manner.meet_every > 1:
            return self._free(node, at)
        return max(bisect.bisect_right(self._line.ends, at) - self._lag(node, at), 0)

    def _lag(self, node: int, at: float) -> int:
        """How many steps a node is behind the first: within the run-ahead, and changing."""
        return (node * 7 + int(at / 20.0) * 3) % (self._manner.ahead + 1)

    def _free(self, node: int, at: float) -> int:
        """Local SGD: each at its own pace, and at every meeting all wait for the slowest."""
        every = self._manner.meet_every
        trained = self._line.trained(at)
        round_s = every * z.STEP_S * (1.0 + FREE_SPREAD)
        rounds = int(trained / round_s)
        pace = z.STEP_S * (1.0 + FREE_SPREAD * math.sin(node * 12.9898))
        return rounds * every + min(int((trained - rounds * round_s) / pace), every)

    def _limit(self, death: Death) -> int:
        """The last step that anybody can finish."""
        victim, every = min(death.nodes), self._manner.meet_every
        if every > 1:
            return (self._free(victim, death.at) // every + 1) * every
        return self._step(victim, death.at) + self._manner.ahead
