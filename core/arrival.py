"""When is a node late? An adaptive deadline per node, learned from its own beats.

The deadline is `last beat + interval + margin`; the margin is an empirical quantile of the lateness seen so far, held
between a floor and a cap (a fixed margin is either jumpy or slow; a Gaussian tail underestimates bursts by orders of
magnitude). Until enough beats have been seen the margin is the cap: a stranger gets the benefit of the doubt.

A margin is never smaller than its floor, so lateness below half of it need not be remembered one by one: a punctual
beat costs a comparison and a count.
"""

import bisect
import math
from collections import deque

from rankpulse.core.settings import DetectSettings

WINDOW = (
    500  # beats remembered: minutes at one hertz, so a lasting change of the path is learned, not suspected for ever
)
LONE = 3.0  # a single lateness, so many times longer than any other, sets no margin: one mishap; its repetition does
GAIN = 2.0  # times the quantile: what was seen at most will be a little exceeded


class Anew:
    """When the deadlines of all nodes last started anew: one value that they share, whatever their number."""

    __slots__ = ("at", "grace_s", "times")

    def __init__(self) -> None:
        self.at, self.grace_s, self.times = -math.inf, 0.0, 0

    def start(self, now: float, grace_s: float) -> None:
        """No deadline before `now + interval + margin + grace_s`; the intervals that end after it are not learned."""
        self.at, self.grace_s, self.times = now, grace_s, self.times + 1


class Arrival:
    """The beats of one node, as they were received. Times are seconds on the observer's monotonic clock."""

    __slots__ = (
        "_anew", "_expected", "_harmless", "_interval", "_last", "_late", "_learned", "_settings", "_skip_next",
        "_sorted", "_times", "again_at",
    )  # fmt: skip

    def __init__(self, settings: DetectSettings, anew: Anew | None = None) -> None:
        """`anew`: shared by all nodes of an observer; its own when none is given."""
        self._settings, self._anew = settings, anew or Anew()
        self._interval = settings.heartbeat_interval_s
        self._harmless = self._interval + settings.margin_floor_s / GAIN  # an interval up to this needs no margin
        self._learned = 0  # intervals, of all
        self._late: deque[tuple[int, float]] = deque()  # (which interval, lateness), of those that were not harmless
        self._sorted: list[float] = []  # the same latenesses
        self._last: float | None = None
        self._expected: float | None = None
        self._times = -1  # how often deadlines had started anew by the last beat
        self._skip_next = True  # the first interval, and the first after an outage, say nothing about the path
        self.again_at = -math.inf  # the last beat that followed another: a listed one may be of any age

    @property
    def last(self) -> float | None:
        """When the last beat was received."""
        if self._last is not None and self._times != self._anew.times:
            return min(self._last, self._anew.at)  # an observer's clock that went back must not postpone a deadline
        return self._last

    @property
    def watched(self) -> bool:
        """Whether beats are expected."""
        return self._last is not None or self._expected is not None

    @property
    def beats(self) -> int:
        """How many intervals have been learned from (at most the window)."""
        return min(self._learned, WINDOW)

    def beat(self, now: float) -> None:
        """A beat was received at `now`. Late ones are learned, capped: a lasting slow-down must not flap for ever."""
        last, times = self._last, self._anew.times
        if last is not None:
            self.again_at = now
            if not self._skip_next and self._times == times:
                self._learned += 1
                if now - last > self._harmless:
                    self._learn(min(now - last - self._interval, self._settings.margin_cap_s))
        self._skip_next = False
        self._times = times
        self._last = now

    def expect(self, now: float) -> None:
        """Beats should come although none ever has: a job is known to run there."""
        if self._last is None and self._expected is None:
            self._expected = now

    def renew(self, now: float, grace_s: float) -> None:
        """The deadlines of all who share this beginning start anew."""
        self._anew.start(now, grace_s)

    def forget_next(self) -> None:
        """The interval that ends with the next beat spans an outage we know of: do not learn from it."""
        self._skip_next = True

    def margin(self) -> float:
        """Seconds allowed beyond the interval."""
        known, settings = self.beats, self._settings
        if known < settings.prior_beats:
            return settings.margin_cap_s
        while self._late and self._late[0][0] <= self._learned - WINDOW:
            del self._sorted[bisect.bisect_left(self._sorted, self._late.popleft()[1])]
        above = known - min(math.ceil(settings.quantile * known), known)  # so many were later than the quantile
        worst = self._sorted[-1 - above] if above < len(self._sorted) else 0.0
        if above == 0 and self._sorted:
            usual = max(self._sorted[-2] if len(self._sorted) > 1 else 0.0, settings.margin_floor_s / GAIN)
            worst = usual if worst > LONE * usual else worst
        return min(max(GAIN * worst, settings.margin_floor_s), settings.margin_cap_s)

    def mark(self) -> tuple[float | None, int]:
        """As long as this stays the same, a deadline that is over stays so."""
        return self._last, self._anew.times

    def wait_s(self) -> float:
        """Silence longer than this is a suspicion."""
        return self._interval + self.margin()

    def deadline(self) -> float:
        """The moment after which silence is a suspicion; infinity where no beat is expected."""
        last = self.last if self._last is not None else self._expected
        if last is None:
            return math.inf
        return max(last, self._anew.at + self._anew.grace_s) + self.wait_s()

    def _learn(self, lateness: float) -> None:
        self._late.append((self._learned, lateness))
        bisect.insort(self._sorted, lateness)
