"""Does a rank move, and does its run? Judged only by beats that arrived: silence is never read as standing still."""

import math
from dataclasses import dataclass

from rankpulse.core.slot import NO_STEP, PHASE_CLOSED, PHASE_INIT, PHASE_PAUSED


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
