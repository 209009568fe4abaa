"""The engine: events in, actions out. `step` folds, `tick` decides, `snapshot` shows. Deterministic.

Only records change what is believed, and only `tick` decides, so a new leader that folds the same store comes to the
same conclusions. Decisions are desired records; a tick emits those that the store does not have yet, in an order that
lets it stop anywhere: an observation is erased only after the record that cites it.
"""

from collections.abc import Callable
from typing import Any

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.desk import Wanted
from rankpulse.core.fold import Folder
from rankpulse.core.incidents import Book
from rankpulse.core.judge import Judge
from rankpulse.core.keys import Keys
from rankpulse.core.settings import Settings
from rankpulse.core.show import snapshot
from rankpulse.core.sight import Sight
from rankpulse.core.topology import Topology

SAID_MAX = 2000
_OURS = frozenset(  # what a leader writes
    {
        r.Incident, r.Roster, r.RunState, r.CheckpointState, r.RunLearned, r.FleetLearned, r.Order, r.Gate, r.Cordon,
        r.RunAdvice, r.SaveNow, r.Outgoing, r.Breaker, r.Maintenance, r.Spent, r.Finding,
        r.LedgerOrigin, r.LedgerEntry, r.LedgerDay, r.LedgerPast,
    }
)  # fmt: skip
# The breaker before all: who finds an incident must not act on what it has stopped. What evidence came to before the
# incident that rests on it. Then incidents: who finds the end of a run in the store does not look for what ended it.
_FIRST: dict[type, int] = {r.Breaker: 0, r.Finding: 1, r.Incident: 2}


