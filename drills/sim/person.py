"""The person on call: does what a page asks for, no sooner than people do."""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from rankpulse.core import records as r
from rankpulse.drills.sim.cluster import Cluster
from rankpulse.drills.sim.job import Job
from rankpulse.drills.sim.sidecar import UTC

OPERATOR_S: Final = 15.0  # until a page is answered


@dataclass
class Operator:
    """Has a job restarted that stands still and was paged for."""

    cluster: Cluster
    rng: Random
    asked: int = 0
    _seen: dict[str, float] = field(default_factory=dict)
    _asked_at: dict[str, float] = field(default_factory=dict)

    def look(self, incidents: dict[str, r.Incident]) -> None:
        now = self.cluster.heap.now
        for incident in list(incidents.values()):
            if incident.state != "open" or not incident.run_uid or incident.action not in ("page", "observe", "stop"):
                self._seen.pop(incident.id, None)
                continue
            job = self.cluster.job_by_uid(incident.run_uid)
            first = self._seen.setdefault(incident.id, now)
            if job is None or now - first < OPERATOR_S or now - self._asked_at.get(job.uid, -1e9) < 60.0:
                continue
            if now - job.moved_at < 5.0 or job.round != incident.round:
                continue
            self._asked_at[job.uid] = now
            self._ask(job)

    def _ask(self, job: Job) -> None:
        self.asked += 1
        id_ = f"q{self.asked}"
        request = r.Request(
            id=id_, kind="restart", run_uid=job.uid, author="sim", reason="paged", at=UTC + self.cluster.heap.now
        )
        self.cluster.put(self.cluster.keys.request(id_), request)
        self.cluster.trace.note("operator", run=job.uid, round=job.round)
