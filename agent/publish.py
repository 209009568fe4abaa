"""What leaves the node: beats on an absolute schedule, state on change, observations at once.

Nothing here judges. Losing the store costs beats, never observations, and never the agent.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from rankpulse.agent import claim
from rankpulse.agent.claim import Held, Me, NameTaken
from rankpulse.agent.clock import Clock
from rankpulse.agent.log import Log
from rankpulse.agent.outbox import Entry, Outbox
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import Beat, NodeHealth, NodeState
from rankpulse.store.api import Guard, Lease, LeaseLost, Put, Store, StoreError, Uncertain

STATE_EVERY_S: Final = 15.0
_BACKOFF_S: Final = (0.1, 2.0)


@dataclass(slots=True)
class Figures:
    """Counts since the start. `acknowledged_at`: monotonic seconds of the last beat that the store has, or None."""

    beats: int = 0
    failures: int = 0
    acknowledged_at: float | None = None


class Health(Protocol):
    """What the node's hardware tells."""

    def due(self, now: float, inc: int) -> bool: ...

    def record(self, inc: int, at: float) -> NodeHealth: ...

    def written(self, record: NodeHealth, now: float) -> None: ...


@dataclass(slots=True)
class Publisher:
    """One per agent. `make_beat(inc, seq, at)` and `make_state(inc, at)` are asked anew for each write; `health` is
    asked with every beat whether it has something to tell."""

    store: Store
    keys: Keys
    me: Me
    interval_s: float
    clock: Clock
    rng: random.Random
    log: Log
    outbox: Outbox
    make_beat: Callable[[int, int, float], Beat]
    make_state: Callable[[int, float], NodeState]
    health: Health | None = None
    figures: Figures = field(default_factory=Figures)
    held: Held | None = None
    _lease: Lease | None = None
    _renewed_at: float = 0.0
    _seq: int = 0
    _state: NodeState | None = None
    _state_at: float = 0.0
    _failing: dict[str, set[str]] = field(default_factory=lambda: {"beats": set(), "observations": set()})

    @property
    def inc(self) -> int:
        return self.held.inc if self.held else 0

    @property
    def seq(self) -> int:
        """Of the beat made last, 0 before the first of this incarnation."""
        return self._seq

    @property
    def connected(self) -> bool:
        """The name is claimed and the last beat arrived."""
        return self.held is not None and not self._failing["beats"]

    async def run(self) -> None:
        """Until cancelled. Raises `NameTaken`."""
        await self._until_claimed()
        taken: list[BaseException] = []
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._beat_for_ever())
                tasks.create_task(self._send_for_ever())
        except* NameTaken as group:
            taken += group.exceptions
        if taken:
            raise taken[0]

    async def farewell(self) -> None:
        """What still waits, then a last beat. The caller bounds the time."""
        if self.held is None:
            return
        while entry := self.outbox.head():
            await self._send(entry)
        await self._beat()

    # -- the claim ----------------------------------------------------------------------------------------------
    async def _until_claimed(self) -> None:
        attempt = 0
        while self.held is None:
            try:
                await self._claim()
            except StoreError as error:
                self._bad("beats", error)
                await self._pause(attempt)
                attempt += 1

    async def _claim(self) -> None:
        floor = max(self.outbox.last_inc(), self.inc)
        held = await claim.take(
            self.store,
            self.keys,
            self.me,
            floor=floor,
            interval_s=self.interval_s,
            utc=self.clock.utc(),
            warn=lambda text: self.log.change(text, "warning", text),
        )
        self._hold(held)

    def _hold(self, held: Held) -> None:
        if held.inc != self.inc:
            self.outbox.remember_inc(held.inc)
            self.outbox.number(held.inc)
            self._seq, self._state = 0, None
            self.log.say("info", f"speaks for node {self.me.node}, incarnation {held.inc}")
        self.held = held
        self._good("beats")

    async def _check_claim(self) -> None:
        """A fenced write was refused: see whose the name is."""
        held = await claim.check(self.store, self.keys, self.me)
        if held is not None:
            self._hold(held)
        else:
            self.log.say("warning", "the claim of this node's name is gone from the store (emptied?): claiming anew")
            await self._claim()

    # -- beats and state ----------------------------------------------------------------------------------------
    async def _beat_for_ever(self) -> None:
        due = self.clock.monotonic()
        while True:
            await asyncio.sleep(max(0.0, due - self.clock.monotonic()))
            try:
                await self._beat()
                await self._state_if_changed()
                await self._health_if_due()
                await self._renew()
                self._good("beats")
            except StoreError as error:
                self.figures.failures += 1
                self._bad("beats", error)
            due = next_due(due, self.clock.monotonic(), self.interval_s)

    async def _beat(self) -> None:
        assert self.held is not None
        for _ in range(2):
            lease = await self._granted()
            self._seq += 1
            beat = self.make_beat(self.held.inc, self._seq, self.clock.utc())
            try:
                done = await self._fenced(Put(self.keys.beat(self.me.node), codec.encode(beat), lease=lease.id))
            except LeaseLost:
                self._lease = None
                continue
            if done:
                self.figures.beats += 1
                self.figures.acknowledged_at = self.clock.monotonic()
                return
        raise Uncertain("the store did not take the beat: its lease or the node's claim changed under way")

    async def _state_if_changed(self) -> None:
        assert self.held is not None
        now = self.clock.monotonic()
        if self._state is not None and now - self._state_at < STATE_EVERY_S:
            return
        state = self.make_state(self.held.inc, self.clock.utc())
        if self._state is not None and msgspec.structs.replace(state, at=self._state.at) == self._state:
            return
        if await self._fenced(Put(self.keys.state(self.me.node), codec.encode(state))):
            self._state, self._state_at = state, now

    async def _health_if_due(self) -> None:
        assert self.held is not None
        now = self.clock.monotonic()
        if self.health is None or not self.health.due(now, self.held.inc):
            return
        record = self.health.record(self.held.inc, self.clock.utc())
        if await self._fenced(Put(self.keys.health(self.me.node), codec.encode(record))):
            self.health.written(record, now)

    async def _fenced(self, put: Put) -> bool:
        """Write if the name is still ours; else find out whose it is."""
        assert self.held is not None
        outcome = await self.store.txn([Guard(self.keys.claim(self.me.node), self.held.revision)], [put])
        if not outcome.done:
            await self._check_claim()
        return outcome.done

    async def _granted(self) -> Lease:
        """The lease only collects garbage: its end is never a verdict."""
        if self._lease is None:
            self._lease = await self.store.grant(max(30.0, 10 * self.interval_s))
            self._renewed_at = self.clock.monotonic()
        return self._lease

    async def _renew(self) -> None:
        now = self.clock.monotonic()
        if self._lease is None or now - self._renewed_at < self._lease.ttl_s / 3:
            return
        try:
            await self.store.keep_alive(self._lease)
            self._renewed_at = now
        except LeaseLost:
            self._lease = None  # the next beat takes a new one

    # -- observations -------------------------------------------------------------------------------------------
    async def _send_for_ever(self) -> None:
        attempt = 0
        while True:
            entry = self.outbox.head()
            if entry is None:
                await self.outbox.arrived()
                continue
            try:
                await self._send(entry)
                self._good("observations")
                attempt = 0
            except StoreError as error:
                self._bad("observations", error)
                await self._pause(attempt)
                attempt += 1

    async def _send(self, entry: Entry) -> None:
        """Create once: a key that exists is this same observation, written by an attempt that seemed to fail."""
        obs = entry.obs
        key = self.keys.obs(obs.node, obs.inc, obs.seq)
        try:
            await self.store.txn([Guard(key, 0)], [Put(key, codec.encode(obs))])
        except Uncertain:
            if await self.store.get(key) is None:
                raise
        self.outbox.done(entry)

    # -- how the store does -------------------------------------------------------------------------------------
    async def _pause(self, attempt: int) -> None:
        low, high = _BACKOFF_S
        await asyncio.sleep(min(high, low * 2 ** min(attempt, 10)) * self.rng.uniform(0.5, 1.0))

    def _good(self, what: str) -> None:
        if self._failing[what]:
            self._failing[what].clear()
            self.log.say("info", f"{what}: the store takes them again")

    def _bad(self, what: str, error: StoreError) -> None:
        """Each kind of trouble is said once per outage, not at each attempt."""
        kind = type(error).__name__
        if kind not in self._failing[what]:
            self._failing[what].add(kind)
            self.log.say("warning", f"{what}: {error} (workers are watched on, observations are kept)")


def next_due(due: float, now: float, interval_s: float) -> float:
    """When the next beat is due on the absolute schedule; of those that were missed only the latest is made up for."""
    following = due + interval_s
    missed = int((now - following) / interval_s)
    return following + missed * interval_s if missed > 0 else following
