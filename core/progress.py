"""Does a rank move, and does its run? Judged only by beats that arrived: silence is never read as standing still.

A rank that has not moved costs nothing per beat: the time heard is counted once per node (`NodeClock`), and a rank only
remembers where that count stood when it moved last.
"""

import math
from dataclasses import dataclass
from typing import TypeAlias

from rankpulse.core.slot import NO_STEP, PHASE_CLOSED, PHASE_INIT, PHASE_PAUSED

# when the observer was told of it, the seconds heard of its node by then, and the beats by then that did not come one
# by one
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


class Mark:
    """How far ranks are, and the moment at which a beat first showed that.

    Ranks that move together share one, so that a beat moves them all at once; one that moves alone gets its own.
    """

    __slots__ = ("at", "heard_s", "step", "untimely")

    def __init__(self, step: int, moment: Moment) -> None:
        self.step = step
        self.at, self.heard_s, self.untimely = moment

    def moment(self) -> Moment:
        return self.at, self.heard_s, self.untimely

    def move(self, step: int, clock: NodeClock) -> None:
        """All who share it."""
        self.step, self.at, self.heard_s, self.untimely = step, clock.seen_at, clock.heard_s, clock.untimely


class RankProgress:
    """What the beats have said of one rank."""

    __slots__ = ("clock", "first_step", "mark", "phase", "state", "untold")

    def __init__(
        self, step: int = NO_STEP, *, phase: str = PHASE_INIT, moved: Moment = NEVER, clock: NodeClock | None = None
    ) -> None:
        self.mark = Mark(step, moved)
        self.first_step = NO_STEP
        self.phase, self.state = phase, "?"
        self.clock = clock or NodeClock()  # of its node, as long as the node's beats tell of it
        self.untold = False  # its node's beats do not tell of it any more: how it is, or whether, is not known

    @property
    def step(self) -> int:
        return self.mark.step

    @property
    def moved(self) -> Moment:
        """When a beat first showed this step and phase."""
        return self.mark.moment()

    def goes(self, step: int, moved: Moment) -> None:
        """It alone, whoever moved together with it until now."""
        self.mark = Mark(step, moved)

    @property
    def moved_at(self) -> float:
        return self.mark.at

    @property
    def seen_at(self) -> float:
        """When the last beat about it arrived."""
        return self.clock.seen_at

    def stale_s(self) -> float:
        """For how long, by received beats alone, step and phase have stood still."""
        return self.clock.heard_s - self.mark.heard_s

    @property
    def timely(self) -> bool:
        """The beats since it last moved came one by one: what they tell of durations can be learned."""
        return self.clock.untimely == self.mark.untimely

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
        self.goes(self.step, (at, before[1] - self.stale_s(), before[2] - late))
        self.clock, self.untold = clock, False
