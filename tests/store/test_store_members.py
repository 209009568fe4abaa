"""Three members: what a store notices of the loss of one."""

import asyncio
from collections.abc import Iterator

import pytest
from support import eventually

from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import Changes, Store, StoreError
from rankpulse.store.embedded_cluster import EmbeddedCluster
from rankpulse.store.etcd import EtcdStore

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def members() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


async def put(store: Store, key: str, value: bytes) -> int:
    """As agents do: again until it is known to be there."""

    async def done() -> int:
        try:
            return await store.put(key, value)
        except StoreError:
            return 0

    return int(await eventually(done, 30.0, "a write"))


async def leader(cluster: EmbeddedCluster) -> int:
    """The number of the member that leads."""
    for n, endpoint in enumerate(cluster.endpoints):
        store = EtcdStore(StoreSettings(endpoints=(endpoint,)))
        try:
            answer = await store._call(lambda wire, s: wire.status(s))
        finally:
            await store.close()
        if answer.leader == answer.header.member_id:
            return n
    raise AssertionError("nobody leads")


@pytest.mark.parametrize("leads", [True, False])
async def test_one_of_three_dies_and_the_others_go_on(members: EmbeddedCluster, cluster: str, leads: bool) -> None:
    """Writes, renewals and the watch go on over the other members; nothing that was acknowledged is lost."""
    first = await leader(members)
    lost = members.members[first if leads else (first + 1) % 3]
    order = (lost.endpoint, *(m.endpoint for m in members.members if m is not lost))
    store = EtcdStore(StoreSettings(endpoints=order))
    store._turn = 0  # in use is the one that dies
    prefix, seen = f"/{cluster}/", dict[str, bytes]()

    async def follow() -> None:
        async for sight in store.follow(prefix):
            if isinstance(sight, Changes):
                seen.update((change.key, change.value or b"") for change in sight.changes)

    task = asyncio.create_task(follow())
    try:
        lease = await store.grant(60.0)
        await put(store, prefix + "a", b"1")
        await eventually(lambda: prefix + "a" in seen, 20.0, "the watch")
        await asyncio.to_thread(lost.kill)
        await put(store, prefix + "b", b"2")
        item = await store.get(prefix + "a")
        assert item is not None
        assert item.value == b"1"
        await eventually(lambda: seen == {prefix + "a": b"1", prefix + "b": b"2"}, 30.0, "the watch goes on")
        assert await store.keep_alive(lease) > 0
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await store.close()
        await asyncio.to_thread(lost.restart)
