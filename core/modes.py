"""Who may act: the cluster's word, a run's own, the breaker; and which nodes are in a person's hands.

The more careful word wins, with one exception: a run may be armed while its cluster is not, so that one job can be
tried first. A `disarm` of the cluster that comes later stops that one, too: whoever pulls the brake stops everything.
Later means later in the store: no clock is compared.
"""

from typing import Final, NamedTuple

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.words import printable

ARMED, OBSERVED, PAUSED = "armed", "observe", "paused"  # modes of a run
BY_BREAKER: Final = "breaker"
NOT_ARMED: Final = "orders are not armed: rankpulse arm --reason …"


class Leave(NamedTuple):
    """Whether orders may be given for a run."""

    armed: bool
    mode: str  # armed | observe | paused | breaker
    why: str = ""  # why not


class Modes:
    """What people, and for the breaker this monitor, have said about acting; folded from records."""

    def __init__(self) -> None:
        self.arm: r.Arm | None = None
        self.runs: dict[str, r.RunMode] = {}
        self._breaker: r.Breaker | None = None  # as the store has it
        self._said: r.Breaker | None = None  # by this monitor, until the store has it
        self.maintenance: dict[str, r.Maintenance] = {}
        self._arm_revision = 0
        self._run_revisions: dict[str, int] = {}

    @property
    def breaker(self) -> r.Breaker | None:
        """As this monitor has said last; a write that failed takes nothing back, it is tried again."""
        return self._said or self._breaker

    def say(self, breaker: r.Breaker) -> None:
        self._said = breaker

    def took_office(self) -> None:
        """Only what stands in the store was ever decided."""
        self._said = None

    @property
    def open(self) -> str:
        """Why the breaker is open, "" while it is closed."""
        return self.breaker.reason or "no reason given" if self.breaker is not None and self.breaker.open else ""

    def of(self, run_uid: str) -> Leave:
        """What may be done about this run."""
        own = self.runs.get(run_uid)
        if self.open:
            return Leave(False, BY_BREAKER, f"the breaker is open: {self.open}")
        if own is not None and own.mode == PAUSED:
            return Leave(False, PAUSED, f"the run is paused by {_by(own)}")
        if own is not None and own.mode != ARMED:  # an unknown mode of a newer version is no leave
            return Leave(False, OBSERVED, f"the run is only observed, by {_by(own)}")
        if self.arm is not None and self.arm.armed:
            return Leave(True, ARMED)
        later = own is not None and self._run_revisions.get(run_uid, 0) > self._arm_revision
        return Leave(True, ARMED) if later else Leave(False, OBSERVED, NOT_ARMED)

    def on_non_finite(self, run_uid: str, *, usual: bool) -> bool:
        """Whether this run may be restarted because of its numbers; `usual`: as the settings have it."""
        own = self.runs.get(run_uid)
        return usual if own is None or own.restart_on_non_finite is None else own.restart_on_non_finite

    def on_corruption(self, run_uid: str, *, usual: bool) -> bool:
        """Whether it may be restarted because its replicas differ."""
        own = self.runs.get(run_uid)
        return usual if own is None or own.restart_on_corruption is None else own.restart_on_corruption

    # --- folding

    def armed(self, arm: r.Arm, event: ev.Seen, leading: bool) -> None:
        self.arm, self._arm_revision = arm, event.revision

    def run_mode(self, mode: r.RunMode, event: ev.Seen, leading: bool) -> None:
        self.runs[mode.run_uid], self._run_revisions[mode.run_uid] = mode, event.revision

    def breaker_seen(self, breaker: r.Breaker, event: ev.Seen, leading: bool) -> None:
        self._breaker = breaker
        if breaker == self._said:
            self._said = None

    def maintained(self, maintenance: r.Maintenance, event: ev.Seen, leading: bool) -> None:
        self.maintenance[maintenance.node] = maintenance

    def gone(self, kind: type[r.Record], names: dict[str, object]) -> None:
        """A key was deleted. A cluster whose word is gone was never armed."""
        if kind is r.Arm:
            self.arm, self._arm_revision = None, 0
        elif kind is r.Breaker:
            self._breaker = None
        elif kind is r.RunMode:
            self.runs.pop(str(names["run_uid"]), None)
        elif kind is r.Maintenance:
            self.maintenance.pop(str(names["node"]), None)

    def relisted(self) -> None:
        """What the listing repeats is there."""
        self.arm, self._arm_revision, self._breaker = None, 0, None
        self.runs.clear()
        self._run_revisions.clear()
        self.maintenance.clear()


def _by(mode: r.RunMode) -> str:
    """Who said so, and why, short enough for a line of an incident."""
    return f"{printable(mode.author, 200)}: {printable(mode.reason, 1000)}"
