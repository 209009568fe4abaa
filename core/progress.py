"""Does a rank move, and does its run? Judged only by beats that arrived: silence is never read as standing still.

A rank that has not moved costs nothing per beat: the time heard is counted once per node (`NodeClock`), and a rank only
remembers where that count stood when it moved last.
"""

import math
from dataclasses import dataclass, field
from typing import TypeAlias

from rankpulse.core.slot import NO_STEP, PHASE_CLOSED, PHASE_INIT, PHASE_PAUSED

# when the observer was told of it, the seconds heard of its node by then, and the beats by then that did not come one
# by one; a plain tuple, since every beat that shows a step makes one
Moment: TypeAlias = tuple[float, float, int]
NEVER: Moment = (-math.inf, 0.0, 0)


@dataclass(slots=True, eq=False)
class NodeClock:
    """What the beats of one node have covered. Times are the observer's."""

    seen_at: float = -math.inf  # when the last beat was received
    heard_s: float = 0.0  # time covered by received beats alone
    untimely: int = 0  # beats that came too soon or too late after the one before: they were held up

    def moment(self) -> Moment:
        return self.seen_at, self.heard_s, self.untimely


@dataclass(slots=True, eq=False)
class RankProgress:
    """What the beats have said of one rank."""

    step: int = NO_STEP
    first_step: int = NO_STEP
    phase: str = PHASE_INIT
    state: str = "?"
    moved: Moment = NEVER  # when a beat first showed this step and phase
    clock: NodeClock = field(default_factory=NodeClock)  # of its node, as long as the node's beats tell of it
    untold: bool = False  # its node's beats do not tell of it any more: how it is, or whether, is not known

    @property
    def moved_at(self) -> float:
        return self.moved[0]

    @property
    def seen_at(self) -> float:
        """When the last beat about it arrived."""
        return self.clock.seen_at

    def stale_s(self) -> float:
        """For how long, by received beats alone, step and phase have stood still."""
        return self.clock.heard_s - self.moved[1]

    @property
    def timely(self) -> bool:
        """The beats since it last moved came one by one: what they tell of durations can be learned."""
        return self.clock.untimely == self.moved[2]

    def resting(self) -> bool:
        """Standing still on purpose: paused, closed, or held by a debugger."""
        return self.phase in (PHASE_PAUSED, PHASE_CLOSED) or self.state == "t"

    def left(self, before: Moment) -> None:
        """Beats tell of it no longer; `before`: where its node's clock stood at the last that did."""
        self.clock, self.untold = NodeClock(*before), True

    def joined(self, clock: NodeClock, before: Moment) -> None:
        """Beats of a node tell of it again; what counts is the time since `before`, not that in which none did."""
        at, _, untimely = self.moved
        late = self.clock.untimely - untimely
        self.moved = (at, before[1] - self.stale_s(), before[2] - late)
        self.clock, self.untold = clock, False
