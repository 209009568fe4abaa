"""Runs that train on with numbers that are not finite: one incident for a round, from the first word to the last.

The ranks move, so nothing else sees it.
"""

from typing import Final

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import modes, non_finite, policy
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.non_finite import Case
from rankpulse.core.numbers import Told
from rankpulse.core.policy import Choice
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.views import RoundView, RunView

AGAIN_S: Final = 1.0  # of a large job a look takes tens of milliseconds
SETTLE_BEATS: Final = 2.0  # by then every node has told of its ranks: one of them may have been sooner


def diagnosis(told: Told, round_: RoundView, evidence: tuple[str, ...], since: float) -> Diagnosis:
    """Who was first is said only where others were seen to be later, or to be well."""
    alone = told.moved == told.telling
    first = () if alone else tuple(m for m in map(round_.members.get, told.movers) if m is not None)
    who, *why = _of_some(told, first) if first else _of_all(told, round_)
    if told.finite < 0:
        why.append("no step of this round was finite: what it resumed from may hold it already")
    elif told.finite < told.first - 1:
        why.append(f"finite last at step {told.finite}: none were handed over between, so it may have begun there")
    return Diagnosis(
        d.NON_FINITE,
        first,
        (),
        d.nodes_of(first),
        1.0,
        f"{told.words} since step {told.first}, {who}",
        tuple(why),
        evidence[: d.NAMED_MAX],
        since,
    )


def _of_some(told: Told, first: tuple[r.Member, ...]) -> list[str]:
    """Who and why, where the ranks whose row began first differ from others."""
    who = d.name(first[0]) if told.moved == 1 else ranks_in_words(told.movers)
    if told.bad > told.moved:
        why = "its numbers were not finite at an earlier step than those of the others"
        return [f"first reported by {who}; {_others(told.bad - told.moved)} after it", why]
    rest = f"{_others(told.telling - told.bad)} with finite numbers"
    return [f"reported by {who}; {rest}", "not spread by all-reduce: its data, or wrong results of its GPU"]


def _of_all(told: Told, round_: RoundView) -> list[str]:
    """The same where nobody differs."""
    count = f"all {told.moved}" if told.moved == round_.world_size else told.moved
    who = f"on {count} ranks at the same step" if told.moved > 1 else f"as {ranks_in_words(told.movers)} reports it"
    return [who, "all-reduce spreads it within a step: who was first shows only in losses that are each rank's own"]


def _others(count: int) -> str:
    return f"{count} other rank{'s' if count > 1 else ''}"


class NonFinite:
    """One per judge; remembers only when it looked last, and since when nobody tells of it."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self._looked: dict[tuple[str, int], tuple[int, float]] = {}
        self._well: dict[str, float] = {}  # incident -> since when every rank is finite

    def judge(self, *, sees: bool) -> None:
        """Open, follow and end the incidents of such runs. `sees`: what is believed is of now."""
        heard, book = self._desk.folder.numbers, self._desk.book
        open_ = {(i.run_uid, i.round): i for i in book.open() if i.klass == d.NON_FINITE}
        for uid, number in heard.rounds():
            run = self._desk.folder.fleet.runs.get(uid)
            incident = open_.pop((uid, number), None)
            if run is None or not run.open() or not run.rounds or number < run.current.number:
                if incident is None or book.stands(incident.id):
                    heard.drop(uid, number)
            elif sees and number == run.current.number and number not in run.ordered and self._is_due(uid, number):
                self._go_on(run, incident)
        self._well = {i.id: self._well.get(i.id, self._desk.now) for i in open_.values() if sees}
        for incident in open_.values() if sees else ():
            self._over(incident)

    def _is_due(self, uid: str, number: int) -> bool:
        """Whether anything is new, or may be by now."""
        changes, now = self._desk.folder.numbers.changes, self._desk.now
        before = self._looked.get((uid, number))
        due = before is None or before[0] != changes or not 0 <= now - before[1] < AGAIN_S
        if due:
            self._looked = {place: seen for place, seen in self._looked.items() if now - seen[1] < 2 * AGAIN_S}
            self._looked[uid, number] = changes, now
        return due

    def _over(self, incident: r.Incident) -> None:
        """Nobody tells of it any more, in the round in which it began and without a restart.

        For a while: one that comes and goes is one incident.
        """
        if self._desk.now - self._well[incident.id] < self._desk.settings.detect.quiet_s:
            return
        run = self._desk.folder.fleet.runs.get(incident.run_uid)
        here = run is not None and bool(run.rounds) and run.open() and run.current.number == incident.round
        if run is not None and here and incident.round not in run.ordered:
            self._desk.close(incident, book_of.PASSED, "every rank reports finite numbers again, without a restart")

    def _go_on(self, run: RunView, incident: r.Incident | None) -> None:
        desk, number = self._desk, run.current.number
        heard = desk.folder.numbers
        told = heard.of(run.uid, number, desk.folder.fleet.deadlines.late)
        if told is None:
            return
        since = heard.since(run.uid, number)
        found = diagnosis(told, run.current, heard.evidence(run.uid, number), since)
        case = self._case(run, told, found, since)
        choice = non_finite.choose(case)
        incident = self._opened(run, found, choice) if incident is None else self._desk.restate(incident, found)
        if choice.action != incident.action:
            desk.folder.say("warning", f"incident {incident.id}: action {choice.action}: {choice.reason}")
        before = case.limit if choice.action == policy.RESTART else -1
        desk.change(
            incident,
            lambda i: msgspec.structs.replace(i, bad_step=told.first, resume_before_step=before),
            lambda i: book_of.decided(i, choice, desk.at),
        )

    def _opened(self, run: RunView, found: Diagnosis, choice: Choice) -> r.Incident:
        """The one of an earlier round from which the run has not recovered is part of the past."""
        for before in self._desk.book.open():
            if (before.run_uid, before.klass) == (run.uid, d.NON_FINITE):
                text = f"round {run.current.number} has numbers that are not finite, too"
                self._desk.close(before, book_of.SUPERSEDED, text)
        return self._desk.open(found, (run, run.current), choice)

    def _case(self, run: RunView, told: Told, found: Diagnosis, since: float) -> Case:
        desk, before = self._desk, non_finite.limit(told, run.current)
        limits, leave = desk.settings, desk.folder.modes.of(run.uid)
        consent = desk.folder.modes.on_non_finite(run.uid, usual=limits.policy.restart_on_non_finite)
        facts = policy.NOBODY._replace(paused=leave.mode == modes.PAUSED, unarmed=leave.why)
        facts = desk.facts(found, run, run.current) if consent else facts
        left = min(facts.orders_left, limits.policy.orders_per_run - non_finite.idle(told, run, desk.book))
        return Case(
            facts._replace(orders_left=left),
            consent,
            before,
            non_finite.refused(told, before, run, desk.folder.checkpoints.of(run.uid)),
            non_finite.again(told, run, desk.book),
            desk.now - since >= SETTLE_BEATS * limits.detect.heartbeat_interval_s,
        )
