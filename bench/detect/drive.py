"""The real engine, driven through a stretch of a day: what a monitor would be told, when, and what it would decide.

Times are seconds of the day. The shell around the engine is played as `monitor/loop.py` has it: ticks wait for the
monitor's own writes to come back, after a pause of its own for a fresh echo, and a store that is away costs it first
its canary, then its watch, then its office.
"""

import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rankpulse.bench.detect.job import TOGETHER, Job, Manner
from rankpulse.bench.detect.past import REMEMBERED_S, Past
from rankpulse.bench.detect.senders import Beats
from rankpulse.bench.detect.told import Teller, node_name, node_number
from rankpulse.bench.detect.trace import Day
from rankpulse.bench.detect.weather import Held, Looks, StorePath
from rankpulse.core import diagnosis as d
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.engine import Engine
from rankpulse.core.keys import Keys
from rankpulse.core.settings import CANARY_EVERY_S, Settings

CLOCK_S: Final = 100_000.0  # what the monitor's monotonic clock shows at the day's beginning
UTC_S: Final = 1_800_000_000.0
WATCH_DEAD_S: Final = 6.0  # a watch without a word, as in store/etcd.py and store/watch.py
FOLLOW_AGAIN_S: Final = (0.2, 2.0)  # after an outage, until the listing is there
OFFICE_LEFT_S: Final = (4.7, 8.0)  # into an outage, with a lease of 10 s
OFFICE_AGAIN_S: Final = (0.5, 3.0)  # after the listing
SAME_WRITE_S: Final = 0.05  # an agent that comes back sends its present beat, not those it missed


class Knowledge(NamedTuple):
    """What the engine is told of. What is withheld: its own sleep and the canary; racks; direct looks; steps."""

    observer: bool = True
    racks: bool = True
    looks: bool = True
    progress: bool = True


class Verdict(NamedTuple):
    """An incident was opened, or named more nodes than before."""

    at: float
    klass: str
    nodes: tuple[int, ...]
    incident: str
    summary: str


CLUSTER: Final = Keys("bench")
EVERYTHING: Final = Knowledge()


class Way(NamedTuple):
    """A way of running the engine. `least_s`: shorter silences of a node need not be driven through where the
    operating point waits longer than that (see `patrol.least`); `alarms`: the classes of incident that count as one."""

    name: str
    settings: Settings
    least_s: float
    knowledge: Knowledge = EVERYTHING
    alarms: tuple[str, ...] = (d.NODE_DEAD,)
    manner: Manner = TOGETHER


@dataclass
class Drive:
    """One day, one job, one way of running the engine over it. `store` is carried from stretch to stretch."""

    day: Day
    beats: list[Beats]  # by node
    job: Job
    way: Way
    store: dict[str, r.Record] = field(default_factory=dict)
    past: Past | None = None  # of the day; made when it is not given
    ticks: int = 0
    folded: int = 0
    watched_s: float = 0.0

    def __post_init__(self) -> None:
        self.past = self.past or Past(self.day, self.beats)

    def stretch(self, begin: float, end: float) -> Iterator[Verdict]:
        """Run a fresh engine from `begin` to `end`; verdicts as they come."""
        stretch = _Stretch(self, begin, end)
        try:
            yield from stretch.run()
        finally:
            self.watched_s += min(stretch.now, end) - begin
            self.store = {key: record for key, record in stretch.store.items() if not isinstance(record, r.Incident)}
            if stretch.engine.epoch is not None:  # a monitor that goes on writes it a little later
                self.store[CLUSTER.fleet_learned()] = stretch.engine.folder.memory.present(0.0)


