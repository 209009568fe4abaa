"""What the time of a run goes to while an incident of it is open, by the monitor's own clock.

At every tick the run is in one stage, by what is believed of it, and the time since the last tick goes to that stage.
The sums stand in the incident from stage to stage, so that a new leader counts on from them. What it was there to see
itself goes to the stage that it finds; what nobody saw is called so.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rankpulse.core import deaths, policy
from rankpulse.core import diagnosis as d
from rankpulse.core.incidents import PASSED
from rankpulse.core.ledger import PLANNED
from rankpulse.core.records import CheckpointState, Incident
from rankpulse.core.views import RoundView, RunView

DETECTION, DIAGNOSIS, PERSON, STOP = "detection", "diagnosis", "person", "stop"
WAITING, RENDEZVOUS, START, LOAD = "waiting", "rendezvous", "start", "load"
RECOMPUTATION, UNSEEN = "recomputation", "unseen"
CHECKPOINT, STRAGGLING = "checkpoint", "straggling"  # outside of incidents: see `core.exposure`
CAUSES: Final = (
    DETECTION, DIAGNOSIS, PERSON, STOP, WAITING, RENDEZVOUS, START, LOAD, RECOMPUTATION, CHECKPOINT, STRAGGLING, UNSEEN
)  # fmt: skip
OVERHEAD: Final = (CHECKPOINT, STRAGGLING)
GOING_ON: Final = "going_on"  # nothing is lost: kept while the incident is open, so that no time is counted twice
GAP_S: Final = 1.0  # less is no gap between two monitors
_NOBODY_ACTS: Final = (policy.PAGE, policy.OBSERVE, policy.NONE)


def stage(incident: Incident, run: RunView, *, moving: Callable[[], bool]) -> str:
    """What the run's time goes to right now. `moving`: whether any of its ranks has moved just now."""
    if run.current.number > incident.round:
        return START
    round_ = run.current
    ordered = bool(incident.order_id) or incident.round in run.ordered
    if _anybody_alive(round_, incident):
        if ordered or (round_.exits and not deaths.is_held(round_)):
            return STOP
        if incident.klass in PLANNED or (not round_.exits and moving()):
            return GOING_ON
        return PERSON if incident.action in _NOBODY_ACTS else DIAGNOSIS
    if run.joint is not None and run.joint.launch is not None:
        ready = [joiner for joiner in run.joint.waiting() if not joiner.refused]
        return WAITING if len(ready) < run.joint.launch.min_nodes else RENDEZVOUS
    return RENDEZVOUS


@dataclass
class Stages:
    """Of one open incident. `counted_to`: observer's monotonic seconds."""

    counted_to: float
    now: str = ""
    spent_s: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, incident: Incident, began: float, now: float) -> "Stages":
        """As the incident tells it, and what this monitor has seen of it since then. `began`: when it first saw it."""
        spent_s = dict(incident.lost_s)
        return cls(min(began + sum(spent_s.values()), now), "", spent_s)

    def passed(self, stage: str, now: float) -> bool:
        """The time since the last call goes to `stage`. Whether it is another one than before."""
        self._add(stage, now - self.counted_to)
        self.counted_to = max(self.counted_to, now)
        before, self.now = self.now, stage
        return stage != before

    def told(self) -> dict[str, float]:
        """For the record."""
        return {name: round(s, 3) for name, s in sorted(self.spent_s.items()) if round(s, 3) > 0}

    def _add(self, stage: str, seconds: float) -> None:
        if seconds > 0:
            self.spent_s[stage] = self.spent_s.get(stage, 0.0) + seconds


def lost(
    incident: Incident, spent_s: dict[str, float], state: CheckpointState | None, step_s: float | None, elapsed_s: float
) -> dict[str, float]:
    """All that an incident cost its run, once it is over.

    `spent_s`: by stage. `state`: what the job says of its checkpoints. `elapsed_s`: since it was opened, in UTC, where
    another monitor opened it, else 0: what is missing to that was seen by nobody.
    """
    found = {name: s for name, s in spent_s.items() if name != GOING_ON}
    if incident.outcome == PASSED and not found:
        return {}  # a suspicion: its run went on all the time
    if state is not None and incident.round < state.loaded_round == incident.round + incident.restarts:
        load_s = min(state.load_s + state.verify_s, found.get(START, 0.0))
        found[LOAD], found[START] = load_s, found.get(START, 0.0) - load_s
    unseen_s = elapsed_s - sum(spent_s.values())
    if unseen_s > GAP_S:
        found[UNSEEN] = found.get(UNSEEN, 0.0) + unseen_s
    found[DETECTION] = incident.time_to_detect_s or 0.0
    found[RECOMPUTATION] = (incident.lost_steps or 0) * (step_s or 0.0)
    return {name: round(s, 3) for name, s in sorted(found.items()) if round(s, 3) > 0}


def _anybody_alive(round_: RoundView, incident: Incident) -> bool:
    """A worker of a machine that is gone is no longer waited for."""
    gone = incident.nodes if incident.klass == d.NODE_DEAD else ()
    return any(member.node not in gone for member in round_.alive())
