"""Judging: from what is believed to the records that should exist. Called once per tick, only while leading."""

from collections.abc import Callable, Container

import msgspec

from rankpulse.core import deaths, endings, outbox_requests, policy, repeats
from rankpulse.core import diagnosis as d
from rankpulse.core import events as ev
from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core.advice_keeping import AdviceKeeping
from rankpulse.core.assembling import history
from rankpulse.core.breaker import BreakerJudge
from rankpulse.core.ceiling import Ceilings
from rankpulse.core.cordon_times import CordonTimes
from rankpulse.core.corruption_judge import Corruption
from rankpulse.core.death_words import bettered, with_past
from rankpulse.core.desk import Desk, Wanted
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis, Ending
from rankpulse.core.draining import Draining
from rankpulse.core.fold import RELEASE, RESTART, Folder
from rankpulse.core.following import Following
from rankpulse.core.gates import Gates
from rankpulse.core.gpu_incidents import GpuIncidents
from rankpulse.core.hearing import Conviction
from rankpulse.core.incidents import Book
from rankpulse.core.keys import Keys
from rankpulse.core.ledger_keeping import LedgerKeeping
from rankpulse.core.non_finite_judge import NonFinite
from rankpulse.core.ordering import Ordering
from rankpulse.core.orders import Orders
from rankpulse.core.outbox import Outbox
from rankpulse.core.settings import Settings
from rankpulse.core.sight import Sight
from rankpulse.core.stragglers import Stragglers
from rankpulse.core.strikes import Strikes
from rankpulse.core.suspicion import Suspicions
from rankpulse.core.telling import joined
from rankpulse.core.tidy import Tidy
from rankpulse.core.views import RoundView, RunView
from rankpulse.core.watch import Watch

NOT_NOW = "this monitor is blind, or too many nodes are late together: what it knows may be old"
ENDING_S = 30.0  # seconds in which a program that has raised comes to its end
ORDERED = (policy.RESTART, policy.RESTART_WITHOUT, policy.RELEASE, policy.STOP)
HUNG = frozenset(d.STANDSTILLS) - frozenset(d.DEATHS)  # what the silence of a whole node may explain
STANDING = frozenset((d.WORKER_DEAD, *d.STANDSTILLS))  # what a standstill may be called


