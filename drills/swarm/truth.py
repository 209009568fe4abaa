"""What was done to the swarm, held against what the monitor says of it. Pure."""

from dataclasses import dataclass, field
from typing import Final

from rankpulse.core import diagnosis as d
from rankpulse.core.records import Incident
from rankpulse.drills.swarm.plan import DEATH, HANG, PAUSE, SLOW

MACHINE: Final = (d.NODE_DEAD,)
AFTER_S: Final = 120.0  # what is said of a run so long after it was disturbed is still about that


@dataclass
class Deed:
    """One thing that was done to a node. `found`: seconds until an incident said so, None: not yet."""

    kind: str
    node: str
    run: str
    at: float
    until: float
    found: float | None = None


@dataclass
class Truth:
    """All times: seconds on one monotonic clock."""

    deeds: list[Deed] = field(default_factory=list)
    _said: dict[str, tuple[Incident, float]] = field(default_factory=dict)

    def add(self, kind: str, node: str, run: str, at: float, lasts_s: float) -> Deed:
        deed = Deed(kind, node, run, at, at + lasts_s)
        self.deeds.append(deed)
        return deed

    def heard(self, incident: Incident, now: float) -> None:
        """An incident as it is now; when it was first seen counts."""
        first = self._said.get(incident.id, (incident, now))[1]
        self._said[incident.id] = incident, first
        if incident.klass in MACHINE:
            for deed in self.deeds:
                if deed.kind == DEATH and deed.found is None and deed.node in incident.nodes:
                    deed.found = now - deed.at

    @property
    def incidents(self) -> list[Incident]:
        return [incident for incident, _ in self._said.values()]

    def killed(self) -> list[Deed]:
        return [deed for deed in self.deeds if deed.kind == DEATH]

    def wrong(self) -> list[Incident]:
        """Incidents that name somebody to whom nothing was done, or a run in which nothing was."""
        return [incident for incident, at in self._said.values() if not self._explained(incident, at)]

    def _explained(self, incident: Incident, at: float) -> bool:
        if incident.klass == d.CONTROL_PLANE_DELAY:
            return True  # it says of itself that nobody is to blame
        named = {member.node for member in incident.culprits} or set(incident.nodes)
        near = [deed for deed in self.deeds if deed.at <= at <= deed.until + AFTER_S]
        if incident.klass == d.NODE_DEAD:
            return named <= {deed.node for deed in near if deed.kind in (DEATH, PAUSE)}
        if named:
            return named <= {deed.node for deed in near}
        return any(deed.run == incident.run_id and deed.kind in (DEATH, PAUSE, HANG, SLOW) for deed in near)
