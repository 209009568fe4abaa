"""Leadership by lease. At most one monitor acts; the proof is the leader key's revision, which guards every write.

The local belief is stricter than the store: it ends by our own monotonic clock, a safety margin before the lease can
end, counted from the moment the renewal was *sent*. A monitor that was paused wakes up knowing that it does not lead.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import Leader
from rankpulse.monitor.clock import Clock
from rankpulse.store.api import Guard, Item, Lease, LeaseLost, Put, Store, StoreError, Uncertain

JITTER_S: Final = 0.25  # before a campaign, so that standbys do not all ask at once
RETRY_S: Final = 0.5
log = logging.getLogger("rankpulse.monitor")


@dataclass(frozen=True, slots=True)
class Term:
    """One term of office."""

    epoch: int
    revision: int  # of the leader key when we took it: the fence
    lease: Lease
    sure_until: float  # monotonic: later than this we do not know that we lead


class Election:
    """Takes, keeps and resigns the leader key of one cluster."""

    def __init__(
        self,
        store: Store,
        keys: Keys,
        *,
        name: str,
        url: str,
        ttl_s: float,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._store, self._keys, self._clock, self._rng = store, keys, clock, rng
        self._name, self._url, self._ttl_s = name, url, ttl_s
        self._term: Term | None = None
        self._stale: Lease | None = None  # of a term that is over, to be revoked so that the next leader need not wait
        self._vacant = asyncio.Event()
        self.reason = "another monitor leads"  # why we do not lead

    def term(self) -> Term | None:
        """The term in which we surely lead at this moment, else None."""
        if self._term is not None and self._clock.now() >= self._term.sure_until:
            self.lose("the lease could not be renewed in time")
        return self._term

    def lose(self, reason: str) -> None:
        """We no longer lead, or no longer know it."""
        if self._term is not None:
            self._stale, self._term, self.reason = self._term.lease, None, reason

    def saw_leader(self, present: bool, revision: int) -> None:
        """The watch showed the leader key at `revision`: written (`present`) or gone."""
        if self._term is not None and revision > self._term.revision:
            self.lose("the leader key was " + ("taken by another monitor" if present else "deleted"))
        if present or self._term is not None:
            self._vacant.clear()
        else:
            self._vacant.set()

    async def campaign(self) -> bool:
        """Ask for office once. Raises `StoreError` when nobody can tell."""
        sent = self._clock.now()
        lease = await self._store.grant(self._ttl_s)
        self._stale = lease  # until it is a term's lease it is nobody's
        counter = await self._store.get(self._keys.epoch())
        epoch = _number(counter) + 1
        claim = Leader(monitor=self._name, epoch=epoch, at=self._clock.utc(), url=self._url)
        guards = (Guard(self._keys.leader(), 0), Guard(self._keys.epoch(), counter.modified if counter else 0))
        writes = (
            Put(self._keys.leader(), codec.encode(claim), lease.id),
            Put(self._keys.epoch(), str(epoch).encode()),
        )
        try:
            outcome = await self._store.txn(guards, writes)
            revision = outcome.revision if outcome.done else 0
        except Uncertain:
            revision = await self._ours(lease)
        if revision:
            self._stale = None
            self._vacant.clear()
            self._term = Term(epoch, revision, lease, sent + self._sure_s(lease.ttl_s))
        else:
            await self._clear()
        return revision > 0

    async def _ours(self, lease: Lease) -> int:
        """The leader key's revision when it stands under our `lease`, else 0."""
        item = await self._store.get(self._keys.leader())
        return item.modified if item and item.lease == lease.id else 0

    def _sure_s(self, ttl_s: float) -> float:
        """How long after asking we may be sure: the margin covers clock rates and the store's own rounding."""
        ttl_s = min(ttl_s, self._ttl_s)
        return ttl_s - max(0.5, 0.2 * ttl_s)

    async def renew(self) -> None:
        """Renew the lease once. A failed attempt leaves the term to run out; a lost lease ends it."""
        term = self.term()
        if term is None:
            return
        sent = self._clock.now()
        try:
            ttl_s = await self._store.keep_alive(term.lease)
        except LeaseLost:
            self.lose("the lease ran out")
            return
        now_held = self.term()
        if now_held is not None and now_held.epoch == term.epoch:
            self._term = replace(now_held, sure_until=sent + self._sure_s(ttl_s))

    async def resign(self) -> None:
        """Give the office back at once, so that a standby need not wait for the lease. Never raises `StoreError`."""
        self.lose("this monitor stops")
        try:
            await self._clear()
        except StoreError as error:
            log.warning("could not resign (%s): the lease ends by itself in %.0f s", error, self._ttl_s)

    async def _clear(self) -> None:
        """While the store is away it stays to be done: else our own old key would keep us out after an outage."""
        if self._stale is not None:
            with suppress(LeaseLost):
                await self._store.revoke(self._stale)
            self._stale = None

    async def run(self) -> None:
        """Stand for office whenever it is vacant and keep it; for ever."""
        said = False
        while True:
            try:
                await (self._keep() if self._term else self._stand())
                said = False
            except StoreError as error:
                if not said:
                    log.warning("%s: %s", "cannot renew the lease" if self._term else "cannot stand for leader", error)
                said = True
                await asyncio.sleep(RETRY_S * (1 + self._rng.random()))

    async def _keep(self) -> None:
        await asyncio.sleep(self._ttl_s / 3)
        await self.renew()

    async def _stand(self) -> None:
        await self._clear()
        await self._vacant.wait()
        await asyncio.sleep(self._rng.uniform(0, JITTER_S))
        if not await self.campaign():
            await asyncio.sleep(RETRY_S)


def _number(item: Item | None) -> int:
    """The epoch counter; anything that is no number counts as 0, the guard on its revision still holds."""
    try:
        return max(0, int(item.value)) if item else 0
    except ValueError:
        return 0