class Judge:
    """Composes the parts; what it wants written is derived from beliefs, never from what it did before."""

    def __init__(self, settings: Settings, keys: Keys, folder: Folder, book: Book) -> None:
        self._folder, self._book, self._keys = folder, book, keys
        self._desk = Desk(settings, keys, folder, book)
        self._detect = settings.detect
        self._watch = Watch(self._desk)
        self._ordering = Ordering(self._desk)
        self._orders = Orders(self._desk)
        self._breaker = BreakerJudge(self._desk)
        self._strikes = Strikes(self._desk)
        self._cordon_times = CordonTimes(self._desk)
        self._draining = Draining(self._desk)
        self._non_finite = NonFinite(self._desk)
        self._corruption = Corruption(self._desk)
        self._gpus = GpuIncidents(self._desk)
        self._suspicions = Suspicions(self._desk)
        self._gates = Gates(self._desk)
        self._outbox = Outbox(self._desk)
        self._ceilings = Ceilings(self._desk)
        self.stragglers = Stragglers(settings.detect)
        self._following = Following(self._desk, self._watch.verdicts, self._orders)
        self._ledger = LedgerKeeping(self._desk)
        self._advice = AdviceKeeping(self._desk)
        self._tidy = Tidy(self._desk, self._suspicions, self._ledger)
        self._broken: set[str] = set()
        self._orphaned: set[str] = set()
        self._settled: set[str] = set()  # runs judged at this tick, standstills and all

    def judge(self, now: float, at: float, epoch: int, sight: Sight) -> list[Wanted]:
        """Everything that should stand in the store by now and may not yet. Incidents come before what follows them."""
        self._desk.begin(now, at, epoch)
        self._settled.clear()
        self._folder.learned.settle()
        self._ceilings.begin(sight)
        self._guarded("broken GPUs", lambda: self._gpus.judge(acting=not sight.blind(now)))
        fresh = self._watch.mark(sight)
        stuck = {
            run.uid for run in list(self._folder.fleet.runs.values()) if run.rounds and self._run(run, fresh, sight)
        }
        for conviction in self._watch.judge(sight):
            self._convict(conviction)
        self._cordon_times.judge()
        outbox_requests.answer(self._desk)
        self._ordering.requests()
        self._breaker.judge(self._watch.silent, self._watch.watched)
        self._orders.acknowledgements()
        for incident in self._book.open():
            self._following.follow(incident)
        acting = not sight.blind(now) and not self._watch.stopped  # else it may not even know that it was disarmed
        self._reconsider()
        self._guarded("broken GPUs", lambda: self._gpus.settle(acting=acting))
        self._draining.judge(self._gpus.suffering)
        self._guarded("numbers that are not finite", lambda: self._non_finite.judge(sees=not sight.blind(now)))
        self._guarded("replicas that differ", lambda: self._corruption.judge(sees=not sight.blind(now)))
        self._strikes.judge(stopped="" if acting else NOT_NOW)
        self._not_taken(acting=acting)
        self._outbox.announce()
        for incident in self._book.unconfirmed():
            self._desk.want(self._keys.incident(incident.id), incident, incident.summary)
        self._outbox.judge()
        if acting:
            self._orders.give(stuck)
        else:
            self._orders.blind()
        self._gates.judge(acting=acting)
        self._tidy.rosters()
        self._tidy.checkpoints()
        self._tidy.fleet()
        self._tidy.learned()
        self._ledger.judge()
        self._advice.judge()
        self._desk.budgets.keep()
        self._tidy.orders(self._settled)
        self._tidy.forget()
        return self._desk.wanted

    def unwanted(self) -> list[str]:
        """Keys that must not be written after all, as of the last `judge`."""
        return self._desk.unwanted

    def posts(self) -> list[ev.Post]:
        """What webhooks are to be told now."""
        return self._outbox.posts()

    def looks(self, sight: Sight) -> list[ev.Probe]:
        """Direct looks at agents to take now."""
        return self._watch.looks(sight)

    @property
    def stopped(self) -> str:
        """Why actions stop although sight is good, "" while they do not."""
        return self._watch.stopped

    # --- silent nodes

    def _convict(self, conviction: Conviction) -> None:
        """Nodes of a round are dead: its incident from now on, unless it has another one already."""
        run, found = conviction
        incident, verdicts = self._book.of_round(run.uid, run.current.number), self._watch.verdicts
        if incident is None:
            verdicts.adopt(run, found)
            self._of_round(run, run.current, found)
        elif self._explains(incident, found):
            self._of_round(run, run.current, joined(incident, found) if incident.klass == found.klass else found)
        elif self._explains_after(incident, found):
            incident = self._desk.note(incident, f"corrected: {found.klass}: {found.summary}")
            self._desk.change(incident, lambda i: book_of.restated(i, found))
        elif found.klass == d.NODE_DEAD and incident.faults and set(found.nodes) <= set(incident.nodes):
            if incident.klass != d.NODE_DEAD and not incident.order_id:
                verdicts.died(incident, found)  # of its broken GPU
            self._of_round(run, run.current, found)
        else:
            if found.klass == d.NODE_DEAD:
                verdicts.tell(found)
            return
        incident = self._book.of_round(run.uid, run.current.number)
        if incident is not None:
            verdicts.part(set(found.nodes) & set(incident.nodes), incident)

    def _explains(self, incident: r.Incident, found: Diagnosis) -> bool:
        """Whether what is found is what the incident of the round is about."""
        if incident.state != book_of.OPEN or incident.order_id:
            return False
        if found.klass != d.NODE_DEAD:
            return incident.klass == found.klass
        stands = incident.klass in HUNG and incident.klass != d.UNKNOWN
        hung = {member.node for member in incident.culprits} if stands else None
        return incident.klass in (d.UNKNOWN, d.NODE_DEAD) or (hung is not None and hung <= set(found.nodes))

    def _explains_after(self, incident: r.Incident, found: Diagnosis) -> bool:
        """The same, of an incident for which an order stands: what was done stays, its cause is known now."""
        unexplained = incident.klass == d.UNKNOWN and found.klass == d.NODE_DEAD
        return unexplained and incident.state == book_of.OPEN and bool(incident.order_id)

    # --- runs

    def _guarded(self, what: str, judge: Callable[[], None]) -> None:
        """What cannot be judged must not hide the rest: a dead node is still found."""
        try:
            judge()
        except Exception as error:
            if what not in self._broken:
                self._broken.add(what)
                self._folder.say("error", f"{what} cannot be judged, a bug in rankpulse: {error!r:.200}")

    def _run(self, run: RunView, fresh: Container[str], sight: Sight) -> bool:
        """Judge one run; whether it stands still right now. A run that cannot be judged must not hide the others."""
        try:
            return self._judge_run(run, fresh, sight)
        except Exception as error:
            if run.uid not in self._broken:
                self._broken.add(run.uid)
                self._folder.say("error", f"run {run.uid} cannot be judged, a bug in rankpulse: {error!r:.200}")
            return False

    def _judge_run(self, run: RunView, fresh: Container[str], sight: Sight) -> bool:
        if not run.open():
            self._suspicions.forget(run)
            self.stragglers.forget(run.uid)
            self._tidy.sweep(run)
            return False
        self._folder.beats.sample_run_ahead(run, self._desk.now)
        self._orphans(run)
        for number in sorted(run.rounds):
            ending = self._ending(run, run.rounds[number])
            if ending is not None:
                self._end(run, ending)
                return False
            self._tidy.release(run, run.rounds[number])
        if sight.blind(self._desk.now) or self._desk.now < sight.hold_until:
            return False
        stuck, lasted_s = self._suspicions.judge(run, fresh)
        self._settled.add(run.uid)
        for line in self.stragglers.look(run, self._desk.now):
            self._folder.say("warning", line)
        if stuck is not None:
            self._of_round(run, run.current, stuck, lasted_s)
        elif (silent := self._ceilings.exceeded(run, fresh)) is not None:
            self._of_round(run, run.current, silent)
        return stuck is not None

    def _ending(self, run: RunView, round_: RoundView) -> Ending | None:
        """Weigh the exits of a round: a failure becomes its incident; an end of the whole run is returned."""
        ordered = round_.number in run.ordered  # it was ended by us: that is judged already
        found = None
        past = round_ is not run.current and self._tidy.released(round_)
        if round_.exits and not ordered and not round_.accounted and not past:
            missed = self._folder.fleet.deadlines.late
            found = deaths.weigh(run, round_, self._desk.now, self._detect, missed)
        if isinstance(found, Diagnosis):
            self._died(run, round_, found)
            found = None
        if round_ is not run.current:
            return None
        if run.joint is None:
            return found or endings.plain(run, self._desk.now, self._detect)
        return self._closed(run, found)

    def _closed(self, run: RunView, found: Ending | None) -> Ending | None:
        """The end of a run of our rendezvous; a failure that nothing explains becomes an incident first."""
        number = run.current.number
        told = run.current.accounted or self._book.of_round(run.uid, number) is not None
        told |= self._book.open_before(run.uid, number) is not None
        told |= self._book.stop_of(run.uid, number) is not None
        ending = endings.joint(run, found, told, self._desk.now, self._detect)
        if isinstance(ending, Diagnosis):
            self._of_round(run, run.current, ending)
            return None
        return ending

    def _orphans(self, run: RunView) -> None:
        """Workers that train on without their torchrun: no incident, but nobody would start them again."""
        alive = len(run.current.alive()) if run.launchers_gone() else 0
        if alive and run.uid not in self._orphaned:
            self._orphaned.add(run.uid)
            self._folder.say("warning", f"run {run.uid}: torchelastic has ended, {alive} workers run on without it")

    def _died(self, run: RunView, round_: RoundView, found: Diagnosis) -> None:
        """A failure of a round that the run had not recovered into is part of the incident that is still open.

        Not so where holders wait: each such round needs a verdict, and so an incident, of its own.
        """
        found = with_past(bettered(found), history(self._desk, run, round_))
        unrecovered = self._book.open_before(run.uid, round_.number)
        own = run.joint is not None and deaths.is_held(round_)
        if unrecovered is None or own or self._book.of_round(run.uid, round_.number) is not None:
            self._of_round(run, round_, found)
            return
        incident = self._desk.note(unrecovered, f"round {round_.number} failed before it recovered: {found.summary}")
        evidence = tuple(dict.fromkeys((*incident.evidence, *found.evidence)))[:NAMED_MAX]
        self._desk.change(incident, lambda i: msgspec.structs.replace(i, evidence=evidence))
        round_.accounted = True

    def _of_round(self, run: RunView, round_: RoundView, found: Diagnosis, still_s: float | None = None) -> None:
        """One incident per failure of a round: opened once, corrected while it is open and nothing was done about it.

        `still_s`: for how long the round has stood still, where that is the failure.
        """
        found = self._gpus.explained(run, round_, found)
        incident = self._book.of_round(run.uid, round_.number)
        if incident is None:
            before = self._book.open_before(run.uid, round_.number)
            if before is not None:
                self._desk.close(before, book_of.SUPERSEDED, f"round {round_.number} has a failure of its own")
            incident = self._desk.open(found, (run, round_), still_s=still_s)
            self._keep_finding(incident, found)
        elif incident.state == book_of.OPEN and not incident.order_id:
            incident = self._restate(incident, found, round_, standing=still_s is not None)
        self._keep_finding(incident, found)
        if incident.state == book_of.OPEN and self._undecided(incident):
            if incident.klass == d.NODE_DEAD != found.klass:
                found = d.again(incident, found.since)  # what its peers do follows from it
            choice = policy.choose(found, self._desk.facts(found, run, round_, still_s))
            if choice.action != incident.action:
                self._folder.say("warning", f"incident {incident.id}: action {choice.action}: {choice.reason}")
            self._desk.change(incident, lambda i: book_of.decided(i, choice, self._desk.at))

    def _reconsider(self) -> None:
        """What is done about dead nodes depends on who waits to take their place, and nothing tells of them again."""
        for incident in self._book.open():
            run = self._folder.fleet.runs.get(incident.run_uid)
            if incident.klass != d.NODE_DEAD or run is None or not run.rounds or not run.open():
                continue
            if run.current.number == incident.round and self._undecided(incident):
                self._of_round(run, run.current, d.again(incident, self._desk.now))

    def _not_taken(self, *, acting: bool) -> None:
        """A decision that is not carried out is part of the story, too."""
        for incident in self._book.open() if not acting else ():
            if incident.action in ORDERED and self._undecided(incident) and incident.run_uid:
                self._desk.note(incident, f"no order to {incident.action}: {NOT_NOW}")

    def _keep_finding(self, incident: r.Incident, found: Diagnosis) -> None:
        """What the evidence came to goes with the incident that says so. It is written first, and again when it is
        restated: whoever dies in between leaves one too many, never an incident without.
        """
        said = (incident.klass, incident.summary) == (found.klass, found.summary)
        if found.finding is None or not said or incident.state != book_of.OPEN:
            return
        kept = msgspec.structs.replace(
            found.finding,
            id=incident.id,
            klass=incident.klass,
            summary=incident.summary,
            confidence=incident.confidence,
            reasons=incident.reasons,
            signature=incident.signature,
        )
        self._desk.want(self._keys.finding(incident.id), kept, f"evidence of {incident.id}")

    def _restate(self, incident: r.Incident, found: Diagnosis, round_: RoundView, *, standing: bool) -> r.Incident:
        """What is known now, where it says something else than before."""
        known = (incident.klass, incident.culprits, incident.confidence)
        heard = set(found.evidence) - set(incident.evidence)
        if not _may_correct(incident, found, standing=standing, age_s=self._desk.at - incident.opened_at):
            return incident
        if incident.klass == d.NODE_DEAD != found.klass:
            return incident  # a standstill, or workers that are gone, follow from it
        more = not set(found.nodes) <= set(incident.nodes)
        same = (found.klass, found.culprits, found.confidence) == known and found.signature == incident.signature
        if same and not heard and not more:
            return incident
        if more or found.culprits != incident.culprits:
            incident = self._desk.note(incident, f"corrected: {found.summary}")
        by_hand = repeats.foreign(found, round_)
        restated = book_of.restated(incident, found)
        return self._desk.change(restated, lambda i: msgspec.structs.replace(i, foreign=by_hand))

    def _undecided(self, incident: r.Incident) -> bool:
        """Neither a person nor an order that stands has settled what is done."""
        given = (self._folder.ordered(incident.run_uid, incident.round, kind) for kind in (RESTART, RELEASE))
        return not (incident.order_id or incident.asked_by or any(given) or self._is_stopped(incident))

    def _is_stopped(self, incident: r.Incident) -> bool:
        """The policy's word that there is no further round stands: what is seen next follows from that."""
        gate = self._folder.joint.gates.get((incident.run_uid, incident.round + 1))
        return incident.action == policy.STOP and gate is not None and not gate.go

    def _end(self, run: RunView, ending: Ending) -> None:
        run.outcome, run.reason, run.ended_at = ending.outcome, ending.reason, self._desk.at
        self._folder.say("info", f"run {run.uid}: {run.outcome}: {run.reason}")
        self._tidy.want_state(run)


def _may_correct(incident: r.Incident, found: Diagnosis, *, standing: bool, age_s: float) -> bool:
    """Whether what is found now is a better word for the same failure. `standing`: what is found is a standstill.
    `age_s`: for how long the incident has been open.

    A standstill that ends in deaths stays one: they follow from it. But one in which nobody stood out may have been the
    end of a program that had raised: it takes seconds to end, and its peers wait for it in a collective. Ranks that a
    true standstill kills die of timeouts, minutes later.
    """
    was, now = incident.klass, found.klass
    if d.NODE_DEAD in (was, now):
        return {was, now} <= {d.NODE_DEAD, *HUNG}
    if standing:
        return {was, now} <= STANDING
    if was == d.NETWORK_STALL and not incident.culprits and found.fault and 0 <= age_s <= ENDING_S:
        return now in d.DEATHS
    same_exits = bool(set(incident.evidence) & set(found.evidence))
    return ((was == d.UNKNOWN or same_exits) and {was, now} <= {d.UNKNOWN, *d.DEATHS}) or was == now
