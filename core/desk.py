"""The judge's desk: what its parts share during one tick, and the one way to open, change and close an incident."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from rankpulse.core import announcing, deaths, modes, policy, repeats
from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import records as r
from rankpulse.core.budgets import Budgets
from rankpulse.core.cost_rule import Times
from rankpulse.core.diagnosis import Diagnosis, nodes_of
from rankpulse.core.fold import Folder
from rankpulse.core.incidents import Book
from rankpulse.core.keys import Keys
from rankpulse.core.lost_time import LostTime
from rankpulse.core.settings import Settings
from rankpulse.core.telling import in_words
from rankpulse.core.views import RoundView, RunView


class Wanted(NamedTuple):
    """A record that the store should hold. `once`: create it or leave it, never overwrite."""

    key: str
    record: r.Record
    reason: str
    once: bool = False


class Desk:
    """Set by the judge at every tick; holds no belief beyond it but how many incidents this term opened."""

    def __init__(self, settings: Settings, keys: Keys, folder: Folder, book: Book) -> None:
        self.settings, self.keys, self.folder, self.book = settings, keys, folder, book
        self.now = self.at = 0.0
        self.epoch = 0
        self.wanted: list[Wanted] = []
        self.unwanted: list[str] = []  # keys that must not be written after all
        self._opened = 0
        self.budgets = Budgets(self)
        self.lost_time = LostTime(self)

    def begin(self, now: float, at: float, epoch: int) -> None:
        if epoch != self.epoch:
            self._opened = 0
            self.lost_time.new_term()
        self.now, self.at, self.epoch, self.wanted, self.unwanted = now, at, epoch, [], []

    def want(self, key: str, record: r.Record, reason: str, *, once: bool = False) -> None:
        self.wanted.append(Wanted(key, record, reason, once))

    @property
    def times(self) -> Times:
        """How long nothing may be heard of a node before it is given up."""
        return self.folder.memory.times

    @property
    def armed(self) -> bool:
        """The cluster's word; what may be done about a run tells `folder.modes.of`."""
        return self.folder.armed is not None and self.folder.armed.armed

    def erase(self, key: str) -> None:
        """Delete a record of ours, also one that is only about to be written."""
        self.unwanted.append(key)
        self.folder.fold(key)

    def facts(self, found: Diagnosis, run: RunView, round_: RoundView, still_s: float | None = None) -> policy.Facts:
        """What the policy needs to know about the run."""
        there = any(run.launchers.values()) or not run.launchers  # one that was never seen may well be there
        joint, leave = run.joint is not None, self.folder.modes.of(run.uid)
        machine = found.klass in (d.NODE_DEAD, d.GPU_FAULT, d.NVLINK_DOMAIN) or found.advice == d.RESTART_WITHOUT
        dead = found.nodes if machine else ()
        held = joint and deaths.is_held(round_)
        return policy.Facts(
            elastic=run.elastic,
            launcher_alive=there,
            armed=leave.armed,
            orders_left=self.budgets.left(run),
            joint=joint,
            held=held,
            parted=deaths.has_parted(round_),
            repeated=repeats.repeated(found, run, round_, self.book, self.now),
            settled=not found.fault or self.now - found.since >= self.settings.detect.settle_s,
            unheard=in_words(self.unheard(round_, found.since)) if held else "",
            still_s=still_s,
            act_after_s=self.settings.policy.hang_act_s,
            unarmed=leave.why,
            paused=leave.mode == modes.PAUSED,
            spent=self.budgets.spent(run.uid, round_.number, nodes_of(found.culprits) or found.nodes),
            rests_s=self.budgets.rests(run, held=held),
            room=self.room(run, round_, dead),
            foreign=repeats.foreign(found, round_),
        )

    def room(self, run: RunView, round_: RoundView, without: Iterable[str]) -> policy.Room:
        """Who could be in the next round without these nodes, and without any that is barred, refused or silent."""
        if run.joint is None or run.joint.launch is None:
            return policy.NOWHERE
        out = {*without, *self.folder.joint.cordons, *self.folder.modes.maintenance}
        members = {(place.node, place.launcher) for place in round_.places}
        refused = {(joiner.node, joiner.launcher) for joiner in run.joint.waiting() if joiner.refused}
        left = [
            who
            for who in round_.places
            if who.node not in out and (who.node, who.launcher) not in refused and run.launchers.get(who, True)
        ]
        spares = [
            who
            for joiner in run.joint.waiting()
            if (who := (joiner.node, joiner.launcher)) not in members | refused
            and joiner.node not in out
            and self._heard(joiner.node)
        ]
        launch = run.joint.launch
        had = len(round_.places)
        return policy.Room(len(left), len(spares), had, launch.min_nodes, self.settings.policy.shrink)

    def unheard(self, round_: RoundView, since: float) -> list[str]:
        """Nodes of the round of which no beat has come since then (nor since this monitor can see), nor is missing."""
        fleet = self.folder.fleet
        due = [name for name in round_.nodes() if name in fleet.deadlines and name not in fleet.deadlines.late]
        return [name for name in due if fleet.nodes[name].arrival.again_at < max(since, fleet.anew.at)]

    def _heard(self, name: str) -> bool:
        """Nothing speaks against this node being there."""
        node = self.folder.fleet.nodes.get(name)
        return node is not None and node.silent_since is None and not node.leaving

    def open(
        self,
        found: Diagnosis,
        where: tuple[RunView, RoundView] | None = None,
        choice: policy.Choice | None = None,
        still_s: float | None = None,
    ) -> r.Incident:
        """Open an incident of a round, or, without one, of the fleet. `choice`: a person's, else the policy's."""
        facts, run = policy.NOBODY, ("", "", -1)
        if where is not None:
            facts = self.facts(found, *where, still_s)
            run = (where[0].uid, where[0].run_id, where[1].number)
        choice = choice or policy.choose(found, facts)
        self._opened += 1
        id_ = f"i{self.epoch:04d}-{self._opened:04d}"
        while self.book.get(id_) is not None:  # a store that was wiped counts epochs from one again
            self._opened += 1
            id_ = f"i{self.epoch:04d}-{self._opened:04d}"
        incident = book_of.opened(found, choice, id_=id_, run=run, now=self.now, at=self.at, epoch=self.epoch)
        if where is not None:
            by_hand = repeats.foreign(found, where[1])
            incident = msgspec.structs.replace(incident, fault_step=repeats.highest_step(where[1]), foreign=by_hand)
        self.book.put(incident, self.now)
        self.folder.say("warning", f"incident {id_}: {found.klass}: {found.summary}; action {choice.action}")
        return incident

    def change(self, incident: r.Incident, *changes: Callable[[r.Incident], r.Incident]) -> r.Incident:
        """Apply changes and remember the outcome."""
        for change in changes:
            incident = change(incident)
        self.book.put(incident, self.now)
        return incident

    def note(self, incident: r.Incident, text: str) -> r.Incident:
        """One more line of its story, told once."""
        if any(line.text == text for line in incident.trail):
            return incident
        return self.change(incident, lambda i: book_of.noted(i, self.at, text))

    def announce(self, incident: r.Incident) -> r.Incident:
        """List what is to be told of it outside by now."""
        return self.change(incident, lambda i: announcing.announced(i, self.settings.webhook.targets))

    def restate(self, incident: r.Incident, found: Diagnosis) -> r.Incident:
        """More nodes have told of the same meanwhile."""
        if (incident.summary, incident.culprits, incident.reasons) == (found.summary, found.culprits, found.reasons):
            return incident
        if incident.culprits != found.culprits:
            incident = self.note(incident, f"corrected: {found.summary}")
        return self.change(incident, lambda i: book_of.restated(i, found))

    def close(self, incident: r.Incident, outcome: str, text: str) -> r.Incident:
        self.folder.say("info", f"incident {incident.id} closed, {outcome}: {text}")
        elapsed = self.now - self.book.began.get(incident.id, self.now)
        at = max(self.at, self.folder.ledger.let_go_until)  # a clock that is far behind: it is entered all the same
        incident = self.change(
            incident,
            lambda i: book_of.closed(i, outcome, text, elapsed_s=elapsed, at=at),
            self.lost_time.settled,
        )
        incident = self.announce(incident)
        run = self.folder.fleet.runs.get(incident.run_uid)
        self.folder.memory.closed(incident, run.clocks.typical_step_s() if run is not None else None)
        return incident
