"""Does a rank move, and does its run? Judged only by beats that arrived: silence is never read as standing still."""

import bisect
import math
from collections import deque
from dataclasses import dataclass, field

from rankpulse.core.settings import DetectSettings
from rankpulse.core.slot import NO_STEP, PHASE_CLOSED, PHASE_INIT, PHASE_PAUSED, PHASE_TRAIN

SAMPLES = 400
ENOUGH = 20
SPREADS = 40
HEALED_KEPT = 5  # stalls that passed by themselves
HEALED_FACTOR = 1.5


@dataclass
class RankProgress:
    """What the beats have said of one rank. Times are the observer's."""

    step: int = NO_STEP
    first_step: int = NO_STEP
    phase: str = PHASE_INIT
    state: str = "?"
    moved_at: float = -math.inf  # when a beat first showed this step and phase
    seen_at: float = -math.inf  # when the last beat about it arrived
    still_s: float = 0.0  # for how long, by received beats alone, step and phase have stood still
    timely: bool = True  # the beats since it last moved came one by one: what they tell of durations can be learned

    def stale_s(self) -> float:
        return self.still_s

    def resting(self) -> bool:
        """Standing still on purpose: paused, closed, or held by a debugger."""
        return self.phase in (PHASE_PAUSED, PHASE_CLOSED) or self.state == "t"


@dataclass
class PhaseClocks:
    """Learned durations of one run: seconds per train step, and the longest stay in every other phase."""

    settings: DetectSettings
    _recent: deque[float] = field(default_factory=deque)
    _sorted: list[float] = field(default_factory=list)
    _longest: dict[str, float] = field(default_factory=dict)
    _healed: dict[str, float] = field(default_factory=dict)  # by incident, the last few

    def stepped(self, steps: int, elapsed_s: float) -> None:
        """`steps` train steps were seen to take `elapsed_s` together."""
        if steps <= 0 or elapsed_s < 0:
            return
        sample = elapsed_s / steps
        self._recent.append(sample)
        bisect.insort(self._sorted, sample)
        if len(self._recent) > SAMPLES:
            del self._sorted[bisect.bisect_left(self._sorted, self._recent.popleft())]

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
        return self._sorted[len(self._sorted) // 2] if len(self._sorted) >= ENOUGH else None

    def deadline_s(self, phase: str) -> float:
        """Standing still in `phase` for longer than this is a suspicion. Unknown phases get the prior."""
        if phase != PHASE_TRAIN:
            return max(self.settings.hang_prior_s, self.settings.hang_factor * self._longest.get(phase, 0.0))
        if len(self._sorted) < ENOUGH:
            return self.settings.hang_prior_s
        p99 = self._sorted[min(math.ceil(0.99 * len(self._sorted)), len(self._sorted)) - 1]
        beat = self.settings.heartbeat_interval_s
        healed = HEALED_FACTOR * max(self._healed.values(), default=0.0)
        return max(self.settings.hang_floor_s, self.settings.hang_factor * p99 + 2 * beat, healed)


@dataclass
class RunAhead:
    """How far ranks of a run are seen apart when all of them can be seen: the soundness of the progress alibi.

    Steps are sampled once per beat, so ranks that move in lockstep are still *seen* some steps apart. A run counts as
    synchronous once that distance has been watched for a while and has stopped growing; ranks that run on their own
    drift apart without bound.
    """

    _spreads: deque[int] = field(default_factory=lambda: deque(maxlen=SPREADS))
    _advances: deque[int] = field(default_factory=lambda: deque(maxlen=SPREADS))
    _lowest: int | None = None

    def saw(self, lowest: int, highest: int) -> None:
        """All ranks were just seen, between these steps."""
        self._spreads.append(highest - lowest)
        self._advances.append(max(lowest - self._lowest, 0) if self._lowest is not None else 0)
        self._lowest = lowest

    def synchronous(self) -> bool:
        if len(self._spreads) < SPREADS // 2:
            return False
        half = len(self._spreads) // 2
        first, second = list(self._spreads)[:half], list(self._spreads)[half:]
        return max(second) <= max(first) + max(self._advances) + 2

    def limit(self) -> int:
        """A step more than this beyond a rank's last reported one needed that rank."""
        return max(self._spreads, default=0) + 1
