"""The monitor's own health as an observer: a blind watcher must not look healthy, and must not judge.

Sight is lost when the store's watch is lost, when the monitor's own key does not come back (canary), or when its own
loop slept. When it returns, every deadline starts anew with a grace for the agents' reconnects.
"""

import math

from rankpulse.core.settings import DetectSettings

RECONNECT_GRACE_S = 5.0  # agents come back over a few seconds after an outage, with jitter


class Sight:
    """Whether silence means anything right now. Times are the observer's monotonic seconds."""

    def __init__(self, settings: DetectSettings) -> None:
        self._settings = settings
        self.reason = "the store has not been listed yet"
        self.canary_at = -math.inf
        self.blind_s = 0.0
        self.hold_until = -math.inf
        self._lost = True
        self._last_tick: float | None = None
        self._pending_grace: float | None = None

    def canary(self, now: float) -> None:
        self.canary_at = max(self.canary_at, now)

    def lost(self, reason: str, now: float) -> None:
        self._lost, self.reason = True, reason

    def back(self, now: float) -> None:
        self._lost, self.reason = False, ""
        self.restart(now)

    def restart(self, now: float) -> None:
        """Deadlines start anew: a new term of office, or sight regained."""
        self._pending_grace = RECONNECT_GRACE_S
        self.hold_until = max(self.hold_until, now + RECONNECT_GRACE_S)
        self.canary_at = -math.inf

    def tick(self, now: float) -> float | None:
        """Note that the loop lives. Returns the grace in seconds when all deadlines must start anew, else None."""
        slept = self.slept_s(now)
        if self.blind(now):
            self.blind_s += max(slept, 0.0)
        elif slept > self._settings.observer_gap_s or slept < 0:
            self.blind_s += max(slept, 0.0)
            self.restart(now)
        self._last_tick = now
        grace, self._pending_grace = self._pending_grace, None
        if grace is None and self._canary_late(now):
            self.hold_until = max(self.hold_until, now + self._settings.heartbeat_interval_s)
            return RECONNECT_GRACE_S
        return grace

    def slept_s(self, now: float) -> float:
        """Seconds since the last tick: how long the monitor itself did nothing, if it is long."""
        return 0.0 if self._last_tick is None else now - self._last_tick

    def _canary_late(self, now: float) -> bool:
        return now - self.canary_at > self._settings.canary_late_s

    def blind(self, now: float) -> bool:
        return self._lost or self._canary_late(now)

    def why_blind(self, now: float) -> str:
        if self._lost:
            return self.reason
        return "its own key does not come back from the store" if self._canary_late(now) else ""

    def proves(self, since: float, now: float) -> bool:
        """Whether a silence that began at `since` is proven: the store was seen to work after it began."""
        return not self.blind(now) and now >= self.hold_until and self.canary_at > since
