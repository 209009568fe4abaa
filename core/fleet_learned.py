"""What this fleet teaches about silences, deaths and restarts: counted by the leader, kept in one record.

Every monitor judges by the record as the store has it, so that a new leader comes to the same times.
"""

import msgspec

from rankpulse.core import cost_rule
from rankpulse.core import diagnosis as d
from rankpulse.core.cost_rule import Times
from rankpulse.core.incidents import PASSED, RECOVERED
from rankpulse.core.records import FleetLearned, Incident
from rankpulse.core.settings import DetectSettings

HEALED_KEPT, RESTARTS_KEPT = 200, 20
WRITE_S = 60.0  # not more often, and only when something happened
QUIET_WRITE_S = 600.0  # when nothing but watched time was added
DAY_S = 86400.0
MOST_DAYS, MOST_EVENTS = 1e9, 10**9


def sane(record: FleetLearned) -> FleetLearned:
    """What of a record can be: whatever stands in the store, the times that follow from it are times."""
    healed_s = tuple(s for s in record.healed_s[-HEALED_KEPT:] if 0 < s <= DAY_S)
    days = record.node_days if 0 <= record.node_days <= MOST_DAYS else 0.0  # nan lies nowhere
    return msgspec.structs.replace(
        record,
        node_days=days,
        deaths=min(max(record.deaths, 0), MOST_EVENTS),
        healed=min(max(record.healed, len(healed_s)), MOST_EVENTS),
        healed_s=healed_s,
        restart_s=tuple(s for s in record.restart_s[-RESTARTS_KEPT:] if 0 <= s <= 7 * DAY_S),
    )


class FleetMemory:
    """One per engine."""

    def __init__(self, settings: DetectSettings) -> None:
        self._settings = settings
        self.stored: FleetLearned | None = None
        self.times: Times = cost_rule.times(settings, None)
        self._mine = FleetLearned(at=0.0)
        self._watched_s = 0.0
        self._changed = False
        self._written_at: float | None = None  # observer's monotonic seconds

    def seen(self, record: FleetLearned) -> None:
        """What the store holds."""
        self.stored = sane(record)
        self.times = cost_rule.times(self._settings, self.stored)

    def took_office(self) -> None:
        """Count on from what the store holds."""
        self._mine = self.stored or FleetLearned(at=0.0)
        self._watched_s, self._changed, self._written_at = 0.0, False, None

    def watched(self, node_seconds: float) -> None:
        """Nodes were watched with good sight for so long, together."""
        self._watched_s += node_seconds

    def healed(self, silence_s: float) -> None:
        """A node was silent on every path, and came back by itself."""
        kept = (*self._mine.healed_s, round(silence_s, 3))[-HEALED_KEPT:]
        self._change(healed_s=kept, healed=self._mine.healed + 1)

    def closed(self, incident: Incident, step_s: float | None) -> None:
        """An incident is over; `step_s`: what a step of its run takes."""
        if incident.klass == d.NODE_DEAD and len(incident.nodes) == 1 and incident.outcome != PASSED:
            self._change(deaths=self._mine.deaths + 1)
        if incident.outcome == RECOVERED and incident.time_to_recover_s is not None and incident.klass != d.DRAIN:
            again_s = (incident.lost_steps or 0) * (step_s or 0.0)
            cost = round(incident.time_to_recover_s + again_s, 3)
            self._change(restart_s=(*self._mine.restart_s, cost)[-RESTARTS_KEPT:])

    def due(self, now: float, at: float) -> FleetLearned | None:
        """The record as it should be written now; None while there is no need."""
        if self._written_at is None:
            self._written_at = now
        if now - self._written_at < (WRITE_S if self._changed else QUIET_WRITE_S):
            return None
        if not self._changed and self._days() == self._mine.node_days:
            return None
        self._mine = self.present(at)
        self._watched_s, self._changed, self._written_at = 0.0, False, now
        return self._mine

    def present(self, at: float) -> FleetLearned:
        """All that is known by now, whether the store has it or not."""
        return msgspec.structs.replace(self._mine, at=at, node_days=self._days())

    def _days(self) -> float:
        return round(self._mine.node_days + self._watched_s / DAY_S, 6)

    def _change(self, **fields: object) -> None:
        self._mine = msgspec.structs.replace(self._mine, **fields)
        self._changed = True
