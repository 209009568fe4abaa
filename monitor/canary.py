"""The monitor's message to itself: a key written every second that must come back through the watch.

A watch can be silent without an error; then the canary is late, and silence of nodes means nothing.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from rankpulse.monitor.clock import Clock
from rankpulse.store.api import Lease, Store, StoreError

EVERY_S: Final = 1.0
LEASE_S: Final = 60.0  # so that a monitor that is gone leaves nothing behind


class Canary:
    """Writes `key` under short leases, each left to end by itself."""

    def __init__(
        self, store: Store, key: str, token: bytes, clock: Clock, took: Callable[[float], None] = lambda seconds: None
    ) -> None:
        """`took`: told how long the store took to acknowledge it."""
        self._store, self._key, self._token, self._clock, self._took = store, key, token, clock, took
        self._count = 0
        self._lease: Lease | None = None
        self._renew_at = 0.0

    async def sing(self) -> int:
        """Write once; returns the revision. Raises `StoreError`."""
        now = self._clock.now()
        if self._lease is None or now >= self._renew_at:
            self._lease, self._renew_at = await self._store.grant(LEASE_S), now + LEASE_S / 2
        self._count += 1
        began = self._clock.now()
        try:
            revision = await self._store.put(self._key, b"%s %d" % (self._token, self._count), lease=self._lease.id)
        except StoreError:
            self._lease = None  # it may have ended with the store: take another
            raise
        self._took(self._clock.now() - began)
        return revision

    async def run(self) -> None:
        """For ever. Failures are not said here: the engine notices that the canary is late."""
        while True:
            with suppress(StoreError):
                await self.sing()
            await asyncio.sleep(EVERY_S)
