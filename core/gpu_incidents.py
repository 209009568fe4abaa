"""Incidents about broken GPUs: one per node, or per NVLink domain, from the first word to the proof that it is over.

What a job suffers because of it is its cascade, whichever of the two was heard first. The rows of an incident say which
faults it is about, so that a new leader opens none of them twice.
"""

from collections.abc import Iterable

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import gpu_cascade as cascade
from rankpulse.core import gpu_faults as faults
from rankpulse.core import gpu_words, policy
from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.gpu_cascade import Told
from rankpulse.core.gpu_keeping import Keeping, release
from rankpulse.core.repeats import highest_step
from rankpulse.core.strikes import BROKEN
from rankpulse.core.views import RoundView, RunView

TOGETHER_S = 10.0  # nodes of one NVLink domain tell of one fault within that
ROWS_MAX = 64
EXPLAINED = frozenset((d.WORKER_DEAD, *d.STANDSTILLS))  # what a failure of a round may be called before


class GpuIncidents:
    """One per judge. Remembers only which incidents a failure of their round has settled at this tick."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._keeping = Keeping(desk)
        self.suffering: set[str] = set()  # runs that have failed by a broken GPU, as of this tick

    def judge(self, *, acting: bool) -> None:
        """What is new: an incident of its own, or part of one. Before any run is judged."""
        self.suffering.clear()
        self._keeping.begin()
        self._date()
        self._refresh()
        for told in self._news():
            home = self._home(told)
            if home is None:
                self._keeping.open(cascade.told_of([told]), acting=acting)
            else:
                self._join(home, told)
        self._forget_keys()

    def explained(self, run: RunView, round_: RoundView, found: Diagnosis) -> Diagnosis:
        """What failed, by the broken GPU if that is the cause: then its incident is the round's from now on."""
        told = cascade.causes(self._told(), run, round_, found) or self._leaving(run, round_, found)
        if not told or found.klass == d.NODE_DEAD:
            return self._noted(found)
        self.suffering.add(run.uid)
        found = cascade.explained(told, round_, found)
        self._adopt(run, round_, found)
        return found

    def _leaving(self, run: RunView, round_: RoundView, found: Diagnosis) -> list[Told]:
        """The faults for which the job is to leave a node. Whatever it suffers meanwhile, no checkpoint may come.

        Where the evidence is certain that others are to blame, that has an incident of its own.
        """
        incident = self._desk.book.of_round(run.uid, round_.number)
        if incident is None or incident.state != book_of.OPEN or incident.drain_after < 0 or incident.order_id:
            return []
        causes = self._desk.folder.health.causes
        places = [faults.place(row) for row in incident.faults if not row.cleared]
        told = self._told(where for where in places if where in causes)
        if not told or found.klass in (d.NODE_DEAD, *cascade.OF_PEOPLE):
            return []
        if cascade.is_elsewhere(found, {one.fault.node for one in told}):
            release(self._desk, incident, f"round {round_.number} has a failure of its own: {found.summary}")
            self.suffering.add(run.uid)
            return []
        return told

    def settle(self, *, acting: bool) -> None:
        """What is done about those by which no job suffers now, and which are over."""
        self._keeping.begin()
        for incident in self._desk.book.open():
            if not incident.faults or incident.klass not in BROKEN:
                continue
            if incident.run_uid not in self.suffering:
                if not incident.run_uid or incident.drain_after >= 0:  # else its round is followed, as all are
                    self._keeping.follow(incident, acting=acting)
            elif incident.action == policy.ADOPT:
                self._keeping.without(incident, acting=acting)
            if incident.order_id and incident.action == policy.RESTART:
                self._keeping.after_order(incident, acting=acting)

    # --- which incident

    def _date(self) -> None:
        """What a leader before this one had heard is as old as its incident: a record says nothing of when it was read.

        Rows of one node lie apart as that node saw them.
        """
        desk, heard = self._desk, self._desk.folder.health.heard
        fresh = {where for where, one in heard.items() if not one.dated}
        for incident in desk.book.open() if fresh else ():
            opened = desk.now - max(desk.at - incident.opened_at, 0.0)
            for row in incident.faults:
                if faults.place(row) in fresh:
                    first = min(one.first_at for one in incident.faults if one.node == row.node)
                    one = heard[faults.place(row)]
                    one.began = min(one.began, opened + row.first_at - first)
                    one.last = min(one.last, one.began + one.lasted_s)
        for where in fresh:
            heard[where].dated = True

    def _told(self, where: Iterable[faults.Place] | None = None) -> list[Told]:
        health = self._desk.folder.health
        found = []
        for one in health.causes if where is None else where:
            heard = health.heard[one]
            found.append(Told(health.causes[one], heard.began, heard.last, tuple(heard.keys)))
        return sorted(found, key=lambda told: (told.began, faults.place(told.fault)))

    def _news(self) -> list[Told]:
        """Faults that no incident tells of."""
        causes = self._desk.folder.health.causes
        if not causes:
            return []
        known = {
            faults.place(row)
            for incident in self._desk.book
            for row in incident.faults
            if not row.cleared and self._covers(incident, row)
        }
        return self._told(where for where in causes if where not in known)

    def _covers(self, incident: r.Incident, row: r.DeviceFault) -> bool:
        """Whether what is told of this fault by now is told by that incident.

        By one that is over only while the node is kept out, or where a person has let it in again as it is.
        """
        folder = self._desk.folder
        cause = folder.health.causes.get(faults.place(row))
        is_out = row.node in folder.joint.cordons or row.node in folder.modes.maintenance
        return incident.state == book_of.OPEN or is_out or cause is None or cause.count <= row.let_in

    def _home(self, told: Told) -> r.Incident | None:
        """The open incident that it is part of."""
        open_ = self._desk.book.open()
        same = [i for i in open_ if i.faults and told.fault.node in i.nodes]
        near = [i for i in open_ if i.faults and self._is_of_domain(i, told)]
        return next((i for i in (*same, *near, *open_) if i in same or i in near or self._is_cause(told, i)), None)

    def _is_of_domain(self, incident: r.Incident, told: Told) -> bool:
        """The same NVLink domain, at the same time, as the monitor heard it."""
        topology, health = self._desk.folder.topology, self._desk.folder.health
        domain = topology.of(told.fault.node).domain
        if not domain or not faults.is_linked(told.fault) or not faults.is_linked(faults.lead(incident.faults)):
            return False
        rows = (row for row in incident.faults if topology.of(row.node).domain == domain)
        heard = (health.heard.get(faults.place(row)) for row in rows)
        return any(one is not None and abs(one.began - told.began) <= TOGETHER_S for one in heard)

    def _is_cause(self, told: Told, incident: r.Incident) -> bool:
        """Whether it is why a round stands still, or has lost a worker."""
        run = self._desk.folder.fleet.runs.get(incident.run_uid)
        round_ = run.rounds.get(incident.round) if run is not None else None
        if run is None or round_ is None or incident.klass not in EXPLAINED or round_ is not run.current:
            return False
        return bool(cascade.causes([told], run, round_, d.again(incident, self._failed_at(incident))))

    def _failed_at(self, incident: r.Incident) -> float:
        return self._desk.book.began.get(incident.id, self._desk.now) - (incident.time_to_detect_s or 0.0)

    # --- what it says

    def _join(self, incident: r.Incident, told: Told) -> None:
        """One more fault of the same cause; or the cause of what was told without it."""
        if len(incident.faults) >= ROWS_MAX:
            return
        run = self._desk.folder.fleet.runs.get(incident.run_uid)
        round_ = run.rounds.get(incident.round) if run is not None else None
        before = d.again(incident, self._failed_at(incident))
        if not incident.faults and round_ is not None:
            found = cascade.explained([told], round_, before)
            incident = self._desk.note(incident, f"corrected: {found.summary}")
        else:
            found = self._with(incident, (*incident.faults, told.fault), told.keys)
            incident = self._desk.note(
                incident, f"likewise: {gpu_words.short(told.fault)}: {gpu_words.device(told.fault)}"
            )
        self._desk.change(incident, lambda i: book_of.restated(i, found))

    def _with(self, incident: r.Incident, rows: tuple[r.DeviceFault, ...], keys: tuple[str, ...] = ()) -> Diagnosis:
        """What an incident says with these rows; of a dead machine it stays the incident."""
        before = d.again(incident, self._failed_at(incident))
        old, new = cascade.reasons(incident.faults), cascade.reasons(rows)
        reasons = (*new, *(text for text in incident.reasons if text not in old))[: cascade.REASONS_MAX]
        found = before._replace(faults=rows, reasons=reasons, evidence=tuple(dict.fromkeys((*before.evidence, *keys))))
        if incident.klass not in BROKEN:
            return found
        return found._replace(
            klass=faults.klass(rows),
            nodes=tuple(sorted({*incident.nodes, *faults.nodes(rows)}))[:NAMED_MAX],
            confidence=max(incident.confidence, faults.confidence(rows)),
            summary=gpu_words.title(rows),
            signature=faults.signature(rows),
        )

    def _refresh(self) -> None:
        """What agents say by now of the faults that incidents tell of: counts, heavier actions, their end."""
        health = self._desk.folder.health
        for incident in self._desk.book:
            if not incident.faults or all(row.cleared for row in incident.faults):
                continue
            is_open = incident.state == book_of.OPEN
            rows = tuple(self._now(row, is_open=is_open) for row in incident.faults)
            keys = [key for row in rows if (heard := health.heard.get(faults.place(row))) for key in heard.keys]
            if not is_open and rows != incident.faults:
                self._desk.change(msgspec.structs.replace(incident, faults=rows))
            elif is_open and (rows != incident.faults or not set(keys[:NAMED_MAX]) <= set(incident.evidence)):
                found = self._with(incident, rows, tuple(keys))
                if not (rows == incident.faults and len(incident.evidence) >= NAMED_MAX):
                    self._desk.change(book_of.restated(incident, found))

    def _now(self, row: r.DeviceFault, *, is_open: bool) -> r.DeviceFault:
        if row.cleared:
            return row
        health = self._desk.folder.health
        cause = health.causes.get(faults.place(row))
        if cause is not None:
            # its boot is that of the first word: one that is told again by a listing may have lost it
            return msgspec.structs.replace(cause, let_in=row.let_in, boot=row.boot or cause.boot) if is_open else row
        proof = health.cleared(row)
        return msgspec.structs.replace(row, cleared=proof) if proof else row

    def _noted(self, found: Diagnosis) -> Diagnosis:
        """With what was told lately of the machines it blames, that is no cause by itself."""
        notes = self._desk.folder.health.notes
        lines = [
            f"told of it before: {note.text}"
            for node in found.nodes[:4]
            for note in notes.get(node, ())
            if found.since - cascade.OUTLIVED_S <= note.at <= found.since + cascade.OUTLIVED_S
        ]
        return found._replace(reasons=(*found.reasons, *lines[:4])) if lines else found

    def _forget_keys(self) -> None:
        """Observations have done their work once the incident that cites them is stored."""
        book, folder = self._desk.book, self._desk.folder
        heard = {where: one for where, one in folder.health.heard.items() if one.keys}
        told = {faults.place(row) for i in book.open() for row in i.faults} if heard else set()
        for where, one in heard.items():
            for key in one.keys:
                if book.cites(key) or where not in told or len(one.keys) > NAMED_MAX:
                    folder.fold(key)

    # --- of a round

    def _adopt(self, run: RunView, round_: RoundView, found: Diagnosis) -> None:
        """The incident of the fault, which concerned no round, goes on as that of the round that suffers by it."""
        book, desk = self._desk.book, self._desk
        places = {faults.place(row) for row in found.faults}
        mine = next(
            (i for i in book.open() if not i.run_uid and places & {faults.place(row) for row in i.faults}), None
        )
        if mine is None:
            return
        stands = book.of_round(run.uid, round_.number)
        if stands is not None and stands.state == book_of.OPEN:
            desk.close(mine, book_of.SUPERSEDED, f"told of by incident {stands.id}")
            return
        if stands is not None:
            return
        before = book.open_before(run.uid, round_.number)
        if before is not None:
            desk.close(before, book_of.SUPERSEDED, f"round {round_.number} has a failure of its own")
        known = {faults.place(row) for row in mine.faults}
        rows = (*mine.faults, *(row for row in found.faults if faults.place(row) not in known))[:ROWS_MAX]
        then = next((text for text in found.reasons if text.startswith("then: ")), "then: its job suffers")
        mine = desk.note(mine, f"{then} (run {run.uid}, round {round_.number})")
        of_run = {"run_uid": run.uid, "run_id": run.run_id, "round": round_.number, "fault_step": highest_step(round_)}
        restated = book_of.restated(mine, found._replace(faults=rows))
        book.concerns(msgspec.structs.replace(restated, **of_run), desk.now)
