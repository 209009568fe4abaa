"""Folding what jobs say of their checkpoints. What is believed of a run is its stored state and the news since.

News are observations that the stored state does not count yet. Nothing else is remembered, so a new leader that reads
the store believes the same; an observation is erased once a state that counts it stands in the store.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from rankpulse.core import checkpoints
from rankpulse.core.records import CheckpointState, Observation, Order


class News(NamedTuple):
    obs: Observation
    round: int


class Ages(NamedTuple):
    """Seconds since the newest checkpoint was saved or loaded, since one was verified, since one was complete at a
    place that outlives the nodes; None: there was none."""

    newest_s: float | None
    verified_s: float | None
    durable_s: float | None = None


@dataclass
class _Mark:
    """When a count was last seen to grow, by the observer's clock. `at` in a record is another machine's."""

    count: int = 0
    seen_at: float = 0.0

    def see(self, count: int, now: float) -> None:
        if count != self.count:
            self.count, self.seen_at = count, now

    def age_s(self, now: float) -> float | None:
        return max(now - self.seen_at, 0.0) if self.count else None


@dataclass
class _Told:
    """Of one run."""

    stored: CheckpointState | None = None
    news: dict[str, News] = field(default_factory=dict)  # by key, in the order in which they came
    orders: dict[int, Order] = field(default_factory=dict)  # restarts with a limit
    now: CheckpointState | None = None  # what follows from these; None: nothing
    newest: _Mark = field(default_factory=_Mark)
    verified: _Mark = field(default_factory=_Mark)
    durable: _Mark = field(default_factory=_Mark)


class CheckpointFolder:
    """By run_uid. `take_done` hands out the observations that may be erased."""

    def __init__(self) -> None:
        self._runs: dict[str, _Told] = {}
        self._where: dict[str, str] = {}  # key of news -> run_uid
        self._done: list[str] = []

    def of(self, run_uid: str) -> CheckpointState | None:
        """What is believed; None where nothing was ever said."""
        told = self._runs.get(run_uid)
        return told.now if told is not None else None

    def ages(self, run_uid: str, now: float) -> Ages:
        """As this observer has seen it: after a start it counts from what it then found, so the truth is no less."""
        told = self._runs.get(run_uid)
        if told is None:
            return Ages(None, None)
        return Ages(told.newest.age_s(now), told.verified.age_s(now), told.durable.age_s(now))

    def unwritten(self) -> Iterator[CheckpointState]:
        """What the store should hold and does not."""
        for told in self._runs.values():
            if told.now is not None and told.now != told.stored:
                yield told.now

    def heard(self, run_uid: str, key: str, obs: Observation, round_: int, now: float) -> None:
        """An observation `checkpoint` of a process of this run and round."""
        told = self._runs.setdefault(run_uid, _Told())
        if told.stored is not None and checkpoints.counted(told.stored, obs):
            self._done.append(key)
            return
        told.news[key], self._where[key] = News(obs, round_), run_uid
        self._add_up(run_uid, told, now)

    def ordered(self, order: Order, now: float) -> None:
        """A restart order; its limit, if it has one, stands until it was obeyed."""
        if order.resume_before_step >= 0:
            told = self._runs.setdefault(order.run_uid, _Told())
            told.orders[order.round] = order
            self._add_up(order.run_uid, told, now)

    def stored(self, state: CheckpointState, now: float) -> None:
        """The state as the store has it."""
        told = self._runs.setdefault(state.run_uid, _Told())
        told.stored = state
        for key, news in list(told.news.items()):
            if checkpoints.counted(state, news.obs):
                del told.news[key]
                self._where.pop(key, None)
                self._done.append(key)
        self._add_up(state.run_uid, told, now)

    def gone(self, key: str) -> None:
        """An observation was erased."""
        told = self._runs.get(self._where.pop(key, ""))
        if told is not None:
            told.news.pop(key, None)

    def moved(self, old: str, new: str, now: float) -> None:
        """The run called `old` turned out to be part of another."""
        told = self._runs.pop(old, None)
        if told is not None:
            into = self._runs.setdefault(new, _Told())
            into.news.update(told.news)
            self._where.update(dict.fromkeys(told.news, new))
            self._add_up(new, into, now)

    def lost(self, run_uid: str, now: float) -> None:
        """Its state was deleted from the store."""
        told = self._runs.get(run_uid)
        if told is not None:
            told.stored = None
            self._add_up(run_uid, told, now)

    def drop(self, run_uid: str) -> None:
        """Forget a run."""
        told = self._runs.pop(run_uid, None)
        for key in told.news if told is not None else ():
            self._where.pop(key, None)
            self._done.append(key)

    def relisted(self) -> None:
        """The listing tells it again. When a count was last seen to grow is kept: that is this observer's own."""
        self._done.clear()
        self._where.clear()
        for told in self._runs.values():
            told.stored, told.now = None, None
            told.news.clear()
            told.orders.clear()

    def take_done(self) -> list[str]:
        done, self._done = self._done, []
        return done

    def _add_up(self, run_uid: str, told: _Told, now: float) -> None:
        state = told.stored or CheckpointState(run_uid=run_uid)
        for _, order in sorted(told.orders.items()):
            state = checkpoints.limited(state, order)
        for news in told.news.values():
            state = checkpoints.told(state, news.obs, news.round)
        told.now = state if told.news or told.stored or state.resume_before_round else None
        told.newest.see(state.saves + state.loads, now)
        told.verified.see(state.verifications, now)
        told.durable.see(state.uploads, now)
