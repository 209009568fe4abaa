"""From a standstill to its diagnosis: evidence is asked for once per standstill, waited for shortly, and weighed.

An order of evidence is no action: it makes agents look. It is the same for every leader, since its key is the step at
which the round stands, and it goes when the answers are weighed and the incident that cites them is stored.
"""

from collections.abc import Container
from dataclasses import dataclass

from rankpulse.core import diagnosis as d
from rankpulse.core import records as r
from rankpulse.core.assessing import Assessed, Assessor
from rankpulse.core.at_work import AtWork
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.second_look import SecondLooks
from rankpulse.core.standstill import Stand, diagnosed, standing
from rankpulse.core.verdict import RESTART_EXCLUDING
from rankpulse.core.views import RunView

EVIDENCE_S = 2.5  # for the answers of all nodes; then those that came must do
LATE_S = 10.0  # answers that come later are not weighed any more
COLLECT = "collect-"


@dataclass
class Suspicion:
    """One standstill, from the order of evidence on. Times are the observer's."""

    order: r.Order
    asked_at: float
    exits: int  # of the round by then
    assessed: Assessed | None = None  # what followed from the answers so far
    done: bool = False  # its order may go: nothing is expected any more


class Suspicions:
    """One per judge. Knows of the standstills of this term only; what others found out stands in the store."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._epoch = 0
        self._asked = 0
        self._of: dict[str, Suspicion] = {}  # by run_uid
        self._begin()

    def _begin(self) -> None:
        desk = self._desk
        self._assessor = Assessor(desk)
        self._looks = SecondLooks(desk, self._assessor, self._collect, EVIDENCE_S)
        self._work = AtWork(desk, self._assessor, self._collect, EVIDENCE_S)

    def judge(self, run: RunView, fresh: Container[str]) -> tuple[Diagnosis | None, float]:
        """The diagnosis of a run that stands still by now, None while it does not or evidence is on its way.

        And for how long it has stood still, in seconds.
        """
        desk = self._desk
        if desk.epoch != self._epoch:
            self._epoch, self._asked, self._of = desk.epoch, 0, {}
            self._begin()
        if run.current.number in run.ordered:
            return None, 0.0  # it is being ended
        early_s = EVIDENCE_S if run.joint is not None else 0.0
        floor_s = desk.settings.detect.hang_floor_s if self._found_before(run) else None
        stand = standing(run, fresh, early_s=early_s, floor_s=floor_s)
        if stand is None:
            if not self._unseen(run):
                self.forget(run)
            return None, 0.0
        if run.joint is not None:
            found = self._unless_at_work(run, stand, self._with_evidence(run, stand))
        else:
            found = diagnosed(run.current, stand, None, (), desk.now) if stand.ripe else None
        if found is not None and found.klass == d.UNKNOWN and not stand.overdue and self._incident(run) is None:
            found = None  # nobody is to blame, and it may well be that all of them are busy: no incident yet
        if found is None or run.joint is None:
            return found, stand.lasted_s
        mine = self._of.get(run.uid)
        places = mine.assessed.places if mine is not None and mine.assessed is not None else {}
        return self._looks.judge(run, stand, found, places, mine.asked_at if mine is not None else None)

    def forget(self, run: RunView) -> None:
        """It moves, or it has ended."""
        self._of.pop(run.uid, None)
        self._looks.forget(run.uid)
        self._work.forget(run)

    def _unseen(self, run: RunView) -> bool:
        """Whether it is the same standstill still, of which not all is seen just now.

        Beats that come and go must neither begin it anew each time, with new questions, nor keep it from being told.
        """
        mine, round_ = self._of.get(run.uid), run.current
        if mine is None or (mine.order.round, mine.exits) != (round_.number, len(round_.exits)):
            return False
        return all(p.moved_at <= mine.asked_at and not p.resting() for p in round_.progress.values())

    def wanted(self, order: r.Order) -> bool:
        """Whether this order of evidence is still needed."""
        mine = self._of.get(order.run_uid)
        first = mine is not None and mine.order.order_id == order.order_id and not mine.done
        return first or self._looks.wanted(order) or self._work.wanted(order)

    def _found_before(self, run: RunView) -> bool:
        """Whether this standstill is known: an incident tells of it, or another monitor asked for evidence of it.

        What this one asked for itself, early, makes no standstill older.
        """
        if self._incident(run) is not None:
            return True
        number = run.current.number
        asked = [
            key
            for key, order in self._desk.folder.orders.items()
            if key[:2] == (run.uid, number) and key[2].startswith(COLLECT) and order.epoch != self._desk.epoch
        ]
        if not asked:  # as nearly always: no look at every rank
            return False
        step = max((p.step for p in run.current.progress.values()), default=-1)
        return (run.uid, number, f"{COLLECT}{max(step, 0)}") in asked

    def _incident(self, run: RunView) -> r.Incident | None:
        found = self._desk.book.of_round(run.uid, run.current.number)
        standstill = found is not None and found.state == "open" and found.klass in (d.WORKER_DEAD, *d.STANDSTILLS)
        leaves = found is not None and found.drain_after >= 0  # a node whose GPU is broken, and trained on until now
        return found if standstill and not leaves else None

    def _with_evidence(self, run: RunView, stand: Stand) -> Diagnosis | None:
        incident = self._incident(run)
        mine = self._suspicion(run, stand, incident)
        if mine is None:  # somebody weighed it before: that stands
            return self._as_told(incident, stand) if incident is not None and stand.ripe else None
        if mine.done:
            return mine.assessed.found if mine.assessed is not None else None
        waited_s = self._desk.now - mine.asked_at
        everybody = self._assessor.everybody(run, mine.order)
        if not stand.ripe or not (everybody or waited_s >= EVIDENCE_S):
            return None
        mine.assessed = self._assessor.assess(run, stand, mine.order)
        if mine.assessed is None:
            return None
        stored = incident is not None and self._desk.book.stands(incident.id)
        whole = mine.assessed.heard == self._assessor.heard(mine.order)
        mine.done |= stored and whole and (everybody or waited_s >= LATE_S)
        return mine.assessed.found

    def _as_told(self, incident: r.Incident, stand: Stand) -> Diagnosis:
        """What another monitor concluded; that it would have left out the machine, only the finding tells."""
        found, kept = d.again(incident, self._desk.now - stand.lasted_s), self._desk.folder.findings.get(incident.id)
        same = kept is not None and (kept.klass, kept.signature) == (incident.klass, incident.signature)
        without = kept is not None and any(step.startswith(RESTART_EXCLUDING) for step in kept.steps)
        return found._replace(advice=d.RESTART_WITHOUT) if same and without else found

    def _unless_at_work(self, run: RunView, stand: Stand, found: Diagnosis | None) -> Diagnosis | None:
        """None where the evidence shows that somebody is at work: that is slow, until it has lasted for too long."""
        mine = self._of.get(run.uid)
        if found is None or mine is None:
            return found
        at_work = mine.assessed is not None and mine.assessed.at_work
        return self._work.judge(run, stand, found, at_work=at_work, told=self._incident(run) is not None)

    def _suspicion(self, run: RunView, stand: Stand, incident: r.Incident | None) -> Suspicion | None:
        """The one of this standstill, made when it is new."""
        key_kind = f"{COLLECT}{max(stand.highest, 0)}"
        mine = self._of.get(run.uid)
        if mine is not None and (mine.order.round, mine.order.kind) != (run.current.number, key_kind):
            mine = None
        stored = self._desk.folder.ordered(run.uid, run.current.number, key_kind)
        if mine is None:
            if stored is None and incident is not None:
                return None
            mine = Suspicion(stored or self._collect(run, key_kind), self._desk.now, len(run.current.exits))
        elif stored is not None and stored.order_id != mine.order.order_id:
            mine.order = stored  # another leader asked first
        self._of[run.uid] = mine
        if not mine.done:
            mine.order = self._assessor.ask(run, mine.order, "a standstill: what is everybody doing?")
        return mine

    def _collect(self, run: RunView, kind: str) -> r.Order:
        self._asked += 1
        return r.Order(
            order_id=f"c{self._desk.epoch:04d}-{self._asked:04d}",
            run_uid=run.uid,
            run_id=run.run_id,
            round=run.current.number,
            kind=kind,
            epoch=self._desk.epoch,
            incident="",
            reason="no rank of the round moves",
            author=f"monitor, epoch {self._desk.epoch}",
            at=self._desk.at,
            nodes=run.current.nodes(),  # they know the ranks; all agents read this: 16,000 names would be too much
        )
