"""The book of incidents: one per cause, from first suspicion to confirmed recovery. Values in, values out."""

from collections.abc import Iterator

import msgspec

from rankpulse.core.diagnosis import NAMED_MAX, STANDSTILLS, Diagnosis
from rankpulse.core.policy import STOP, Choice
from rankpulse.core.records import Incident, Trail

OPEN, CLOSED = "open", "closed"
RECOVERED, PASSED, RUN_ENDED, SUPERSEDED = "recovered", "passed", "run_ended", "superseded"
TRAIL_MAX = 200
_ROUND_CLASSES = ("worker_dead", "node_dead", "operator_restart", *STANDSTILLS)


def opened(
    diagnosis: Diagnosis, choice: Choice, *, id_: str, run: tuple[str, str, int], now: float, at: float, epoch: int
) -> Incident:
    """A new incident; `run` is (run_uid, run_id, round), empty for the fleet."""
    run_uid, run_id, round_ = run
    incident = Incident(
        id=id_,
        klass=diagnosis.klass,
        state=OPEN,
        opened_at=at,
        run_uid=run_uid,
        run_id=run_id,
        round=round_,
        fault_at=at - max(now - diagnosis.since, 0.0),
        time_to_detect_s=round(max(now - diagnosis.since, 0.0), 3),
        epoch=epoch,
    )
    incident = restated(incident, diagnosis)
    incident = noted(incident, at, f"{diagnosis.klass}: {diagnosis.summary}")
    return decided(incident, choice, at)


def restated(incident: Incident, diagnosis: Diagnosis) -> Incident:
    """The incident with what is known now."""
    return msgspec.structs.replace(
        incident,
        klass=diagnosis.klass,
        nodes=diagnosis.nodes,
        culprits=diagnosis.culprits,
        cascade=diagnosis.cascade,
        confidence=diagnosis.confidence,
        summary=diagnosis.summary,
        reasons=diagnosis.reasons,
        evidence=tuple(dict.fromkeys((*incident.evidence, *diagnosis.evidence)))[:NAMED_MAX],
        fault=diagnosis.fault,
        signature=diagnosis.signature,
        faults=diagnosis.faults or incident.faults,
    )


def decided(incident: Incident, choice: Choice, at: float) -> Incident:
    if (incident.action, incident.action_reason) == tuple(choice):
        return incident
    incident = msgspec.structs.replace(incident, action=choice.action, action_reason=choice.reason)
    return noted(incident, at, f"action {choice.action}: {choice.reason}")


def noted(incident: Incident, at: float, text: str) -> Incident:
    """One more line of the story, unless it is the same as the last one or the story is too long."""
    if (incident.trail and incident.trail[-1].text == text) or len(incident.trail) >= TRAIL_MAX:
        return incident
    line = Trail(round(at - incident.opened_at, 3), text)
    return msgspec.structs.replace(incident, trail=(*incident.trail, line))


def closed(incident: Incident, outcome: str, text: str, *, elapsed_s: float, at: float) -> Incident:
    """The end of it; `elapsed_s` is since it was opened, on the observer's monotonic clock."""
    incident = noted(incident, at, f"closed, {outcome}: {text}")
    return msgspec.structs.replace(
        incident,
        state=CLOSED,
        outcome=outcome,
        closed_at=at,
        time_to_recover_s=round(elapsed_s, 3) if outcome in (RECOVERED, PASSED) else None,
    )


