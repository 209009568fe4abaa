"""Judging: from what is believed to the records that should exist. Called once per tick, only while leading."""

from typing import NamedTuple

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import policy
from rankpulse.core import records as r
from rankpulse.core.diagnosis import Diagnosis, Ending
from rankpulse.core.fleet import FAILED, NodeView, RoundView, RunView
from rankpulse.core.fold import Folder, Return
from rankpulse.core.incidents import Book
from rankpulse.core.keys import Keys
from rankpulse.core.settings import Settings
from rankpulse.core.sight import Sight

ROSTER_SETTLE_S = 1.0  # a round that is still gathering is written once, not once per rank
INCIDENTS_KEPT, RUNS_KEPT = 500, 200  # closed ones
RESTATED = (d.WORKER_DEAD, d.UNKNOWN)  # classes whose culprits later exits may correct


class Wanted(NamedTuple):
    """A record that the store should hold. `once`: create it or leave it, never overwrite."""

    key: str
    record: r.Record
    reason: str
    once: bool = False


class Judge:
    """Holds no beliefs of its own but the memory of what it opened in this term of office."""

    def __init__(self, settings: Settings, keys: Keys, folder: Folder, book: Book) -> None:
        self._settings = settings
        self._keys = keys
        self._folder = folder
        self._book = book
        self._wanted: list[Wanted] = []
        self._opened = 0
        self._epoch = 0
        self._now = self._at = 0.0
        self._quiet_since: float | None = None

    def judge(self, now: float, at: float, epoch: int, sight: Sight) -> list[Wanted]:
        """Everything that should stand in the store by now and may not yet."""
        if epoch != self._epoch:
            self._epoch, self._opened, self._quiet_since = epoch, 0, None
        self._now, self._at, self._wanted = now, at, []
        before = {incident.id: incident for incident in self._book}
        fresh = self._nodes(sight)
        for run in [run for run in self._folder.fleet.runs.values() if run.rounds]:
            self._run(run, fresh, sight)
        self._silences(fresh, sight)
        self._requests()
        self._acks()
        for incident in self._book.open():
            self._follow(incident)
        self._rosters()
        for incident in self._book:
            if before.get(incident.id) != incident:
                self._want(self._keys.incident(incident.id), incident, incident.summary)
        self._orders()
        self._forget()
        return self._wanted

    # --- nodes

    def _nodes(self, sight: Sight) -> set[str]:
        """Mark who is late; return the names of those that are on time."""
        fresh = set()
        for node in self._folder.fleet.nodes.values():
            deadline = node.arrival.deadline()
            if node.leaving or node.arrival.last is None:
                continue
            if self._now <= deadline:
                fresh.add(node.name)
            elif node.silent_since is None and not sight.blind(self._now):
                node.silent_since = deadline
        return fresh

    def _silences(self, fresh: set[str], sight: Sight) -> None:
        returns, self._folder.returns = self._folder.returns, []
        watched = [n for n in self._folder.fleet.nodes.values() if not n.leaving and n.arrival.last is not None]
        late = [n for n in watched if n.silent_since is not None and sight.proves(n.silent_since, self._now)]
        incident = self._book.open_of_fleet(d.CONTROL_PLANE_DELAY)
        shared = d.shared_delay(late, len(watched), self._now, self._settings.detect)
        if shared is not None and incident is None:
            incident = self._open(shared, None)
            self._quiet_since = None
        if incident is not None:
            self._weather(incident, shared, late, returns)
        else:
            for node in late:
                self._one_silent(node, fresh)
        self._heard_again(returns)

    def _weather(
        self, incident: r.Incident, shared: Diagnosis | None, late: list[NodeView], returns: list[Return]
    ) -> None:
        """A control-plane incident goes on while nodes are late, and closes after a quiet time."""
        for back in returns:
            incident = self._job_moved(incident, back)
        if late:
            if self._quiet_since is not None and shared is not None:
                incident = book_of.noted(incident, self._at, f"again: {len(late)} nodes silent together")
            nodes = tuple(sorted({*incident.nodes, *(node.name for node in late)}))
            incident = msgspec.structs.replace(incident, nodes=nodes)
            if shared is not None:
                self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = self._now
        elif self._now - self._quiet_since >= self._settings.detect.quiet_s:
            text = f"every node on time for {self._settings.detect.quiet_s:g} s"
            incident = self._closed(incident, book_of.PASSED, text)
        self._book.put(incident, self._now)

    def _job_moved(self, incident: r.Incident, back: Return) -> r.Incident:
        text = f"{back.node} is heard again after {back.silence_s:.1f} s"
        if back.restarted:
            text += ", with a new incarnation: its agent was restarted"
        if back.moved is None:
            return book_of.noted(incident, self._at, text)
        rank, before, after = back.moved
        proof = f"rank {rank} went from step {before} to {after} during the silence: the job was progressing"
        incident = book_of.noted(incident, self._at, f"{text}; {proof}")
        if "job progressing" not in incident.summary:
            incident = msgspec.structs.replace(
                incident,
                summary="control plane late, job progressing",
                reasons=(*incident.reasons, proof),
                confidence=0.99,
            )
        return incident

    def _one_silent(self, node: NodeView, fresh: set[str]) -> None:
        runs = [run for run in self._folder.fleet.runs.values() if run.open() and run.rounds]
        found = d.one_silent(node, runs, fresh, self._now, self._settings.detect)
        if found is None:
            return
        if found.klass == d.NODE_DEAD:
            for run in runs:
                if any(m.node == node.name for m in run.current.members.values()):
                    self._of_round(run, run.current, found)
        elif self._silence_incident(node.name) is None:
            self._open(found, None)

    def _silence_incident(self, node: str) -> r.Incident | None:
        found = (self._book.open_of_fleet(klass, (node,)) for klass in (d.SIDECAR_DEAD, d.UNKNOWN))
        return next((incident for incident in found if incident is not None), None)

    def _heard_again(self, returns: list[Return]) -> None:
        for back in returns:
            incident = self._silence_incident(back.node)
            if incident is not None:
                incident = self._job_moved(incident, back)
                self._book.put(self._closed(incident, book_of.PASSED, f"{back.node} is heard again"), self._now)

    # --- runs

    def _run(self, run: RunView, fresh: set[str], sight: Sight) -> None:
        if not run.open():
            self._sweep(run)
            return
        self._folder.sample_run_ahead(run, self._now)
        for number in sorted(run.rounds):
            ending = self._ending(run, run.rounds[number])
            if ending is not None:
                self._end(run, ending.outcome, ending.reason)
                return
            self._judged(run, run.rounds[number])
        if sight.blind(self._now) or self._now < sight.hold_until:
            return
        stuck = d.hang(run, fresh, self._now)
        if stuck is not None:
            self._of_round(run, run.current, stuck)

    def _ending(self, run: RunView, round_: RoundView) -> Ending | None:
        """Weigh the exits of a round: a failure becomes its incident; an end of the whole run is returned."""
        ordered = (run.uid, round_.number) in self._folder.orders  # it was ended by us: that is judged already
        found = None if ordered or round_.accounted else d.exits(run, round_, self._now, self._settings.detect)
        if isinstance(found, Diagnosis):
            self._of_round(run, round_, found)
            found = None
        if round_ is not run.current:
            return None
        return found or self._all_over(run)

    def _all_over(self, run: RunView) -> Ending | None:
        """Nobody is left to go on: the launchers are gone, or, without torchelastic, every worker is."""
        round_ = run.current
        if round_.alive() or not round_.exits:
            return None
        if run.launchers_gone():
            return Ending(
                FAILED, "workers failed and torchelastic ended: its restarts are used up, or it was ended too"
            )
        if not run.elastic and (round_.complete() or self._now - round_.began_at > self._settings.detect.stop_settle_s):
            return Ending(FAILED, "every worker has ended, and nothing starts them again by itself")
        return None

    def _of_round(self, run: RunView, round_: RoundView, found: Diagnosis) -> None:
        """One incident per round: opened once, and corrected while it is open and only its exits are known."""
        incident = self._book.of_round(run.uid, round_.number)
        unrecovered = self._book.open_before(run.uid, round_.number)
        if incident is None and unrecovered is not None:
            self._again(unrecovered, round_, found)
            return
        if incident is None:
            incident = self._open(found, (run, round_))
        elif incident.state == book_of.OPEN and {incident.klass, found.klass} <= set(RESTATED):
            text = f"corrected: {found.summary}" if found.culprits != incident.culprits else ""
            incident = book_of.restated(incident, found)
            incident = book_of.noted(incident, self._at, text) if text else incident
        if incident.state == book_of.OPEN and not incident.order_id:
            incident = book_of.decided(incident, policy.choose(found, self._facts(run, round_)), self._at)
        self._book.put(incident, self._now)

    def _again(self, incident: r.Incident, round_: RoundView, found: Diagnosis) -> None:
        """A round that fails before everybody made a step belongs to the incident that is still open."""
        incident = book_of.noted(
            incident, self._at, f"round {round_.number} failed before it recovered: {found.summary}"
        )
        evidence = tuple(dict.fromkeys((*incident.evidence, *found.evidence)))
        self._book.put(msgspec.structs.replace(incident, evidence=evidence), self._now)
        self._fold_exits(round_)
        round_.accounted = True

    def _facts(self, run: RunView, round_: RoundView) -> policy.Facts:
        ordered = [n for uid, n in self._folder.orders if uid == run.uid]
        moved = [n for n, view in run.rounds.items() if view.stepped()]
        spent = len([n for n in ordered if n >= max(moved, default=0)])
        armed = self._folder.armed is not None and self._folder.armed.armed
        return policy.Facts(
            run.elastic,
            any(run.launchers.values()),
            armed,
            self._settings.policy.orders_per_run - spent,
        )

    def _end(self, run: RunView, outcome: str, reason: str) -> None:
        run.outcome, run.reason, run.ended_at = outcome, reason, self._at
        self._folder.say("info", f"run {run.uid}: {outcome}: {reason}")
        self._want_run_state(run)

    def _want_run_state(self, run: RunView) -> None:
        state = r.RunState(
            run_uid=run.uid,
            run_id=run.run_id,
            round=run.current.number,
            outcome=run.outcome,
            reason=run.reason,
            at=run.ended_at or self._at,
            ended_at=run.ended_at,
        )
        self._want(self._keys.run_state(run.uid), state, f"run {run.uid} {run.outcome}")

    def _judged(self, run: RunView, round_: RoundView) -> None:
        """Exits that an incident cites, or of a round long past, have done their work."""
        incident = self._book.of_round(run.uid, round_.number)
        last = max((exit_.received_at for exit_ in round_.exits.values()), default=self._now)
        past = round_ is not run.current and self._now - last > self._settings.detect.stop_settle_s
        if incident is not None or past or round_.accounted:
            self._fold_exits(round_)

    def _fold_exits(self, round_: RoundView) -> None:
        for exit_ in round_.exits.values():
            self._folder.fold(exit_.key)

    def _sweep(self, run: RunView) -> None:
        """An ended run needs its observations no longer."""
        for round_ in run.rounds.values():
            self._fold_exits(round_)
        for key in run.launcher_keys:
            self._folder.fold(key)

    # --- incidents

    def _open(self, found: Diagnosis, where: tuple[RunView, RoundView] | None) -> r.Incident:
        self._opened += 1
        if where is None:
            choice, run = policy.choose(found, policy.Facts(False, False, False, 0)), ("", "", -1)
        else:
            choice = policy.choose(found, self._facts(*where))
            run = (where[0].uid, where[0].run_id, where[1].number)
        id_ = f"i{self._epoch:04d}-{self._opened:04d}"
        incident = book_of.opened(found, choice, id_=id_, run=run, now=self._now, at=self._at, epoch=self._epoch)
        self._book.put(incident, self._now)
        self._folder.say("warning", f"incident {id_}: {found.klass}: {found.summary}; action {choice.action}")
        return incident

    def _closed(self, incident: r.Incident, outcome: str, text: str) -> r.Incident:
        self._folder.say("info", f"incident {incident.id} closed, {outcome}: {text}")
        elapsed = self._now - self._book.began.get(incident.id, self._now)
        return book_of.closed(incident, outcome, text, elapsed_s=elapsed, at=self._at)

    def _follow(self, incident: r.Incident) -> None:
        """An open incident of a run closes with the first step of everybody in a later round, or with the run."""
        run = self._folder.fleet.runs.get(incident.run_uid)
        if run is None or not run.rounds:
            return
        later = run.current.number - incident.round
        if later > 0 and later != incident.restarts:
            by = f"order {incident.order_id}" if incident.order_id else "torchelastic itself: adopted, not doubled"
            incident = book_of.noted(incident, self._at, f"round {run.current.number} began, started by {by}")
            incident = msgspec.structs.replace(incident, restarts=later)
        if later > 0 and run.current.stepped():
            resumed = run.current.resumed_from()
            incident = msgspec.structs.replace(incident, resumed_from_step=resumed)
            text = f"all {run.current.world_size} ranks of round {run.current.number} go on from step {resumed}"
            incident = self._closed(incident, book_of.RECOVERED, text)
        elif not run.open():
            incident = self._closed(incident, book_of.RUN_ENDED, f"run {run.outcome}: {run.reason}")
        elif later == 0 and self._moves_again(incident, run):
            incident = self._closed(incident, book_of.PASSED, "every rank moves again, without a restart")
        self._book.put(incident, self._now)

    def _moves_again(self, incident: r.Incident, run: RunView) -> bool:
        if incident.action == policy.RESTART:
            return False
        began = self._book.began.get(incident.id, self._now)
        progress = run.current.progress.values()
        return not run.current.exits and bool(progress) and all(p.moved_at > began for p in progress)

    def _acks(self) -> None:
        acks, self._folder.acks = self._folder.acks, []
        for order_id, node, killed in acks:
            incident = self._book.get(order_id)
            if incident is not None:
                text = f"{node} carried out the order: {killed} workers ended"
                self._book.put(book_of.noted(incident, self._at, text), self._now)

    # --- orders

    def _requests(self) -> None:
        for key, request in list(self._folder.requests.items()):
            del self._folder.requests[key]
            self._folder.fold(key)
            refusal = self._requested(request)
            if refusal:
                self._folder.say("warning", f"request {request.id} by {request.author} refused: {refusal}")

    def _requested(self, request: r.Request) -> str:
        run = self._folder.fleet.runs.get(request.run_uid)
        if request.kind != "restart":
            return f"{request.kind!r} is not a kind this monitor knows (restart is)"
        if run is None or not run.rounds or not run.open():
            return f"no run {request.run_uid} is going on"
        if not run.elastic or not any(run.launchers.values()):
            return "it was not started by torchelastic, or that has ended: nothing would start the next round"
        if self._book.of_round(run.uid, run.current.number) is not None:
            return f"round {run.current.number} already has an incident: wait for the next round"
        found = Diagnosis(
            d.OPERATOR_RESTART, (), tuple(sorted(run.current.members)), (), 1.0,
            f"restart asked for by {request.author}", (request.reason,), (), self._now,
        )  # fmt: skip
        incident = self._open(found, (run, run.current))
        choice = policy.Choice(policy.RESTART, f"{request.author}: {request.reason}")
        self._book.put(book_of.decided(incident, choice, self._at), self._now)
        return ""

    def _orders(self) -> None:
        for incident in self._book.open():
            run = self._folder.fleet.runs.get(incident.run_uid)
            if incident.action != policy.RESTART or run is None or run.current.number != incident.round:
                continue
            if (run.uid, incident.round) in self._folder.orders or not run.open():
                continue
            self._order(incident, run)

    def _order(self, incident: r.Incident, run: RunView) -> None:
        key = self._keys.order(run.uid, incident.round, "restart")
        order = r.Order(
            order_id=incident.id,
            run_uid=run.uid,
            run_id=run.run_id,
            round=incident.round,
            kind="restart",
            epoch=self._epoch,
            incident=incident.id,
            reason=incident.action_reason,
            author=f"monitor, epoch {self._epoch}",
            at=incident.opened_at,
            members=tuple(run.current.alive()),
        )
        if incident.order_id != incident.id:
            incident = msgspec.structs.replace(incident, order_id=incident.id)
            incident = book_of.noted(
                incident, self._at, f"order {incident.id}: end the workers of round {incident.round}"
            )
            self._book.put(incident, self._now)
            self._want(self._keys.incident(incident.id), incident, incident.summary)
        self._want(key, order, incident.action_reason, once=True)

    # --- rosters

    def _rosters(self) -> None:
        fleet = self._folder.fleet
        for uid, number in list(fleet.changed_rosters):
            run = fleet.runs.get(uid)
            round_ = run.rounds.get(number) if run is not None else None
            if run is None or round_ is None:
                fleet.changed_rosters.discard((uid, number))
            elif round_.complete() or self._now - round_.began_at >= ROSTER_SETTLE_S:
                fleet.changed_rosters.discard((uid, number))
                self._want(self._keys.roster(uid, number), fleet.roster(run, round_, self._at), f"round {number}")
                if run.open() and round_ is run.current:
                    self._want_run_state(run)

    def _forget(self) -> None:
        """History is bounded: what is closed for long goes, from memory and from the store."""
        for id_ in self._book.closed_beyond(INCIDENTS_KEPT):
            self._book.drop(id_)
            self._folder.fold(self._keys.incident(id_))
        for run in self._folder.fleet.ended_beyond(RUNS_KEPT):
            self._folder.fleet.drop(run)
            self._folder.fold(self._keys.run_state(run.uid))
            for number in run.rounds:
                self._folder.fold(self._keys.roster(run.uid, number))
            for uid, number in [where for where in self._folder.orders if where[0] == run.uid]:
                self._folder.fold(self._keys.order(uid, number, "restart"))

    def _want(self, key: str, record: r.Record, reason: str, *, once: bool = False) -> None:
        self._wanted.append(Wanted(key, record, reason, once))
