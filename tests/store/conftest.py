"""The two stores under one contract, each with the faults that the contract speaks of."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from rankpulse.core.settings import StoreSettings
from rankpulse.drills.proxy import TcpProxy
from rankpulse.store.api import Changes, Listing, Sight, Store
from rankpulse.store.embedded import EmbeddedEtcd
from rankpulse.store.etcd import EtcdStore
from rankpulse.store.memory import MemoryStore


class MemoryRig:
    """Memory on a hand-driven clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.memory = MemoryStore(lambda: self.now)
        self.store: Store = self.memory

    async def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.memory.tick()

    async def go_away(self) -> None:
        self.memory.outage(True)

    async def come_back(self) -> None:
        self.memory.outage(False)

    async def blur(self, applied: bool) -> None:
        """The next write ends uncertain."""
        self.memory.uncertain_next_write(applied)

    async def clear(self) -> None:
        pass

    def beside(self) -> Store:
        """Another way to the same store, which no fault touches."""
        return _Beside(self.memory)  # type: ignore[return-value]


class _Beside:
    def __init__(self, memory: MemoryStore) -> None:
        self._memory = memory

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **named: Any) -> Any:
            away, self._memory._away = self._memory._away, False
            try:
                return await getattr(self._memory, name)(*args, **named)
            finally:
                self._memory._away = away

        return call


class EtcdRig:
    """Real etcd behind a proxy that breaks the path; real time passes by itself."""

    def __init__(self, proxy: TcpProxy, store: EtcdStore, beside: EtcdStore) -> None:
        self.proxy, self.store, self._beside = proxy, store, beside

    async def pass_time(self, seconds: float) -> None:
        pass

    async def go_away(self) -> None:
        self.proxy.cut()

    async def come_back(self) -> None:
        await self.proxy.mend()

    async def blur(self, applied: bool) -> None:
        await self.store.get("warm")  # the connection stands: what follows is lost under way
        self.proxy.stall("down" if applied else "up")

    async def clear(self) -> None:
        """Held bytes are thrown away with their connections."""
        self.proxy.cut()
        await self.proxy.mend()

    def beside(self) -> Store:
        return self._beside


async def etcd_rig(endpoint: str) -> AsyncIterator[EtcdRig]:
    host, _, port = endpoint.rpartition(":")
    async with TcpProxy(host, int(port)) as proxy:
        store = EtcdStore(
            StoreSettings(endpoints=(proxy.endpoint,), timeout_s=1.0), rng=random.Random(1), progress_s=0.3
        )
        beside = EtcdStore(StoreSettings(endpoints=(endpoint,), timeout_s=5.0))
        yield EtcdRig(proxy, store, beside)
        await store.close()
        await beside.close()


@pytest.fixture(params=["memory", pytest.param("etcd", marks=pytest.mark.live)])
async def rig(request: pytest.FixtureRequest) -> AsyncIterator[MemoryRig | EtcdRig]:
    if request.param == "memory":
        yield MemoryRig()
        return
    server: str = request.getfixturevalue("etcd")
    async for made in etcd_rig(server):
        yield made


@pytest.fixture
def own_etcd() -> Any:
    """An etcd of this test alone, to be paused, killed and restarted."""
    with EmbeddedEtcd() as server:
        yield server


class Sights:
    """Collects what a follower says, in the background; fold() is the picture a reader has by now."""

    def __init__(self, store: Store, prefix: str) -> None:
        self.seen: list[Sight] = []
        self.error: BaseException | None = None
        self._store, self._prefix = store, prefix

    async def run(self) -> None:
        try:
            async with aclosing(self._store.follow(self._prefix)) as sights:  # type: ignore[type-var]
                async for sight in sights:
                    self.seen.append(sight)
        except Exception as error:
            self.error = error

    def kinds(self) -> list[str]:
        return [type(sight).__name__ for sight in self.seen]

    def fold(self) -> dict[str, bytes]:
        picture: dict[str, bytes] = {}
        for sight in self.seen:
            if isinstance(sight, Listing):
                picture = {item.key: item.value for item in sight.items}
            elif isinstance(sight, Changes):
                for change in sight.changes:
                    if change.value is None:
                        picture.pop(change.key, None)
                    else:
                        picture[change.key] = change.value
        return picture


@pytest.fixture
async def following() -> AsyncIterator[Any]:
    """`await following(store, prefix)` -> Sights, followed until the test ends."""
    tasks: list[asyncio.Task[None]] = []

    def start(store: Store, prefix: str) -> Sights:
        sights = Sights(store, prefix)
        tasks.append(asyncio.create_task(sights.run()))
        return sights

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
