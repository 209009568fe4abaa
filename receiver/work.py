"""Carries accepted actions out: each tried until it is done, refused or too late; taken up again after a restart."""

import asyncio
import logging
import sqlite3
from collections.abc import Mapping
from typing import Final

from rankpulse.receiver import journal as j
from rankpulse.receiver.acting import Actuator, Later, Refused
from rankpulse.receiver.clock import Clock
from rankpulse.receiver.deciding import Plan
from rankpulse.receiver.journal import Journal
from rankpulse.receiver.settings import ReceiverSettings
from rankpulse.receiver.vitals import Vitals

log: Final = logging.getLogger("rankpulse.receiver")
Actuators = Mapping[str, Actuator]


class Pen:
    """`Scribe` of one action."""

    def __init__(self, journal: Journal, id_: str, clock: Clock) -> None:
        self._journal, self._id, self._clock = journal, id_, clock

    def note(self, what: str, text: str) -> None:
        self._journal.note(self._id, what, text, self._clock.utc())
        said(self._id, what, text)

    def remember(self, name: str, value: str) -> None:
        self._journal.remember(self._id, name, value)

    def remembered(self, name: str) -> str | None:
        return self._journal.remembered(self._id, name)


class Work:
    """Actions that were accepted and have not ended, one at a time for each job."""

    def __init__(
        self, settings: ReceiverSettings, journal: Journal, actuators: Actuators, clock: Clock, vitals: Vitals
    ) -> None:
        self._settings, self._journal, self._actuators = settings, journal, actuators
        self._clock, self._vitals = clock, vitals
        self._places: dict[str, str] = {}  # what is being started again -> for which event
        self._running: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(settings.limits.at_once)

    @property
    def waiting(self) -> int:
        return len(self._running)

    def full(self) -> bool:
        return len(self._running) >= self._settings.limits.waiting

    def busy(self, plan: Plan) -> str:
        """The event for which this very job is being started again, or ""."""
        return self._places.get(plan.place, "")

    def begin(self, plan: Plan, received_at: float) -> None:
        """Returns at once. `received_at`: UTC seconds, from when on it is tried."""
        self._places.setdefault(plan.place, plan.id)
        task = asyncio.create_task(self._carry_out(plan, received_at), name=f"action {plan.id}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def close(self) -> None:
        """Leaves actions where they are: the next start takes them up."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _carry_out(self, plan: Plan, received_at: float) -> None:
        try:
            async with self._turn:
                state, text = await self._written_down(plan, received_at)
        finally:
            if self._places.get(plan.place) == plan.id:
                del self._places[plan.place]
        self._vitals.actions[plan.actuator, state] += 1
        self._vitals.last_done = self._clock.utc() if state == j.DONE else self._vitals.last_done
        said(plan.id, state, text)

    async def _written_down(self, plan: Plan, received_at: float) -> tuple[str, str]:
        """Its end, once that is on disk. Where the disk fails all is done again: whoever acts finds what was done."""
        while True:
            try:
                state, text = await self._tried(plan, received_at)
                self._journal.finish(plan.id, state, text, self._clock.utc())
            except sqlite3.Error as error:
                self._vitals.trouble = f"the journal cannot be written: {error}"
                log.error("%s: %s", plan.id, self._vitals.trouble)
                await asyncio.sleep(self._settings.acting.retry_max_s)
            else:
                return state, text

    async def _tried(self, plan: Plan, received_at: float) -> tuple[str, str]:
        """How it ended: a state of the journal, and in words."""
        acting, pen = self._settings.acting, Pen(self._journal, plan.id, self._clock)
        ends_at = self._clock.now() + max(0.0, received_at + acting.give_up_after_s - self._clock.utc())
        pause_s = acting.retry_s
        while True:
            try:
                return await self._once(plan, pen)
            except Refused as error:
                return j.FAILED, str(error)
            except Later as error:
                if self._clock.now() + pause_s > ends_at:
                    return j.FAILED, f"given up after {acting.give_up_after_s:g} s: {error}"
                pen.note("later", f"{error}; again in {pause_s:g} s")
            except sqlite3.Error:
                raise
            except Exception as error:
                log.exception("%s: a bug in rankpulse, please report it", plan.id)
                return j.FAILED, f"a bug in rankpulse: {type(error).__name__}"
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, acting.retry_max_s)

    async def _once(self, plan: Plan, pen: Pen) -> tuple[str, str]:
        actuator = self._actuators[plan.actuator]
        if self._settings.dry_run:
            steps = await actuator.would(plan, pen)
            return j.DRY, "dry run, would: " + ("; ".join(steps) or "do nothing, it was done before")
        return j.DONE, await actuator.restart(plan, pen)


def said(id_: str, what: str, text: str) -> None:
    """One line of the log, for programs and people: JSON, as the audit has it."""
    import json

    log.info("%s", json.dumps({"event": id_, "what": what, "text": text}, ensure_ascii=True))
