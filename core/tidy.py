"""Housekeeping: rosters that should be written, and what the store needs no longer. Nothing is decided here.

A record goes only after what it led to stands in the store, so that a monitor may stop at any line.
"""

import msgspec

from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.fold import RESTART
from rankpulse.core.ledger_keeping import LedgerKeeping
from rankpulse.core.suspicion import COLLECT, Suspicions
from rankpulse.core.views import RoundView, RunView

ROSTER_SETTLE_S = 1.0  # a round that is still gathering is written now and then, not once per rank
INCIDENTS_KEPT, RUNS_KEPT = 500, 200  # closed ones
FINDINGS_KEPT = 200  # of closed incidents: each is some kilobytes, and all of them are listed by a new leader
TOLD_S = 30.0  # what nodes told directly is kept for so long when its order is gone, or not there yet


class Tidy:
    """One per judge."""

    def __init__(self, desk: Desk, suspicions: Suspicions, ledger: LedgerKeeping) -> None:
        self._desk, self._suspicions, self._ledger = desk, suspicions, ledger

    def release(self, run: RunView, round_: RoundView) -> None:
        """Exits may go once an incident *in the store* cites them, or when the round is long past and judged.

        Not while the incident of a present round of ours is open: what is ordered rests on who is dead and held, also
        under the next leader.
        """
        if not round_.exits or self.released(round_):
            return
        desk, book = self._desk, self._desk.book
        incident = book.of_round(run.uid, round_.number)
        going = run.joint is not None and round_ is run.current
        if going and incident is not None and incident.state == book_of.OPEN:
            return
        told = incident is not None and book.told(incident)
        last = max(exit_.received_at for exit_ in round_.exits.values())
        past = round_ is not run.current and desk.now - last > desk.settings.detect.stop_settle_s
        over = past and (book.stands(incident.id) if incident is not None else not round_.accounted)
        for exit_ in round_.exits.values():
            if told or over or book.cites(exit_.key):
                desk.folder.fold(exit_.key)
        if over and (incident is None or incident.state == book_of.CLOSED):
            round_.released = (desk.folder.listings, len(round_.exits))

    def released(self, round_: RoundView) -> bool:
        """A past round that is judged for good: nothing of it is looked at again, unless another of its exits comes."""
        return round_.released == (self._desk.folder.listings, len(round_.exits))

    def sweep(self, run: RunView) -> None:
        """A run whose end stands in the store needs its observations no longer."""
        folder = self._desk.folder
        stored = folder.outcomes.get(run.uid)
        if stored is None or stored.outcome == "running" or run.swept == folder.listings:
            return
        run.swept = folder.listings  # what comes later is swept as it comes
        for round_ in run.rounds.values():
            for exit_ in round_.exits.values():
                folder.fold(exit_.key)
        for key in run.launcher_keys:
            folder.fold(key)

    def rosters(self) -> None:
        fleet, now = self._desk.folder.fleet, self._desk.now
        for uid, number in sorted(fleet.changed_rosters):
            run = fleet.runs.get(uid)
            round_ = run.rounds.get(number) if run is not None else None
            if run is None or round_ is None:
                fleet.changed_rosters.discard((uid, number))
            elif round_.complete() or now - max(round_.began_at, round_.written_at) >= ROSTER_SETTLE_S:
                fleet.changed_rosters.discard((uid, number))
                round_.written_at, round_.at = now, round_.at or self._desk.at
                roster = fleet.roster(run, round_)
                self._desk.want(self._desk.keys.roster(uid, number), roster, f"round {number}")
                if round_ is run.current:
                    self.want_state(run)

    def checkpoints(self) -> None:
        """What jobs said of their checkpoints, so that a new leader forgets nothing of it."""
        folder = self._desk.folder
        folder.follow_moves(self._desk.now)
        for state in folder.checkpoints.unwritten():
            if state.run_uid in folder.fleet.runs:
                key = self._desk.keys.checkpoint(state.run_uid)
                self._desk.want(key, state, f"checkpoints of {state.run_uid}: step {state.step}")

    def learned(self) -> None:
        """What is known of each run's pace, so that a new leader knows it."""
        desk = self._desk
        for run in desk.folder.learned.due(desk.now):
            key = desk.keys.run_learned(run.uid)
            learned = msgspec.structs.replace(run.clocks.record(run.uid, desk.at), apart=run.ahead.apart())
            desk.want(key, learned, f"what {run.uid} has shown of its pace")

    def fleet(self) -> None:
        """What silences and restarts of this fleet have taught."""
        desk = self._desk
        learned = desk.folder.memory.due(desk.now, desk.at)
        if learned is not None:
            desk.want(desk.keys.fleet_learned(), learned, "what the cost rule knows of this fleet")

    def want_state(self, run: RunView) -> None:
        state = r.RunState(
            run_uid=run.uid,
            run_id=run.run_id,
            round=run.current.number,
            outcome=run.outcome,
            reason=run.reason,
            at=run.ended_at or run.current.at or self._desk.at,
            ended_at=run.ended_at,
        )
        self._desk.want(self._desk.keys.run_state(run.uid), state, f"run {run.uid} {run.outcome}")

    def orders(self, settled: set[str]) -> None:
        """Orders and gates of rounds that are long past, of ended runs, and of evidence that was weighed.

        `settled`: runs that were judged at this very tick, so that their standstills are known.
        """
        desk, folder = self._desk, self._desk.folder
        for (uid, number, kind), order in list(folder.orders.items()):
            if self._past(uid, number) or (kind.startswith(COLLECT) and self._weighed(order, settled)):
                desk.erase(desk.keys.order(uid, number, kind))
        for uid, number in list(folder.joint.gates):
            if self._past(uid, number):
                desk.erase(desk.keys.gate(uid, number))
        for uid, wanted in list(folder.saves_now.items()):
            if self._past(uid, wanted.round):
                desk.erase(desk.keys.save_now(uid))
        standing = {order.order_id for order in folder.orders.values()}
        for order_id in folder.answers.orders():
            if order_id not in standing:
                for key in folder.answers.keys(order_id):
                    folder.fold(key)
                folder.answers.drop(order_id)
        for order_id in folder.dossiers.orders():
            if order_id not in standing and desk.now - folder.dossiers.of(order_id).asked_at >= TOLD_S:
                folder.dossiers.drop(order_id)

    def _past(self, uid: str, number: int) -> bool:
        """Nobody looks at orders and gates of this round any more."""
        run = self._desk.folder.fleet.runs.get(uid)
        if run is None:
            return True
        if not run.open():
            stored = self._desk.folder.outcomes.get(uid)
            return stored is not None and stored.outcome != "running"
        return bool(run.rounds) and number < run.current.number - 1

    def _weighed(self, order: r.Order, settled: set[str]) -> bool:
        run = self._desk.folder.fleet.runs.get(order.run_uid)
        over = run is None or not run.rounds or run.current.number > order.round
        ended = self._desk.folder.ordered(order.run_uid, order.round, RESTART) is not None
        return over or ended or (order.run_uid in settled and not self._suspicions.wanted(order))

    def forget(self) -> None:
        """History is bounded: what is closed for long goes, from memory and from the store."""
        desk, folder = self._desk, self._desk.folder
        for id_ in desk.book.closed_beyond(INCIDENTS_KEPT):
            incident = desk.book.get(id_)
            if incident is None or self._ledger.stands(incident):
                desk.book.drop(id_)
                folder.fold(desk.keys.incident(id_))
        old = set(desk.book.closed_beyond(FINDINGS_KEPT))
        for id_ in folder.findings:
            if desk.book.get(id_) is None or id_ in old:
                folder.fold(desk.keys.finding(id_))
        for run in folder.fleet.ended_beyond(RUNS_KEPT):
            folder.drop_run(run)
        for run in list(folder.fleet.runs.values()):  # launches that never met
            if run.joint is not None and not run.rounds and run.joint.launch is None and not run.joint.waiting():
                folder.fleet.drop(run)
