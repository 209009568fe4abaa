"""The store of the swarm's nodes: etcd as agents use it, with a look at how long it takes for a beat."""

import asyncio
from array import array
from collections import Counter
from collections.abc import Sequence
from typing import Final

from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import Guard, Outcome, Put, StoreError, Write
from rankpulse.store.etcd import EtcdStore

BEAT: Final = "/beat"


class Meter:
    """What all connections saw. `delays`: seconds from asking for a beat to be written until it was."""

    def __init__(self) -> None:
        self.sent = self.done = self.refused = 0
        self.delays = array("f")
        self.errors: Counter[str] = Counter()

    def quantile(self, share: float, since: int = 0) -> float | None:
        """Of the delays from number `since` on; None of none."""
        ordered = sorted(self.delays[since:])
        return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else None


class MeteredStore(EtcdStore):
    def __init__(self, settings: StoreSettings, meter: Meter) -> None:
        super().__init__(settings)
        self._meter = meter

    async def txn(self, guards: Sequence[Guard], writes: Sequence[Write]) -> Outcome:
        if not (len(writes) == 1 and isinstance(writes[0], Put) and writes[0].key.endswith(BEAT)):
            return await super().txn(guards, writes)
        meter, loop = self._meter, asyncio.get_running_loop()
        began, meter.sent = loop.time(), meter.sent + 1
        try:
            outcome = await super().txn(guards, writes)
        except StoreError as error:
            meter.errors[type(error).__name__] += 1
            raise
        meter.delays.append(loop.time() - began)
        if outcome.done:
            meter.done += 1
        else:
            meter.refused += 1
        return outcome