class Engine:
    """See the module. Not thread-safe; one owner."""

    def __init__(self, settings: Settings, keys: Keys, topology: Topology | None = None) -> None:
        self.settings = settings
        self.keys = keys
        self.sight = Sight(settings.detect)
        self.book = Book()
        self.folder = Folder(settings, keys, self.book, topology or Topology())
        self.judge = Judge(settings, keys, self.folder, self.book)
        self.epoch: int | None = None
        self._desired: dict[str, Wanted] = {}
        self._stored: dict[str, r.Record] = {}
        self._sent: dict[str, r.Record] = {}
        self._lines: list[ev.Say] = []
        self._blind_said = self.sight.reason
        self._new_term = False
        self._handlers: dict[type, Callable[[Any], None]] = {
            ev.Seen: self._seen,
            ev.Gone: self._gone,
            ev.Garbled: self._garbled,
            ev.Relisted: self._relisted,
            ev.SightLost: self._sight_lost,
            ev.SightBack: self._sight_back,
            ev.CanarySeen: lambda event: self.sight.canary(event.received_at),
            ev.TookOffice: self._took_office,
            ev.LeftOffice: self._left_office,
            ev.Probed: self.folder.probed,
            ev.Posted: self.folder.outbox.answered,
            ev.Told: self.folder.dossiers.told,
            ev.Diagnosed: self.folder.diagnoses.told,
        }

    def step(self, event: ev.Event) -> None:
        """Fold one event. A record that cannot be folded is skipped and said: it must not stop every monitor."""
        try:
            self._handlers[type(event)](event)
        except Exception as error:
            if not isinstance(event, ev.Seen):
                raise
            self.folder.refused += 1
            self._say("error", f"record at {event.key} could not be folded, it is skipped: {error!r:.200}")

    def tick(self, now: float, at: float) -> tuple[ev.Action, ...]:
        """Decide. Call it after the backlog has been folded. `now` monotonic seconds, `at` UTC seconds."""
        was_asleep_s = self.sight.slept_s(now)
        grace = self.sight.tick(now)
        self._say_sight(now, was_asleep_s)
        if grace is not None:
            self.folder.renew_deadlines(now, grace)
        self._count(now, at)
        lines, self._lines = self._lines, []
        if self.epoch is None:
            return tuple(lines)
        # what is created once must be wanted at this very tick: its reason may have passed
        self._desired = {key: wanted for key, wanted in self._desired.items() if not wanted.once}
        for wanted in self.judge.judge(now, at, self.epoch, self.sight):
            self._desired[wanted.key] = wanted
        for key in self.judge.unwanted():
            self._desired.pop(key, None)
        missing = [wanted for wanted in list(self._desired.values()) if self._missing(wanted)]
        missing.sort(key=lambda wanted: _FIRST.get(type(wanted.record), len(_FIRST)))
        writes = [self._action(wanted) for wanted in missing]
        looks, posts = self.judge.looks(self.sight), self.judge.posts()
        questions: tuple[ev.Action, ...] = (*self.folder.dossiers.take_due(), *self.folder.diagnoses.take_due())
        erasures = [ev.Erase(key, "folded") for key in self.folder.take_folded()]
        return (*lines, *self.folder.take_lines(), *writes, *erasures, *looks, *questions, *posts)

    def _count(self, now: float, at: float) -> None:
        """Every monitor counts what it sees; the leader says it."""
        exposure = self.folder.exposure
        if self._new_term and self.epoch is not None:
            self._new_term = False
            exposure.took_office(now, at)
        exposure.sample(
            self.folder.fleet,
            now,
            at,
            seeing=not self.sight.blind(now),
            saved=self.folder.checkpoints.of,
            slow=self.judge.stragglers.told,
        )

    def _missing(self, wanted: Wanted) -> bool:
        """Whether the store lacks this record, as far as it has been seen or sent."""
        if self._stored.get(wanted.key) == wanted.record or (wanted.once and wanted.key in self._stored):
            del self._desired[wanted.key]
            return False
        return self._sent.get(wanted.key) != wanted.record

    def _action(self, wanted: Wanted) -> ev.Action:
        self._sent[wanted.key] = wanted.record
        kind = ev.Create if wanted.once else ev.Write
        return kind(wanted.key, wanted.record, wanted.reason)

    def snapshot(self, now: float) -> dict[str, Any]:
        """What is believed, as plain JSON values. Changes nothing."""
        return snapshot(self, now)

    def _seen(self, event: ev.Seen) -> None:
        if type(event.record) in _OURS:
            self._stored[event.key] = event.record
            if self._sent.get(event.key) != event.record:  # a write that nobody waited for any more may come after it
                self._sent.pop(event.key, None)
        self.folder.seen(event, self.epoch is not None)

    def _gone(self, event: ev.Gone) -> None:
        self._stored.pop(event.key, None)
        self._sent.pop(event.key, None)
        self.folder.gone(event)

    def _garbled(self, event: ev.Garbled) -> None:
        self.folder.refused += 1
        self._say("warning", f"record at {event.key} refused: {event.reason}")

    def _relisted(self, event: ev.Relisted) -> None:
        self._stored.clear()
        self._sent.clear()
        self.folder.relisted(event.received_at)

    def _say_sight(self, now: float, asleep_s: float) -> None:
        """A blind watcher must not look healthy: say it when sight changes."""
        if asleep_s > self.settings.detect.observer_gap_s:
            self._say("warning", f"this monitor itself did not run for {asleep_s:.1f} s; every deadline starts anew")
        why = self.sight.why_blind(now)
        if why != self._blind_said:
            self._blind_said = why
            self._say("warning" if why else "info", f"blind: {why}; silence means nothing" if why else "sight is good")

    def _sight_lost(self, event: ev.SightLost) -> None:
        self.sight.lost(event.reason, event.received_at)

    def _sight_back(self, event: ev.SightBack) -> None:
        self.sight.back(event.received_at)

    def _took_office(self, event: ev.TookOffice) -> None:
        self.epoch, self._new_term = event.epoch, True
        self._sent.clear()
        self.folder.took_office()
        self.sight.restart(event.received_at)
        self._say("info", f"leading, epoch {event.epoch}; every deadline starts anew")

    def _left_office(self, event: ev.LeftOffice) -> None:
        if self.epoch is not None:
            self._say("warning", f"no longer leading: {event.reason}")
        self.epoch = None
        self._desired.clear()
        self.folder.left_office()

    def _say(self, level: str, text: str) -> None:
        if len(self._lines) < SAID_MAX:
            self._lines.append(ev.Say(level, text))