class Book:
    """All incidents known. A leader's own word goes until the store has it; a standby takes what the store says."""

    def __init__(self) -> None:
        self._all: dict[str, Incident] = {}
        self._stored: dict[str, Incident] = {}
        self._unconfirmed: set[str] = set()  # ids whose newest word the store has not shown us
        self._cited: set[str] = set()  # observations on which a *stored* incident rests
        self.began: dict[str, float] = {}  # id -> observer's monotonic seconds when it was opened (or first seen)

    def __iter__(self) -> Iterator[Incident]:
        return iter(list(self._all.values()))

    def get(self, id_: str) -> Incident | None:
        return self._all.get(id_)

    def put(self, incident: Incident, now: float) -> None:
        """What this monitor says of an incident from now on."""
        if self._all.get(incident.id) != incident:
            self._all[incident.id] = incident
            self._unconfirmed.add(incident.id)
        self.began.setdefault(incident.id, now)

    def concerns(self, incident: Incident, now: float) -> None:
        """It was nobody's, and a round suffers by it from now on: whether that moves again is seen from here."""
        self.put(incident, now)
        self.began[incident.id] = now

    def stored(self, incident: Incident, now: float, *, leading: bool) -> None:
        """What the store says of an incident."""
        self._stored[incident.id] = incident
        self._cited.update(incident.evidence)
        if not leading or incident.id not in self._all:
            self._all[incident.id] = incident
            self.began.setdefault(incident.id, now)
        if self._all[incident.id] == incident:
            self._unconfirmed.discard(incident.id)
        elif leading:  # an older word of ours, which was under way for longer than we waited for it
            self._unconfirmed.add(incident.id)

    def relisted(self) -> None:
        """The store is listed anew: what it held before is not what it holds."""
        self._stored.clear()
        self._cited.clear()
        self._unconfirmed = set(self._all)

    def took_office(self) -> None:
        """Only what stands in the store was ever decided; the rest is decided again, from the evidence."""
        self._all = dict(self._stored)
        self._unconfirmed.clear()
        self.began = {id_: began for id_, began in self.began.items() if id_ in self._all}

    def unconfirmed(self) -> list[Incident]:
        return [self._all[id_] for id_ in sorted(self._unconfirmed) if id_ in self._all]

    def drop(self, id_: str) -> None:
        self._all.pop(id_, None)
        self._stored.pop(id_, None)
        self._unconfirmed.discard(id_)
        self.began.pop(id_, None)

    def open(self) -> list[Incident]:
        return [incident for incident in self._all.values() if incident.state == OPEN]

    def of_round(self, run_uid: str, round_: int) -> Incident | None:
        """The incident of this round, open or ended; one that passed without a restart makes room for another."""
        found = [
            i
            for i in self._all.values()
            if (i.run_uid, i.round) == (run_uid, round_) and i.klass in _ROUND_CLASSES and i.outcome != PASSED
        ]
        return max(found, key=lambda i: (i.state == OPEN, i.opened_at, i.id), default=None)

    def open_before(self, run_uid: str, round_: int) -> Incident | None:
        """An incident of an earlier round that the run has not recovered from yet."""
        found = (i for i in self.open() if i.run_uid == run_uid and i.round < round_ and i.klass in _ROUND_CLASSES)
        return next(found, None)

    def stop_of(self, run_uid: str, round_: int) -> Incident | None:
        """The incident because of which this round is to be the last."""
        found = (i for i in self._all.values() if (i.run_uid, i.round, i.action) == (run_uid, round_, STOP))
        return next((i for i in found if i.outcome != PASSED), None)

    def cites(self, key: str) -> bool:
        """Whether an incident in the store rests on this observation."""
        return key in self._cited

    def stands(self, id_: str) -> bool:
        """Whether the store holds this incident, and as we say it."""
        return id_ in self._stored and id_ not in self._unconfirmed

    def told(self, incident: Incident) -> bool:
        """Whether the store holds the incident with as many observations as it will ever list."""
        stored = self._stored.get(incident.id)
        return stored is not None and len(stored.evidence) >= NAMED_MAX

    def closed_beyond(self, kept: int) -> list[str]:
        """Ids of closed incidents beyond the newest `kept`, the oldest first."""
        done = sorted((i for i in self._all.values() if i.state == CLOSED), key=lambda i: (i.opened_at, i.id))
        return [incident.id for incident in done[: max(len(done) - kept, 0)]]

    def open_of_fleet(self, klass: str, nodes: tuple[str, ...] | None = None) -> Incident | None:
        """The open incident of this class that concerns no round (with the same nodes, if they are given)."""
        return next(
            (i for i in self.open() if i.klass == klass and not i.run_uid and (nodes is None or i.nodes == nodes)),
            None,
        )