class _Stretch:
    def __init__(self, drive: Drive, begin: float, end: float) -> None:
        self._drive, self._day, self._begin, self._end = drive, drive.day, begin, end
        self._settings, self._knows = drive.way.settings, drive.way.knowledge
        self.now = begin
        self.store = dict(drive.store)
        self._keys = CLUSTER
        self.engine = Engine(self._settings, self._keys)
        self._looks = Looks(drive.day, drive.job.death, self._settings.probe.timeout_s)
        self._path = StorePath(drive.day)
        self._asleep = Held(drive.day.observer)
        self._teller = Teller(drive.day.nodes, drive.job.place, progress=self._knows.progress)
        self._revision = 1000
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._gate = begin  # no tick before this moment
        self._seen: dict[str, set[int]] = {}

    # --- what is told

    def run(self) -> Iterator[Verdict]:
        arrived, made, number, node = self._slices()
        self._opening()
        count, k = len(arrived), 0
        step, seen, key = self.engine.step, ev.Seen, [self._keys.beat(node_name(n)) for n in range(self._day.nodes)]
        tell, due, ticks = self._teller.beat, self._due, 0
        while self.now < self._end:
            now = self.now
            while True:
                other = due[0][0] if due else np.inf
                if k < count and arrived[k] <= now and arrived[k] <= other:
                    self._revision += 1
                    n = node[k]
                    step(seen(key[n], tell(n, made[k], number[k]), self._revision, CLOCK_S + arrived[k]))
                    k += 1
                elif other <= now:
                    heapq.heappop(due)[2]()
                else:
                    break
            if now >= self._gate:
                ticks += 1
                yield from self._act(self.engine.tick(CLOCK_S + now, UTC_S + now), now)
            self.now = self._next(now)
        self._drive.ticks += ticks
        self._drive.folded += k

    def _slices(self) -> tuple[list[float], list[float], list[int], list[int]]:
        """All beats of the stretch in order of arrival: arrived, made, number, node."""
        parts = []
        death = self._drive.job.death
        for n, beats in enumerate(self._drive.beats):
            mine = beats.until(death.at) if death is not None and n in death.nodes else beats
            low, high = np.searchsorted(mine.arrived, (self._begin, self._end))
            arrived = mine.arrived[low:high]
            last = np.append(np.diff(arrived) > SAME_WRITE_S, True)[: len(arrived)]
            rows = (arrived[last], mine.made[low:high][last], mine.number[low:high][last])
            parts.append(np.stack([*rows, np.full(int(last.sum()), float(n))]))
        table = np.concatenate(parts, axis=1)
        table = table[:, np.argsort(table[0], kind="stable")]
        return (
            table[0].tolist(),
            table[1].tolist(),
            table[2].astype(np.int64).tolist(),
            table[3].astype(np.int64).tolist(),
        )

    def _opening(self) -> None:
        """A monitor that begins: it lists what the store has, sees, and takes office."""
        for n in range(self._day.nodes):
            name = node_name(n)
            self.store[self._keys.state(name)] = self._teller.state(n, self._knows.racks, self._knows.looks)
        early, now = CLOCK_S + self._begin - REMEMBERED_S, CLOCK_S + self._begin
        for event in (ev.SightBack(early), *self._listing(early), *self._remembered()):
            self.engine.step(event)
        for event in (ev.TookOffice(1, now), ev.CanarySeen(now)):
            self.engine.step(event)
        if not self._knows.observer:
            return
        self._sing(self._begin + self._day.rng("canary").uniform(0.0, CANARY_EVERY_S))
        for start, end in self._day.store.pairs():
            if end > self._begin and start < self._end and end - start > WATCH_DEAD_S:
                self._outage(start, end)

    def _remembered(self) -> Iterator[ev.Event]:
        """Beats without ranks, from before: deadlines remember them."""
        assert self._drive.past is not None
        for told in self._drive.past.before(self._begin):
            beat = r.Beat(node=node_name(told.node), inc=told.inc, seq=told.number + 1, at=told.arrived)
            yield ev.Seen(self._keys.beat(beat.node), beat, self._revision, CLOCK_S + told.arrived)

    def _listing(self, now: float) -> list[ev.Event]:
        rows: list[ev.Event] = [ev.Relisted(self._revision, now)]
        for key, record in self.store.items():
            rows.append(ev.Seen(key, record, self._revision, now))
        return rows

    def _at(self, moment: float, do: Callable[[], None]) -> None:
        heapq.heappush(self._due, (moment, next(self._order), do))

    def _tell(self, event: ev.Event) -> None:
        """At the moment at which it is received."""
        self._at(event.received_at - CLOCK_S, lambda: self.engine.step(event))

    # --- the shell around the engine

    def _next(self, now: float) -> float:
        """The next tick. All lie on one grid, but for those with which a pause ends: so stretches and whole days, which
        begin elsewhere, decide at the same moments."""
        every_s = self._settings.monitor.tick_interval_s
        following = (math.floor(now / every_s + 1e-6) + 1) * every_s
        if not self._knows.observer:
            self._tell(ev.CanarySeen(CLOCK_S + following))
            return following
        woken = self._asleep.until(following)
        if woken - following > self._settings.detect.observer_gap_s:
            self._wait_for_echo(woken)
        return woken

    def _wait_for_echo(self, at: float) -> None:
        """As after a sleep: decide nothing before a fresh write came back, or was given up."""
        done = self._path.written(at)
        limit = self._settings.detect.observer_gap_s
        self._gate = max(self._gate, min(done, at + limit))
        if done <= at + limit:
            self._tell(ev.CanarySeen(CLOCK_S + self._asleep.until(done)))

    def _sing(self, at: float) -> None:
        """The canary: once a second, from one answer to the next."""
        timeout_s = self._settings.store.timeout_s
        while at < self._end:
            at = self._asleep.until(at)
            done = self._path.written(at)
            if done <= at + timeout_s:
                heard = self._asleep.until(done)
                self._tell(ev.CanarySeen(CLOCK_S + heard))
                at = heard + CANARY_EVERY_S
            else:
                at += timeout_s + CANARY_EVERY_S

    def _outage(self, start: float, end: float) -> None:
        """The watch falls silent and is given up; the lease cannot be renewed; then all of it comes back."""
        rng = self._day.rng("outage", start)
        lost, back = start + WATCH_DEAD_S, end + rng.uniform(*FOLLOW_AGAIN_S)
        lost, back = self._asleep.until(lost), self._asleep.until(back)
        self._tell(ev.SightLost("the watch fell silent", CLOCK_S + lost))
        self._at(back, lambda: self._regain(back))
        left = self._asleep.until(start + rng.uniform(*OFFICE_LEFT_S))
        if left < end:
            self._tell(ev.LeftOffice("the lease could not be renewed", CLOCK_S + left))
            took = self._asleep.until(back + rng.uniform(*OFFICE_AGAIN_S))
            self._at(took, lambda: self._take_office(took))

    def _regain(self, now: float) -> None:
        for event in (ev.SightBack(CLOCK_S + now), *self._listing(CLOCK_S + now)):
            self.engine.step(event)
        self._wait_for_echo(now)

    def _take_office(self, now: float) -> None:
        self.engine.step(ev.TookOffice(2, CLOCK_S + now))
        self._wait_for_echo(now)

    # --- what is decided

    def _act(self, actions: tuple[ev.Action, ...], now: float) -> Iterator[Verdict]:
        writes = 0
        for action in actions:
            if isinstance(action, ev.Probe):
                self._look(action, now)
            elif isinstance(action, ev.Write | ev.Create):
                writes += 1
                self._store(action.key, action.record, now)
                if isinstance(action.record, r.Incident):
                    yield from self._verdict(action.record, now)
            elif isinstance(action, ev.Erase):
                self.store.pop(action.key, None)
        if writes and self._knows.observer:
            self._gate = max(self._gate, min(self._path.down.until(now), now + self._settings.detect.canary_late_s))

    def _store(self, key: str, record: r.Record, now: float) -> None:
        self._revision += 1
        self.store[key] = record
        done = self._path.written(now) if self._knows.observer else now
        self._tell(ev.Seen(key, record, self._revision, CLOCK_S + self._asleep.until(done)))

    def _verdict(self, incident: r.Incident, now: float) -> Iterator[Verdict]:
        if incident.state != "open":
            return
        known = self._seen.setdefault(f"{incident.id} {incident.klass}", set())
        nodes = {node_number(name) for name in incident.nodes}
        if not known or nodes - known:
            known |= nodes | {-1}
            yield Verdict(now, incident.klass, tuple(sorted(nodes)), incident.id, incident.summary)

    def _look(self, probe: ev.Probe, now: float) -> None:
        n = node_number(probe.node)
        if not probe.address or not self._knows.looks:
            self._tell(ev.Probed(probe.node, probe.number, ev.UNABLE, None, "no address", CLOCK_S + now))
            return
        seen = self._looks.look(n, now)
        beat = None
        if seen.answer == ev.ANSWERED:
            beat = self._teller.beat(n, seen.said_at, int(seen.said_at - self._drive.beats[n].offset))
        self._tell(ev.Probed(probe.node, probe.number, seen.answer, beat, "", CLOCK_S + seen.at))
