"""How long may a phase last? Each phase of a run has its own clock, learned from that run's own past."""

import math
from collections import deque
from dataclasses import dataclass, field

from rankpulse.core.settings import DetectSettings
from rankpulse.core.slot import PHASE_TRAIN

SAMPLES = 400
ENOUGH = 20
HEALED_KEPT = 5  # stalls that passed by themselves
HEALED_FACTOR = 1.5


@dataclass
class PhaseClocks:
    """Learned durations of one run: seconds per train step, and the longest stay in every other phase."""

    settings: DetectSettings
    _recent: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))
    _sorted: list[float] | None = None
    _longest: dict[str, float] = field(default_factory=dict)
    _healed: dict[str, float] = field(default_factory=dict)  # by incident, the last few

    def stepped(self, steps: int, elapsed_s: float, ranks: int = 1) -> None:
        """`steps` train steps were seen to take `elapsed_s` together, by so many ranks at once."""
        if steps > 0 and elapsed_s >= 0:
            self._recent.extend((elapsed_s / steps,) * ranks)
            self._sorted = None

    def _samples(self) -> list[float]:
        """The recent step times in order; sorted when somebody asks, not whenever a beat adds one."""
        if self._sorted is None:
            self._sorted = sorted(self._recent)
        return self._sorted

    def stayed(self, phase: str, elapsed_s: float) -> None:
        """A rank left `phase` after `elapsed_s`."""
        self._longest[phase] = max(self._longest.get(phase, 0.0), elapsed_s)

    def healed(self, incident: str, stall_s: float) -> None:
        """A standstill of the training passed by itself after `stall_s`: such a one is no hang the next time."""
        self._healed.setdefault(incident, stall_s)
        while len(self._healed) > HEALED_KEPT:
            del self._healed[next(iter(self._healed))]

    def typical_step_s(self) -> float | None:
        """The median time of a train step, None until enough have been seen."""
        samples = self._samples()
        return samples[len(samples) // 2] if len(samples) >= ENOUGH else None

    def deadline_s(self, phase: str) -> float:
        """Standing still in `phase` for longer than this is a suspicion. Unknown phases get the prior."""
        if phase != PHASE_TRAIN:
            return max(self.settings.hang_prior_s, self.settings.hang_factor * self._longest.get(phase, 0.0))
        samples = self._samples()
        if len(samples) < ENOUGH:
            return self.settings.hang_prior_s
        p99 = samples[min(math.ceil(0.99 * len(samples)), len(samples)) - 1]
        beat = self.settings.heartbeat_interval_s
        healed = HEALED_FACTOR * max(self._healed.values(), default=0.0)
        return max(self.settings.hang_floor_s, self.settings.hang_factor * p99 + 2 * beat, healed)
