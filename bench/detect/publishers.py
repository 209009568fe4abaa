"""One process of light agents: real beats, over the real store client, to a real etcd.

`python -m rankpulse.bench.detect.publishers ENDPOINT FIRST COUNT NODES BEGAN DEAD_AT`. Times are of the machine's
monotonic clock, which its processes share; a beat's `at` is when it was made.
"""

import asyncio
import contextlib
import sys
import time

from rankpulse.agent.publish import next_due
from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.job import TRAIN, Place
from rankpulse.bench.detect.told import Teller, node_name
from rankpulse.core import codec
from rankpulse.core.keys import Keys
from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import StoreError
from rankpulse.store.etcd import open_store

CLUSTER = "record"


def place(at: float, dead_at: float) -> Place:
    """A job that makes a step every two seconds until one of its nodes dies."""
    return Place(max(int(min(at, dead_at) / z.STEP_S), 0), TRAIN)


async def publish(endpoint: str, node: int, nodes: int, began: float, dead_at: float) -> None:
    """The beats of one node, for ever."""
    store, key = await open_store(StoreSettings(endpoints=(endpoint,))), Keys(CLUSTER).beat(node_name(node))
    teller = Teller(nodes, lambda _, at: place(at, dead_at))
    due, number = time.monotonic() + node / nodes * z.INTERVAL_S, 0
    while True:
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        beat = teller.beat(node, time.monotonic() - began, number)
        with contextlib.suppress(StoreError):
            await store.put(key, codec.encode(beat))
        number += 1
        due = next_due(due, time.monotonic(), z.INTERVAL_S)


async def _main(endpoint: str, first: int, count: int, nodes: int, began: float, dead_at: float) -> None:
    await asyncio.gather(*(publish(endpoint, first + n, nodes, began, dead_at) for n in range(count)))


if __name__ == "__main__":
    where, *numbers = sys.argv[1:]
    ints, floats = map(int, numbers[:3]), map(float, numbers[3:])
    asyncio.run(_main(where, *ints, *floats))
