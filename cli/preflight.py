"""`rankpulse preflight`: this node looked at by hand, as its agent does before a torchrun is in a round."""

import os
import time
from collections.abc import AsyncIterator
from typing import Final

from rankpulse.agent.preflight import at_once
from rankpulse.agent.preflight_look import Asked, Look
from rankpulse.cli import books
from rankpulse.core.keys import Keys
from rankpulse.core.preflight import FAIL, OK, WARN, Finding
from rankpulse.core.records import Beat
from rankpulse.core.settings import Settings, run_dir
from rankpulse.store.api import Store, StoreError

READS: Final = 3
SLOW_S: Final = 0.5  # a heartbeat takes as long


async def run(settings: Settings) -> AsyncIterator[Finding]:
    """Each finding as soon as it is known. Nobody is ended: what a round has left behind only the agent can tell."""
    if not settings.preflight.enabled:
        text = "it is switched off: whatever is found here keeps nobody out"
        yield Finding("gate", WARN, text, "preflight.enabled = true")
    said: list[tuple[str, float]] = []
    try:
        async with books.opened(settings) as store:
            yield await _round_trip(store, Keys(settings.cluster))
            beats = (await books.read(store, Keys(settings.cluster), Keys(settings.cluster).nodes())).of(Beat)
            said = [(beat.node, beat.at) for beat in beats]
    except StoreError as error:
        yield Finding("store", FAIL, str(error), "start etcd, or name it: --store HOST:PORT or store.endpoints")
    for finding in at_once(settings.preflight, run_dir(settings.agent, os.environ), time.time(), said):
        yield finding
    look = Look(settings.preflight)
    if not look.needed():
        yield Finding("gpu", OK, "no NVIDIA GPU on this machine")
        return
    for finding in (await look.at(Asked())).findings:
        yield finding


async def _round_trip(store: Store, keys: Keys) -> Finding:
    """The best of a few reads: one may be slow by chance."""
    took: list[float] = []
    for _ in range(READS):
        began = time.monotonic()
        await store.get(keys.epoch())
        took.append(time.monotonic() - began)
    text = f"a read takes {1000 * min(took):.1f} ms"
    if min(took) > SLOW_S:
        return Finding("store", WARN, text, "look at the network between this node and etcd, and at etcd's disk")
    return Finding("store", OK, text)
