"""What the store says while a drill runs: the drill judges rankpulse by its records, as an on-call would."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import TypeVar

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.core.keys import Keys
from rankpulse.store.api import Changes, Listing, Store

T = TypeVar("T")


class Timeout(Exception):
    """Something the drill waits for did not come; the text says what."""


class Witness:
    """All records of a cluster, kept up to date by a watch of its own."""

    def __init__(self, store: Store, keys: Keys) -> None:
        self._store, self.keys = store, keys
        self._records: dict[str, r.Record] = {}
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Witness":
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        async for sight in self._store.follow(self.keys.prefix):
            if isinstance(sight, Listing):
                self._records.clear()
                for item in sight.items:
                    self._keep(item.key, item.value)
            elif isinstance(sight, Changes):
                for change in sight.changes:
                    self._keep(change.key, change.value)
            self._changed.set()

    def _keep(self, key: str, value: bytes | None) -> None:
        parsed = self.keys.parse(key)
        if value is None:
            self._records.pop(key, None)
        elif parsed is not None:
            with contextlib.suppress(codec.Refused):
                self._records[key] = codec.decode_at(parsed, value)

    def all(self, kind: type[T]) -> list[T]:
        return [record for record in self._records.values() if isinstance(record, kind)]

    def incidents(self, since: float = 0.0) -> list[r.Incident]:
        """Incidents opened after `since` (UTC), the first first."""
        found = [incident for incident in self.all(r.Incident) if incident.opened_at >= since]
        return sorted(found, key=lambda incident: incident.opened_at)

    def run(self, run_id: str) -> r.RunState | None:
        """The newest run with this label."""
        found = [state for state in self.all(r.RunState) if state.run_id == run_id]
        return max(found, key=lambda state: state.at, default=None)

    def roster(self, run_uid: str, round_: int | None = None) -> r.Roster | None:
        """A round of the run, by default its last."""
        rosters = {roster.round: roster for roster in self.all(r.Roster) if roster.run_uid == run_uid}
        return rosters.get(max(rosters, default=-1) if round_ is None else round_)

    def steps(self, run_id: str) -> dict[int, int]:
        """rank -> step, as the beats say."""
        return {
            row.rank: row.step
            for beat in self.all(r.Beat)
            for row in beat.ranks
            if 0 <= row.run < len(beat.runs) and beat.runs[row.run].run_id == run_id
        }

    async def until(self, found: Callable[[], T | None], timeout_s: float, what: str) -> T:
        """The first answer of `found` that is neither None nor False. Raises `Timeout` that says `what`."""
        deadline = time.monotonic() + timeout_s
        while True:
            self._changed.clear()
            answer = found()
            if answer is not None and answer is not False:
                return answer
            left = deadline - time.monotonic()
            if left <= 0:
                raise Timeout(f"waited {timeout_s:.0f} s for {what}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(left, 0.25)):
                    await self._changed.wait()
