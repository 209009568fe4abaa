"""What the monitor knows about itself: counters and the latest readings, read by metrics and pages."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from rankpulse.core.incidents import CLOSED, RECOVERED
from rankpulse.core.records import EVIDENCE, Gate, Incident, Observation, Order, Record, RunState
from rankpulse.monitor.tallies import FAST_S, SLOW_S, Histogram
from rankpulse.store.api import StoreStatus

COUNTED_MAX = 10_000  # keys remembered, so that a listing that repeats them counts nothing twice


class Mark(NamedTuple):
    """What was last seen of an incident, of that which is counted."""

    restarts: int = 0
    closed: bool = False
    detect_s: float | None = None
    recover_s: float | None = None


@dataclass(slots=True)
class Vitals:
    """Written by the loop and the upkeep, read by HTTP; all in one event loop, so no locks."""

    events: Counter[str] = field(default_factory=Counter)  # by kind of record
    actions: Counter[tuple[str, str]] = field(default_factory=Counter)  # by (kind, result)
    refused: int = 0
    http_refused: Mapping[str, int] = field(default_factory=dict)  # requests at our HTTP port, by reason
    acts: Mapping[tuple[str, str], int] = field(default_factory=dict)  # asked for there, by (act, result)
    metrics_missing: int = 0  # that could not be made when they were asked for last
    loop_lag_s: float = 0.0
    last_turn: float | None = None  # monotonic
    listed: bool = False  # the store's content was seen at least once
    sight_lost: str = ""  # why the store cannot be seen; "" while it can
    engine_failure: str = ""  # why decisions cannot be taken at all; "" while they can
    store: StoreStatus | None = None
    quota_bytes: int = 0  # of the store, told or configured
    store_at: float | None = None  # when it told that, monotonic
    store_error: str = ""
    store_write_s: Histogram = field(default_factory=lambda: Histogram(FAST_S))  # the own key, acknowledged
    tick_s: Histogram = field(default_factory=lambda: Histogram(FAST_S))  # folding and deciding, by turn
    beat_delay_s: Histogram = field(default_factory=lambda: Histogram(FAST_S))  # made to folded, by two clocks
    incidents: Counter[str] = field(default_factory=Counter)  # by class, opened since the first listing
    restarts: Counter[str] = field(default_factory=Counter)  # by whom: "torchelastic" or "order", since then
    outcomes: dict[str, str] = field(default_factory=dict)  # run -> its outcome when last seen
    known: dict[str, Mark] = field(default_factory=dict)  # incident -> what was counted of it
    closed: Counter[tuple[str, str]] = field(default_factory=Counter)  # by class and outcome, likewise
    last_words: Counter[str] = field(default_factory=Counter)  # by what came of them, of incidents that are over
    detect_s: dict[str, Histogram] = field(default_factory=dict)  # by class: time to detect of those opened
    recover_s: dict[str, Histogram] = field(default_factory=dict)  # and to recover of those that are over
    last: dict[str, str] = field(default_factory=dict)  # class -> the incident opened last
    last_restart: dict[str, str] = field(default_factory=dict)  # by whom -> the incident of it
    orders: Counter[str] = field(default_factory=Counter)  # by kind, since the first listing
    gates: Counter[str] = field(default_factory=Counter)  # by answer, since the first listing
    ended: Counter[str] = field(default_factory=Counter)  # runs by outcome, since then
    evidence: int = 0  # answers of agents, since then
    counted: dict[str, None] = field(default_factory=dict)  # keys of those
    asked: Counter[str] = field(default_factory=Counter)  # agents asked directly for evidence, by what came of it

    probes: Counter[str] = field(default_factory=Counter)  # direct looks that the engine asked for, by answer
    probe_s: float | None = None  # how long the last one took
    exports: Counter[str] = field(default_factory=Counter)  # of the ledger, by result
    ledger_missing: int = 0  # records that were exported and that the store has lost
    posts: Counter[tuple[str, str]] = field(default_factory=Counter)  # attempts to tell webhooks, by target and outcome

    def note(self, key: str, record: Record) -> None:
        """Count a record that was seen, if it is one that is counted."""
        if isinstance(record, Incident):
            self.note_incident(record)
        elif isinstance(record, RunState):
            self.note_run(record)
        elif isinstance(record, Gate) and self._is_new(key):
            self.gates["without" if record.without else "go" if record.go else "stop"] += 1
        elif isinstance(record, Order) and self._is_new(key):
            self.orders[record.kind.partition("-")[0]] += 1
        elif isinstance(record, Observation) and record.kind == EVIDENCE and self._is_new(key):
            self.evidence += 1

    def _is_new(self, key: str) -> bool:
        known = key in self.counted
        self.counted[key] = None
        if len(self.counted) > COUNTED_MAX:
            del self.counted[next(iter(self.counted))]
        return self.listed and not known

    def note_run(self, state: RunState) -> None:
        """Count its end; what the first listing shows is the past."""
        before, self.outcomes[state.run_uid] = self.outcomes.get(state.run_uid), state.outcome
        if self.listed and state.outcome not in ("running", before):
            self.ended[state.outcome] += 1

    def note_incident(self, incident: Incident) -> None:
        """Count what is new about it; what the first listing shows is the past."""
        recover_s = incident.time_to_recover_s if incident.outcome == RECOVERED else None
        now = Mark(incident.restarts, incident.state == CLOSED, incident.time_to_detect_s, recover_s)
        new, before = incident.id not in self.known, self.known.get(incident.id, Mark())
        self.known[incident.id] = now
        if not self.listed:
            return
        if new:
            self.incidents[incident.klass] += 1
            self.last[incident.klass] = incident.id
        if now.restarts > before.restarts:
            by = "order" if incident.order_id else "torchelastic"
            self.restarts[by] += now.restarts - before.restarts
            self.last_restart[by] = incident.id
        if now.closed and not before.closed:
            self.closed[incident.klass, incident.outcome] += 1
            if incident.last_words:
                self.last_words[incident.last_words] += 1
        if now.detect_s is not None and before.detect_s is None:
            self.detect_s.setdefault(incident.klass, Histogram(SLOW_S)).observe(now.detect_s, incident.id)
        if now.recover_s is not None and before.recover_s is None:
            self.recover_s.setdefault(incident.klass, Histogram(SLOW_S)).observe(now.recover_s, incident.id)
