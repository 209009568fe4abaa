"""Care of the store: its size, its alarms, and the history that heartbeats pile up."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rankpulse.core import store_care
from rankpulse.monitor.clock import Clock
from rankpulse.monitor.vitals import Vitals
from rankpulse.store.api import Store, StoreError, StoreStatus, Unreachable

POLL_S: Final = 15.0
KEEP_REVISIONS: Final = 1000
KEEP_S: Final = 300.0
REMEDY: Final = {
    "NOSPACE": "the store is full and refuses all writes: raise its quota, or compact and defragment it, "
    "then clear the alarm (`etcdctl alarm disarm`)",
    "CORRUPT": "a store member is corrupt: replace it before trusting what it says",
}
log = logging.getLogger("rankpulse.monitor")


class History:
    """Which revision the store had when; decides how far history may be forgotten. Pure."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque()

    def note(self, now: float, revision: int) -> None:
        self._marks.append((now, revision))
        while len(self._marks) > 1 and self._marks[1][0] <= now - KEEP_S:
            self._marks.popleft()

    def forgettable(self, now: float) -> int:
        """The newest revision that is both `KEEP_S` old and `KEEP_REVISIONS` behind; 0: none yet."""
        if not self._marks or self._marks[0][0] > now - KEEP_S:
            return 0
        return max(0, min(self._marks[0][1], self._marks[-1][1] - KEEP_REVISIONS))


class Upkeep:
    """Polls the store's status; compacts while this monitor leads."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        vitals: Vitals,
        *,
        every_s: float,
        leads: Callable[[], bool],
        quota_bytes: int = 0,
        crowded: Callable[[], str] = lambda: "",
    ) -> None:
        """`quota_bytes`: of a store that does not tell its own; `crowded`: what is to be said of the fleet's size."""
        self._quota_bytes, self._crowded = quota_bytes, crowded
        self._complained: set[str] = set()
        self._store, self._clock, self._vitals, self._every_s, self._leads = store, clock, vitals, every_s, leads
        self._history = History()
        self._compact_at = clock.now() + every_s
        self._compacted = 0
        self._said: set[str] = set()

    async def run(self) -> None:
        """For ever, every `POLL_S`."""
        while True:
            await self.once()
            await asyncio.sleep(POLL_S)

    async def once(self) -> None:
        """Ask and, if it is time, compact. Never raises `StoreError`."""
        try:
            self._vitals.store = status = await self._store.status()
            self._vitals.store_error, self._vitals.store_at = "", self._clock.now()
            self._vitals.quota_bytes = status.quota_bytes or self._quota_bytes
            self._heed(status)
            self._complain(status)
            await self._compact(status)
        except StoreError as error:
            if not self._vitals.store_error and not isinstance(error, Unreachable):  # that is said as loss of sight
                log.warning("the store's status is unknown: %s", error)
            self._vitals.store_error = str(error)

    def _heed(self, status: StoreStatus) -> None:
        for alarm in set(status.alarms) - self._said:
            log.error("alarm %s: %s", alarm, REMEDY.get(alarm, "see the store's log"))
        for alarm in self._said - set(status.alarms):
            log.info("alarm %s is cleared", alarm)
        self._said = set(status.alarms)

    def _complain(self, status: StoreStatus) -> None:
        """Each kind once, until it is over: the numbers in it change."""
        found = list(store_care.complaints(status.version, status.db_bytes, self._vitals.quota_bytes))
        found += [text] if (text := self._crowded()) else []
        kinds = {text.split()[0]: text for text in found}
        for kind in kinds.keys() - self._complained:
            log.warning("%s", kinds[kind])
        self._complained = set(kinds)

    async def _compact(self, status: StoreStatus) -> None:
        now = self._clock.now()
        self._history.note(now, status.revision)
        if now < self._compact_at or not self._leads():
            return
        self._compact_at = now + self._every_s
        target = self._history.forgettable(now)
        if target > self._compacted:
            self._compacted = target
            with suppress(StoreError):  # somebody compacted further already, or the next time will do
                await self._store.compact(target)
