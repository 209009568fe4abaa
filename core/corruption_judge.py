"""Replicas that differ: one incident for a round, from the first check that disagrees to its restart."""

from typing import Final

import msgspec

from rankpulse.core import corruption, modes, policy
from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core.checksums import Verdict
from rankpulse.core.corruption import Case
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.policy import Choice
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.views import RoundView, RunView

AGAIN_S: Final = 1.0  # of a large job a look takes milliseconds


def diagnosis(verdict: Verdict, round_: RoundView, evidence: tuple[str, ...], since: float) -> Diagnosis:
    """Named as culprits are only those that a majority contradicts; the others are named in words."""
    held = tuple(member for member in map(round_.members.get, verdict.odd) if member is not None)
    nodes = d.nodes_of(held)
    who = d.name(held[0]) if len(held) == 1 else ranks_in_words(verdict.odd)
    if verdict.certain:
        text = f"parameters of {who} differ from those of the other replicas since step {verdict.step}"
        why = [f"the majority of {verdict.replicas} replicas agrees; the next step spreads it through the gradients"]
    else:
        text = f"replicas differ since step {verdict.step}: which of {ranks_in_words(verdict.odd)} is not known"
        why = [f"of {verdict.replicas} replicas no majority agrees: any of them may be the corrupted one"]
    clean = f"all agreed last at step {verdict.clean}" if verdict.clean >= 0 else "no check of this round was clean"
    return Diagnosis(
        d.SILENT_CORRUPTION,
        held if verdict.certain else (),
        (),
        nodes,
        1.0 if verdict.certain else 0.5,
        text,
        (*why, clean),
        evidence[: d.NAMED_MAX],
        since,
        advice=d.RESTART_WITHOUT if verdict.certain else "",
    )


class Corruption:
    """One per judge; remembers only when it looked last."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._looked: tuple[int, float] = (-1, 0.0)
        self._found: dict[tuple[str, int], Verdict] = {}

    def judge(self, *, sees: bool) -> None:
        """Open and follow the incidents of such runs. `sees`: what is believed is of now."""
        heard, book = self._desk.folder.checksums, self._desk.book
        open_ = {(i.run_uid, i.round): i for i in book.open() if i.klass == d.SILENT_CORRUPTION}
        self._look()
        for uid, number in heard.rounds():
            run, incident = self._desk.folder.fleet.runs.get(uid), open_.get((uid, number))
            if run is None or not run.open() or not run.rounds or number < run.current.number:
                if incident is None or book.stands(incident.id):
                    heard.drop(uid, number)
            elif sees and number == run.current.number and number not in run.ordered:
                self._go_on(run, incident)

    def _look(self) -> None:
        """The verdicts, anew where anything was told since, or time may have decided."""
        heard, now = self._desk.folder.checksums, self._desk.now
        if self._looked[0] == heard.changes and 0 <= now - self._looked[1] < AGAIN_S:
            return
        self._looked = heard.changes, now
        found = {place: heard.verdict(*place, now) for place in heard.rounds()}
        self._found = {place: verdict for place, verdict in found.items() if verdict is not None}

    def _go_on(self, run: RunView, incident: r.Incident | None) -> None:
        number, heard = run.current.number, self._desk.folder.checksums
        if incident is not None and heard.well_again(run.uid, number):
            heard.drop(run.uid, number)  # what was told before was of parameters that nobody holds any more
            self._desk.close(incident, book_of.PASSED, "all replicas agree again, without a restart")
            return
        verdict = self._found.get((run.uid, number))
        if verdict is None:
            return
        evidence = heard.evidence(run.uid, number, verdict.step)
        found = diagnosis(verdict, run.current, evidence, heard.since(run.uid, number, verdict.step))
        self._decide(run, incident, verdict, found)

    def _decide(self, run: RunView, incident: r.Incident | None, verdict: Verdict, found: Diagnosis) -> None:
        desk = self._desk
        case = self._case(run, verdict, found)
        choice = corruption.choose(case)
        incident = self._opened(run, found, choice) if incident is None else self._desk.restate(incident, found)
        if choice.action != incident.action:
            desk.folder.say("warning", f"incident {incident.id}: action {choice.action}: {choice.reason}")
        before = case.limit if choice.action in (policy.RESTART, policy.RESTART_WITHOUT) else -1
        desk.change(
            incident,
            lambda i: msgspec.structs.replace(i, bad_step=verdict.step, resume_before_step=before),
            lambda i: book_of.decided(i, choice, desk.at),
        )

    def _opened(self, run: RunView, found: Diagnosis, choice: Choice) -> r.Incident:
        """The one of an earlier round from which the run has not recovered is part of the past."""
        for before in self._desk.book.open():
            if (before.run_uid, before.klass) == (run.uid, d.SILENT_CORRUPTION):
                self._desk.close(before, book_of.SUPERSEDED, f"replicas differ in round {run.current.number}, too")
        return self._desk.open(found, (run, run.current), choice)

    def _case(self, run: RunView, verdict: Verdict, found: Diagnosis) -> Case:
        desk, before = self._desk, corruption.limit(verdict, run.current)
        leave = desk.folder.modes.of(run.uid)
        consent = desk.folder.modes.on_corruption(run.uid, usual=desk.settings.policy.restart_on_corruption)
        facts = policy.NOBODY._replace(paused=leave.mode == modes.PAUSED, unarmed=leave.why)
        return Case(
            desk.facts(found, run, run.current) if consent else facts,
            consent,
            before,
            found.nodes,
            verdict.certain,
            corruption.refused(before, run, desk.folder.checkpoints.of(run.uid)),
            corruption.again(run, desk.book),
        )
