"""The judge's desk: what its parts share during one tick, and the one way to open, change and close an incident."""

from collections.abc import Callable
from typing import NamedTuple

from rankpulse.core import incidents as book_of
from rankpulse.core import policy
from rankpulse.core import records as r
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.fleet import RoundView, RunView
from rankpulse.core.fold import Folder
from rankpulse.core.incidents import Book
from rankpulse.core.keys import Keys
from rankpulse.core.settings import Settings


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
        self._opened = 0

    def begin(self, now: float, at: float, epoch: int) -> None:
        if epoch != self.epoch:
            self._opened = 0
        self.now, self.at, self.epoch, self.wanted = now, at, epoch, []

    def want(self, key: str, record: r.Record, reason: str, *, once: bool = False) -> None:
        self.wanted.append(Wanted(key, record, reason, once))

    @property
    def armed(self) -> bool:
        return self.folder.armed is not None and self.folder.armed.armed

    def facts(self, run: RunView) -> policy.Facts:
        """What the policy needs to know about the run."""
        ordered = [number for uid, number in self.folder.orders if uid == run.uid]
        moved = [number for number, view in run.rounds.items() if view.stepped()]
        spent = len([number for number in ordered if number >= max(moved, default=0)])
        left = self.settings.policy.orders_per_run - spent
        there = any(run.launchers.values()) or not run.launchers  # one that was never seen may well be there
        return policy.Facts(run.elastic, there, self.armed, left)

    def open(
        self,
        found: Diagnosis,
        where: tuple[RunView, RoundView] | None = None,
        choice: policy.Choice | None = None,
    ) -> r.Incident:
        """Open an incident of a round, or, without one, of the fleet. `choice`: a person's, else the policy's."""
        facts, run = policy.NOBODY, ("", "", -1)
        if where is not None:
            facts, run = self.facts(where[0]), (where[0].uid, where[0].run_id, where[1].number)
        choice = choice or policy.choose(found, facts)
        self._opened += 1
        id_ = f"i{self.epoch:04d}-{self._opened:04d}"
        while self.book.get(id_) is not None:  # a store that was wiped counts epochs from one again
            self._opened += 1
            id_ = f"i{self.epoch:04d}-{self._opened:04d}"
        incident = book_of.opened(found, choice, id_=id_, run=run, now=self.now, at=self.at, epoch=self.epoch)
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

    def close(self, incident: r.Incident, outcome: str, text: str) -> r.Incident:
        self.folder.say("info", f"incident {incident.id} closed, {outcome}: {text}")
        elapsed = self.now - self.book.began.get(incident.id, self.now)
        return self.change(incident, lambda i: book_of.closed(i, outcome, text, elapsed_s=elapsed, at=self.at))
