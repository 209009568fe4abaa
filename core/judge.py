"""Judging: from what is believed to the records that should exist. Called once per tick, only while leading."""

import msgspec

from rankpulse.core import deaths, policy, standstill
from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core.desk import Desk, Wanted
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis, Ending
from rankpulse.core.fleet import RoundView, RunView
from rankpulse.core.fold import Folder
from rankpulse.core.incidents import Book
from rankpulse.core.keys import Keys
from rankpulse.core.ordering import Ordering
from rankpulse.core.settings import Settings
from rankpulse.core.sight import Sight
from rankpulse.core.weather import Weather

QUIET_ROUNDS = 4.0  # times quiet_s: a round without step reports that lived for so long has recovered
ROSTER_SETTLE_S = 1.0  # a round that is still gathering is written now and then, not once per rank
INCIDENTS_KEPT, RUNS_KEPT = 500, 200  # closed ones
RESTATED = (d.WORKER_DEAD, d.UNKNOWN)  # classes whose culprits later exits may correct


class Judge:
    """Composes the parts; what it wants written is derived from beliefs, never from what it did before."""

    def __init__(self, settings: Settings, keys: Keys, folder: Folder, book: Book) -> None:
        self._folder, self._book, self._keys = folder, book, keys
        self._desk = Desk(settings, keys, folder, book)
        self._detect = settings.detect
        self._weather = Weather(self._desk)
        self._ordering = Ordering(self._desk)
        self._broken: set[str] = set()
        self._orphaned: set[str] = set()

    def judge(self, now: float, at: float, epoch: int, sight: Sight) -> list[Wanted]:
        """Everything that should stand in the store by now and may not yet. Incidents come before what follows them."""
        self._desk.begin(now, at, epoch)
        fresh = self._weather.mark(sight)
        stuck = {
            run.uid for run in list(self._folder.fleet.runs.values()) if run.rounds and self._run(run, fresh, sight)
        }
        self._weather.judge(fresh, sight)
        self._ordering.requests()
        self._ordering.acknowledgements()
        for incident in self._book.open():
            self._follow(incident)
        for incident in self._book.unconfirmed():
            self._desk.want(self._keys.incident(incident.id), incident, incident.summary)
        self._ordering.orders(stuck)
        self._rosters()
        self._forget()
        return self._desk.wanted

    # --- runs

    def _run(self, run: RunView, fresh: set[str], sight: Sight) -> bool:
        """Judge one run; whether it stands still right now. A run that cannot be judged must not hide the others."""
        try:
            return self._judge_run(run, fresh, sight)
        except Exception as error:
            if run.uid not in self._broken:
                self._broken.add(run.uid)
                self._folder.say("error", f"run {run.uid} cannot be judged, a bug in rankpulse: {error!r:.200}")
            return False

    def _judge_run(self, run: RunView, fresh: set[str], sight: Sight) -> bool:
        if not run.open():
            self._sweep(run)
            return False
        self._folder.sample_run_ahead(run, self._desk.now)
        self._orphans(run)
        for number in sorted(run.rounds):
            ending = self._ending(run, run.rounds[number])
            if ending is not None:
                self._end(run, ending)
                return False
            self._release(run, run.rounds[number])
        if sight.blind(self._desk.now) or self._desk.now < sight.hold_until:
            return False
        stuck = standstill.hang(run, fresh, self._desk.now)
        if stuck is not None:
            self._of_round(run, run.current, stuck)
        return stuck is not None

    def _ending(self, run: RunView, round_: RoundView) -> Ending | None:
        """Weigh the exits of a round: a failure becomes its incident; an end of the whole run is returned."""
        ordered = (run.uid, round_.number) in self._folder.orders  # it was ended by us: that is judged already
        found = None
        if round_.exits and not ordered and not round_.accounted:
            found = deaths.weigh(run, round_, self._desk.now, self._detect)
        if isinstance(found, Diagnosis):
            self._died(run, round_, found)
            found = None
        return (found or self._all_over(run)) if round_ is run.current else None

    def _all_over(self, run: RunView) -> Ending | None:
        """Nobody is left to go on: the launchers are gone, or, without torchelastic, every worker is."""
        round_ = run.current
        if not round_.exits or round_.alive():
            return None
        if run.launchers_gone() or (run.elastic and not run.launchers and self._long_over(round_)):
            text = "workers failed and torchelastic ended: its restarts are used up, or it was ended too"
            return Ending(d.FAILED, text)
        waited = self._desk.now - round_.began_at > self._detect.stop_settle_s
        if not run.elastic and (round_.complete() or waited):
            return Ending(d.FAILED, "every worker has ended, and nothing starts them again by itself")
        return None

    def _long_over(self, round_: RoundView) -> bool:
        last = max(exit_.received_at for exit_ in round_.exits.values())
        return self._desk.now - last > self._detect.stop_settle_s

    def _orphans(self, run: RunView) -> None:
        """Workers that train on without their torchrun: no incident, but nobody would start them again."""
        alive = len(run.current.alive()) if run.launchers_gone() else 0
        if alive and run.uid not in self._orphaned:
            self._orphaned.add(run.uid)
            self._folder.say("warning", f"run {run.uid}: torchelastic has ended, {alive} workers run on without it")

    def _died(self, run: RunView, round_: RoundView, found: Diagnosis) -> None:
        """A failure of a round that the run had not recovered into is part of the incident that is still open."""
        unrecovered = self._book.open_before(run.uid, round_.number)
        if unrecovered is None or self._book.of_round(run.uid, round_.number) is not None:
            self._of_round(run, round_, found)
            return
        incident = self._desk.note(unrecovered, f"round {round_.number} failed before it recovered: {found.summary}")
        evidence = tuple(dict.fromkeys((*incident.evidence, *found.evidence)))[:NAMED_MAX]
        self._desk.change(incident, lambda i: msgspec.structs.replace(i, evidence=evidence))
        round_.accounted = True

    def _of_round(self, run: RunView, round_: RoundView, found: Diagnosis) -> None:
        """One incident per failure of a round: opened once, corrected while it is open and only exits are known."""
        incident = self._book.of_round(run.uid, round_.number)
        if incident is None:
            before = self._book.open_before(run.uid, round_.number)
            if before is not None:
                self._desk.close(before, book_of.SUPERSEDED, f"round {round_.number} has a failure of its own")
            incident = self._desk.open(found, (run, round_))
        elif incident.state == book_of.OPEN and {incident.klass, found.klass} <= set(RESTATED):
            if found.culprits != incident.culprits:
                incident = self._desk.note(incident, f"corrected: {found.summary}")
            incident = self._desk.change(incident, lambda i: book_of.restated(i, found))
        if incident.state == book_of.OPEN and not (incident.order_id or incident.asked_by):
            choice = policy.choose(found, self._desk.facts(run))
            if choice.action != incident.action:
                self._folder.say("warning", f"incident {incident.id}: action {choice.action}: {choice.reason}")
            self._desk.change(incident, lambda i: book_of.decided(i, choice, self._desk.at))

    def _end(self, run: RunView, ending: Ending) -> None:
        run.outcome, run.reason, run.ended_at = ending.outcome, ending.reason, self._desk.at
        self._folder.say("info", f"run {run.uid}: {run.outcome}: {run.reason}")
        self._want_state(run)

    def _want_state(self, run: RunView) -> None:
        state = r.RunState(
            run_uid=run.uid,
            run_id=run.run_id,
            round=run.current.number,
            outcome=run.outcome,
            reason=run.reason,
            at=run.ended_at or run.current.at or self._desk.at,
            ended_at=run.ended_at,
        )
        self._desk.want(self._keys.run_state(run.uid), state, f"run {run.uid} {run.outcome}")

    # --- observations that have done their work

    def _release(self, run: RunView, round_: RoundView) -> None:
        """Exits may go once an incident *in the store* cites them, or when the round is long past without a failure."""
        if not round_.exits:
            return
        incident = self._book.of_round(run.uid, round_.number)
        told = incident is not None and self._book.told(incident)
        last = max(exit_.received_at for exit_ in round_.exits.values())
        past = round_ is not run.current and self._desk.now - last > self._detect.stop_settle_s
        quiet = past and incident is None and not round_.accounted
        for exit_ in round_.exits.values():
            if told or quiet or self._book.cites(exit_.key):
                self._folder.fold(exit_.key)

    def _sweep(self, run: RunView) -> None:
        """A run whose end stands in the store needs its observations no longer."""
        stored = self._folder.outcomes.get(run.uid)
        if stored is None or stored.outcome == "running":
            return
        for round_ in run.rounds.values():
            for exit_ in round_.exits.values():
                self._folder.fold(exit_.key)
        for key in run.launcher_keys:
            self._folder.fold(key)

    # --- incidents

    def _follow(self, incident: r.Incident) -> None:
        """An open incident of a run closes with the first step of everybody in a later round, or with the run."""
        run = self._folder.fleet.runs.get(incident.run_uid)
        if run is None or not run.rounds:
            return
        later = run.current.number - incident.round
        if later > 0 and later != incident.restarts:
            by = f"order {incident.order_id}" if incident.order_id else "torchelastic itself: adopted, not doubled"
            incident = self._desk.note(incident, f"round {run.current.number} began, started by {by}")
            incident = self._desk.change(incident, lambda i: msgspec.structs.replace(i, restarts=later))
        if later > 0 and self._back(run):
            self._recovered(incident, run)
        elif not run.open():
            self._desk.close(incident, book_of.RUN_ENDED, f"run {run.outcome}: {run.reason}")
        elif later == 0 and self._moves_again(incident, run):
            self._desk.close(incident, book_of.PASSED, "every rank moves again, without a restart")

    def _back(self, run: RunView) -> bool:
        """Every rank that reports steps has made one; where none does, the round has lived for a good while."""
        current = run.current
        used_to = set().union(*(view.reporting() for number, view in run.rounds.items() if number < current.number))
        if used_to:
            return used_to & current.members.keys() <= current.reporting() and bool(current.reporting())
        quiet = self._desk.now - current.began_at > QUIET_ROUNDS * self._detect.quiet_s
        return current.stepped() or (quiet and bool(current.members) and not current.exits)

    def _recovered(self, incident: r.Incident, run: RunView) -> None:
        step = run.current.resumed_from()
        incident = self._desk.change(incident, lambda i: msgspec.structs.replace(i, resumed_from_step=step))
        ranks = f"all {run.current.world_size} ranks of round {run.current.number}"
        text = f"{ranks} go on from step {step}" if step is not None else f"{ranks} go on, from where is not told"
        self._desk.close(incident, book_of.RECOVERED, text)

    def _moves_again(self, incident: r.Incident, run: RunView) -> bool:
        """The round moves as if nothing had been, no order for it stands, and no person wants a restart."""
        ordered = (run.uid, incident.round) in self._folder.orders
        if ordered or incident.asked_by:
            return False
        began = self._book.began.get(incident.id, self._desk.now)
        progress = run.current.progress.values()
        return not run.current.exits and bool(progress) and all(p.moved_at > began for p in progress)

    # --- history

    def _rosters(self) -> None:
        fleet, now = self._folder.fleet, self._desk.now
        for uid, number in list(fleet.changed_rosters):
            run = fleet.runs.get(uid)
            round_ = run.rounds.get(number) if run is not None else None
            if run is None or round_ is None:
                fleet.changed_rosters.discard((uid, number))
            elif round_.complete() or now - max(round_.began_at, round_.written_at) >= ROSTER_SETTLE_S:
                fleet.changed_rosters.discard((uid, number))
                round_.written_at, round_.at = now, round_.at or self._desk.at
                roster = fleet.roster(run, round_)
                self._desk.want(self._keys.roster(uid, number), roster, f"round {number}")
                if round_ is run.current:
                    self._want_state(run)

    def _forget(self) -> None:
        """History is bounded: what is closed for long goes, from memory and from the store."""
        for id_ in self._book.closed_beyond(INCIDENTS_KEPT):
            self._book.drop(id_)
            self._folder.fold(self._keys.incident(id_))
        for run in self._folder.fleet.ended_beyond(RUNS_KEPT):
            self._folder.drop_run(run)
