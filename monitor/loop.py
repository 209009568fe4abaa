"""The monitor's loop: drain the watch, tick the engine, carry out what it decided.

Order matters more than speed. The engine ticks only after the backlog of the watch was folded, and never while it
waits to see its own last writes come back: so it decides on the present, and decides nothing twice.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, Final, Protocol, TypeAlias

from rankpulse.core.events import (
    Action,
    Diagnosed,
    Event,
    Garbled,
    Gone,
    LeftOffice,
    Posted,
    Probed,
    Seen,
    SightBack,
    Told,
    TookOffice,
)
from rankpulse.core.keys import Keys
from rankpulse.core.records import Beat, NodeState
from rankpulse.core.settings import Settings
from rankpulse.monitor.canary import Canary
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.election import Election
from rankpulse.monitor.executor import DONE, FAILED, Executor, Verdict, say
from rankpulse.monitor.prober import Prober
from rankpulse.monitor.translate import Translator, leader_sights
from rankpulse.monitor.vitals import Vitals
from rankpulse.monitor.webhook import Postman
from rankpulse.store.api import Changes, Listing, Lost, Sight, Store, StoreError

REOPEN_S: Final = 2.0  # between attempts to follow when the store forbids it
BACKOFF_S: Final = (0.5, 1.0, 2.0, 5.0)  # before a new listing when batch after batch fails
Heard: TypeAlias = Probed | Posted | Told | Diagnosed  # what comes past the store
log = logging.getLogger("rankpulse.monitor")


class Helper(Protocol):
    """Carries out actions that are no writes, and tells what comes of them."""

    def send(self, actions: Iterable[Action]) -> None: ...

    async def close(self) -> None: ...


class EngineLike(Protocol):
    """What the loop needs of the engine."""

    def step(self, event: Event) -> None: ...

    def tick(self, now: float, at: float) -> tuple[Action, ...]: ...

    def snapshot(self, now: float) -> dict[str, Any]: ...


class Loop:
    """One monitor. `run` is for ever; `turn` is one pass of it, which tests call by hand."""

    def __init__(
        self,
        engine: EngineLike,
        store: Store,
        keys: Keys,
        settings: Settings,
        *,
        election: Election,
        executor: Executor,
        canary: Canary,
        translator: Translator,
        clock: Clock,
        vitals: Vitals,
        prober: Prober | None = None,
        postman: Postman | None = None,
        helpers: Iterable[Helper] = (),
    ) -> None:
        """`prober`: looks at agents directly; `postman`: tells webhooks. None: nobody does.

        `helpers`: ask agents for evidence, and diagnose what is large.
        """
        self.engine, self.vitals, self._prober, self._postman = engine, vitals, prober, postman
        self._helpers = tuple(helpers)
        self._store, self._keys, self._settings, self._clock = store, keys, settings, clock
        self._election, self._executor, self._canary, self._translator = election, executor, canary, translator
        self._queue: asyncio.Queue[tuple[Sight | Heard, float]] = asyncio.Queue()
        self._reader: asyncio.Task[None] | None = None
        self._folded = 0  # everything up to this revision is in the engine
        self._gate = 0  # no decision before this revision is folded
        self._relisting = True  # no decision before a listing is folded
        self._held_since: float | None = None
        self._failures = 0
        self._anew = False  # sight is back or office was taken: every deadline starts anew, from a fresh echo
        self.office = 0  # epoch that the engine was told, 0: none

    async def run(self) -> None:
        """Turn every tick interval; for ever."""
        self.follow_anew()
        due = self._clock.now()
        try:
            while True:
                await asyncio.sleep(max(0.0, due - self._clock.now()))
                self.vitals.loop_lag_s = max(0.0, self._clock.now() - due)
                if self.vitals.loop_lag_s > self._settings.detect.observer_gap_s:
                    await self._wait_for_own_echo()
                await self.turn()
                due = self._clock.now() + self._settings.monitor.tick_interval_s
        finally:
            await self.close()

    async def close(self) -> None:
        """Stop following, looking and telling."""
        if self._prober is not None:
            await self._prober.close()
        if self._postman is not None:
            await self._postman.close()
        for helper in self._helpers:
            await helper.close()
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.wait([self._reader], timeout=2.0)

    async def turn(self) -> None:
        """Fold what came, then decide and act if we see clearly enough."""
        began = self._clock.now()
        self._drain()
        self._office_news()
        folded = self._clock.now()
        if self._anew:
            self._anew = False
            await self._wait_for_own_echo()
        now = self._clock.now()
        self.vitals.last_turn = now
        if not self._may_decide(now):
            return
        waited_s = now - folded
        actions = self._decide(now)
        self.vitals.tick_s.observe(self._clock.now() - began - waited_s)
        self._look(actions)
        if self.office and not self._translator.lost:
            self._digest(await self._executor.run(actions))
        else:
            say(actions)

    def _decide(self, now: float) -> tuple[Action, ...]:
        """The engine's decisions. One that cannot be taken is none: fail safe, say it loudly, and stay up to say it."""
        try:
            actions = self.engine.tick(now, self._clock.utc())
        except Exception as error:
            if self.vitals.engine_failure != repr(error):
                self.vitals.engine_failure = repr(error)
                log.exception("this monitor cannot decide and does not act: a bug in rankpulse, please report it")
            return ()
        self.vitals.engine_failure = ""
        return actions

    def hear(self, answer: Heard) -> None:
        """What came of a look, a question, a diagnosis, of telling a webhook: folded in its turn among the watch."""
        self._queue.put_nowait((answer, answer.received_at))

    def _look(self, actions: Iterable[Action]) -> None:
        """Looks are no writes: they begin before those, whatever becomes of them. A standby disturbs nobody.

        Nor is telling a webhook: what it is told stands in the store already.
        """
        if self._prober is not None and self.office:
            self._prober.send(actions)
            self._prober.rehearse()
        if self._postman is not None and self.office:
            self._postman.send(actions)
        for helper in self._helpers if self.office else ():
            helper.send(actions)

    def follow_anew(self) -> None:
        """Begin with a listing: what was known of the store's content is replaced, and nothing decided before."""
        if self._reader is not None:
            self._reader.cancel()
        old, self._queue = self._queue, asyncio.Queue()
        while not old.empty():  # what the old watch showed is void, what others answered is not
            if isinstance((kept := old.get_nowait())[0], Heard):
                self._queue.put_nowait(kept)
        self._relisting, self._gate, self._held_since = True, 0, None
        delay = BACKOFF_S[min(self._failures, len(BACKOFF_S)) - 1] if self._failures else 0.0
        self._reader = asyncio.create_task(self._read(self._queue, delay), name="watch")

    async def _read(self, queue: asyncio.Queue[tuple[Sight | Heard, float]], delay_s: float) -> None:
        await asyncio.sleep(delay_s)
        while True:
            reason = "the watch ended"
            sights = self._store.follow(self._keys.prefix)
            try:
                async for sight in sights:
                    queue.put_nowait((sight, self._clock.now()))
            except StoreError as error:
                reason = str(error)
            finally:
                with suppress(AttributeError):
                    await sights.aclose()  # type: ignore[attr-defined]
            queue.put_nowait((Lost(reason), self._clock.now()))
            await asyncio.sleep(REOPEN_S)

    def _drain(self) -> None:
        while not self._queue.empty():
            sight, received_at = self._queue.get_nowait()
            if isinstance(sight, Heard):
                self._fold((sight,))
                continue
            self._fold(self._translator.events(sight, received_at), fresh=isinstance(sight, Changes))
            for present, revision in leader_sights(sight, self._keys.leader()):
                self._election.saw_leader(present, revision)
            if isinstance(sight, Listing):
                self._folded, self._relisting, self.vitals.listed = sight.revision, False, True
            elif not isinstance(sight, Lost):
                self._folded = max(self._folded, sight.revision)
        self.vitals.sight_lost = self._translator.lost

    def _fold(self, events: Iterable[Event], *, fresh: bool = False) -> None:
        """`fresh`: written just now; what a listing shows may be old."""
        for event in events:
            if isinstance(event, Seen):
                self.vitals.events[type(event.record).__name__.lower()] += 1
                if not isinstance(event.record, Beat):
                    self.vitals.note(event.key, event.record)
                elif fresh:
                    self.vitals.beat_delay_s.observe(self._clock.utc() - event.record.at)
            elif isinstance(event, Garbled):
                self.vitals.refused += 1
            self._tell_prober(event)
            self._anew |= isinstance(event, SightBack)
            self.engine.step(event)

    def _tell_prober(self, event: Event) -> None:
        """Where agents can be looked at."""
        if self._prober is None:
            return
        if isinstance(event, Seen) and isinstance(event.record, NodeState):
            self._prober.learn(event.record)
        elif isinstance(event, Gone) and (parsed := self._keys.parse(event.key)) and parsed.kind is NodeState:
            self._prober.forget(parsed.names["node"])

    def _office_news(self) -> None:
        """Tell the engine whether we lead; taking office only once all that was written before it is folded."""
        term, now = self._election.term(), self._clock.now()
        if self.office and (term is None or term.epoch != self.office):
            self.office = 0
            self.engine.step(LeftOffice(self._election.reason, now))
        if term is not None and not self.office and not self._relisting and self._folded >= term.revision:
            self.office, self._anew = term.epoch, True
            self.engine.step(TookOffice(term.epoch, now))

    def _may_decide(self, now: float) -> bool:
        """Whether the engine sees the present; waiting for that too long is itself a loss of sight."""
        if self._translator.lost or not (self._relisting or self._folded < self._gate):
            self._held_since = None
            return True
        if self._held_since is None:
            self._held_since = now
        if now - self._held_since <= self._settings.detect.canary_late_s:
            return False
        self._fold(self._translator.lose("the watch does not show what the store holds", now))
        self.vitals.sight_lost = self._translator.lost
        self.follow_anew()
        return True

    def _digest(self, verdict: Verdict) -> None:
        self._gate = max(self._gate, verdict.revision)
        if verdict.result == DONE:
            self._failures = 0 if verdict.revision else self._failures
        elif verdict.result == FAILED:
            if not self._failures:
                log.warning("a decision could not be written, it will be taken anew: %s", verdict.reason)
            self._failures += 1
            self.follow_anew()
        else:
            self._office_news()

    async def _wait_for_own_echo(self) -> None:
        """Decide nothing before a fresh write came through the watch.

        After a sleep the watch has a backlog of unknown length; after a change of office or sight the engine waits for
        its canary anyway and would call itself blind until the next one.
        """
        try:
            async with asyncio.timeout(self._settings.detect.observer_gap_s):
                self._gate = max(self._gate, await self._canary.sing())
        except (StoreError, TimeoutError):
            return  # the canary will be late, and the engine blind
