"""Following an open incident to its end: recovered, passed by itself, or over with its run."""

import msgspec

from rankpulse.core import asking, resumption
from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core.ceiling import is_of_ceiling
from rankpulse.core.desk import Desk
from rankpulse.core.fold import RESTART
from rankpulse.core.gpu_keeping import is_broken, release
from rankpulse.core.numbers import ROW
from rankpulse.core.orders import Orders
from rankpulse.core.suspects import EXCUSED, VOUCHED
from rankpulse.core.verdicts import Verdicts
from rankpulse.core.views import RunView

QUIET_ROUNDS = 4.0  # times quiet_s: a round without step reports that lived for so long has recovered


class Following:
    """One per judge; holds nothing."""

    def __init__(self, desk: Desk, verdicts: Verdicts, orders: Orders) -> None:
        self._desk, self._verdicts, self._orders = desk, verdicts, orders

    def follow(self, incident: r.Incident) -> None:
        """An open incident of a run closes with the first step of everybody in a later round, or with the run."""
        run = self._desk.folder.fleet.runs.get(incident.run_uid)
        if run is None or not run.rounds:
            if incident.run_uid and run is None:
                self._let_go(incident, book_of.RUN_ENDED, "the run is not known any more")
            return
        incident = self._desk.lost_time.follow(incident, run)
        later = run.current.number - incident.round
        if later > 0 and later != incident.restarts:
            by = self._by(incident, run)
            incident = self._desk.note(incident, f"round {run.current.number} began, started by {by}")
            incident = self._desk.change(incident, lambda i: msgspec.structs.replace(i, restarts=later))
        if later > 0:
            incident = self._resumed(incident, run)
        back = later > 0 and self._back(run) and not run.current.accounted  # else it has failed again
        if back and (incident.klass != d.NON_FINITE or self._is_finite(run)):
            self._recovered(incident, run)
        elif not run.open():
            if not self._orders.outlives(incident, run):
                incident = self._desk.book.get(incident.id) or incident
                self._let_go(incident, book_of.RUN_ENDED, f"run {run.outcome}: {run.reason}")
        elif later == 0 and self._refuted(incident, run):
            self._desk.close(incident, book_of.PASSED, f"{', '.join(incident.nodes[:4])}: alive, without a restart")
        elif later == 0 and self._moves_again(incident, run):
            self._let_go(incident, book_of.PASSED, "every rank moves again, without a restart")

    def _let_go(self, incident: r.Incident, outcome: str, text: str) -> None:
        """Over for its run; not so where a broken GPU was the cause, and nobody was told to leave it."""
        if not is_broken(incident):
            self._desk.close(incident, outcome, text)
            return
        release(self._desk, incident, text)

    def _by(self, incident: r.Incident, run: RunView) -> str:
        """Who started the round. A round may be seen before its order stands in the incident."""
        order = self._desk.folder.ordered(run.uid, incident.round, RESTART)
        id_ = incident.order_id or (order.order_id if order is not None else "")
        return f"order {id_}" if id_ else "torchelastic itself: adopted, not doubled"

    def _back(self, run: RunView) -> bool:
        """Every rank that reports steps has made one; where none does, the round has lived for a good while."""
        current = run.current
        used_to = set().union(*(view.reporting() for number, view in run.rounds.items() if number < current.number))
        if used_to:
            return used_to & current.members.keys() <= current.reporting() and bool(current.reporting())
        quiet = self._desk.now - current.began_at > QUIET_ROUNDS * self._desk.settings.detect.quiet_s
        there = bool(current.members) or run.joint is not None  # workers that never attach are told of by nobody
        return current.stepped() or (quiet and there and not current.exits)

    def _is_finite(self, run: RunView) -> bool:
        """Every rank has made enough steps for a row, and none is told of."""
        current = run.current
        if self._desk.folder.numbers.of(run.uid, current.number) is not None:
            return False
        ranks = [current.progress[rank] for rank in current.reporting()]
        return all(one.step - max(one.first_step, 1) + 1 >= ROW for one in ranks)

    def _resumed(self, incident: r.Incident, run: RunView) -> r.Incident:
        """Tell which checkpoint the run went on from, and which it did not take, as far as the job has said so."""
        incident = asking.unasked(self._desk, incident, run)
        for line in resumption.story(incident, run, self._desk.folder.checkpoints.of(run.uid)):
            incident = self._desk.note(incident, line)
        return incident

    def _recovered(self, incident: r.Incident, run: RunView) -> None:
        step = resumption.loaded(run, self._desk.folder.checkpoints.of(run.uid))
        step = run.current.resumed_from() if step is None else step
        lost = resumption.lost(incident, run, step)
        changed = {"resumed_from_step": step, "lost_steps": lost}
        incident = self._desk.change(incident, lambda i: msgspec.structs.replace(i, **changed))
        ranks = f"all {run.current.world_size} ranks of round {run.current.number}"
        text = f"{ranks} go on from step {step}" if step is not None else f"{ranks} go on, from where is not told"
        again = f": {resumption.steps(lost)} of work lost" if lost else ""
        self._desk.close(incident, book_of.RECOVERED, text + again)

    def _refuted(self, incident: r.Incident, run: RunView) -> bool:
        """Everybody who was taken for dead is back by itself, with the processes of this round."""
        if incident.klass != d.NODE_DEAD or incident.round in run.ordered or incident.asked_by:
            return False
        began = self._desk.book.began.get(incident.id, self._desk.now)
        back = self._verdicts.is_back
        return all(back(name, run.current, began) or self._vouched(name) for name in incident.nodes)

    def _vouched(self, name: str) -> bool:
        """The job has gone on with it since it was taken for dead."""
        node = self._desk.folder.fleet.nodes.get(name)
        if node is None or not node.suspect.trail:
            return False
        last = node.suspect.trail[-1]
        return (last.fact, last.state) == (VOUCHED, EXCUSED)

    def _moves_again(self, incident: r.Incident, run: RunView) -> bool:
        """The round moves as if nothing had been, no order for it stands, and no person wants a restart."""
        kept = incident.klass in (d.NON_FINITE, d.SILENT_CORRUPTION) or incident.drain_after >= 0
        if incident.round in run.ordered or incident.asked_by or kept:
            return False
        began = self._desk.book.began.get(incident.id, self._desk.now)
        round_ = run.current
        if is_of_ceiling(incident):  # it only said that nobody moves
            return any(progress.moved_at > began for progress in round_.progress.values())
        if round_.exits or not round_.progress or round_.members.keys() - round_.progress.keys():
            return False  # one that is not told of may be the one that ended
        return all(progress.moved_at > began for progress in round_.progress.values())
