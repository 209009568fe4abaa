"""`rdzv/agents/<node>`: the agent of this node is there. Without it no new round waits for the node."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from rankpulse.agent.clock import Clock
from rankpulse.agent.log import Log
from rankpulse.agent.mirror import Mirror
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.records import Presence
from rankpulse.store.api import Lease, LeaseLost, Put, Store, StoreError

_RENEWALS: Final = 4  # in one time to live
_PRESENCE_S: Final = (5.0, 20.0)
_PRESENCE_BEATS: Final = 10


def presence_ttl_s(heartbeat_interval_s: float) -> float:
    """How long a node counts as there after its agent was last heard of: ten heartbeats, from 5 to 20 seconds."""
    low, high = _PRESENCE_S
    return min(max(_PRESENCE_BEATS * heartbeat_interval_s, low), high)


@dataclass(slots=True)
class Present:
    """Keeps the record up under a lease of `ttl_s`. `inc`: the incarnation, 0 while the node's name is not ours.

    It is not taken back when the agent stops: one that starts again within `ttl_s` was never away.
    """

    node: str
    keys: Keys
    store: Store
    mirror: Mirror
    clock: Clock
    log: Log
    ttl_s: float
    inc: Callable[[], int]
    _lease: Lease | None = None
    _inc: int = 0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                if self.inc():
                    await self._keep()
            except StoreError as error:
                self.log.change("presence", "warning", f"presence: {error} (no new round waits for this node)")
            await asyncio.sleep(self.ttl_s / _RENEWALS if self._lease else min(0.25, self.ttl_s / _RENEWALS))

    async def _keep(self) -> None:
        if self._lease:
            try:
                await self.store.keep_alive(self._lease)
            except LeaseLost:
                self._lease = None
        if self._lease and self._inc == self.inc() and self._seen():
            return
        lease = self._lease or await self.store.grant(self.ttl_s)
        self._inc = self.inc()
        record = Presence(node=self.node, inc=self._inc, at=self.clock.utc())
        put = Put(self.keys.presence(self.node), codec.encode(record), lease=lease.id)
        await self.store.txn([], [put])
        self._lease = lease
        self.log.change("presence", "info", "presence: other nodes can count on this one")

    def _seen(self) -> bool:
        """Whether it stands in the store, as far as we see: somebody may have emptied it."""
        return not self.mirror.sighted or self.mirror.get(self.keys.presence(self.node)) is not None
