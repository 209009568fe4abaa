"""etcd away, stuck, full, or not etcd at all."""

import asyncio
import itertools
import random
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from socket import create_server
from threading import Thread
from typing import Any

import pytest
from support import eventually

from rankpulse.core.settings import StoreSettings
from rankpulse.drills.proxy import TcpProxy
from rankpulse.store.api import Guard, NoSpace, Put, StoreError, Uncertain, Unreachable
from rankpulse.store.embedded import EmbeddedEtcd, free_ports
from rankpulse.store.etcd import EtcdStore, open_store

pytestmark = pytest.mark.live


class First(random.Random):
    """Begins with the first endpoint."""

    def randrange(self, *_: Any, **__: Any) -> int:
        return 0


@asynccontextmanager
async def opened(*endpoints: str, timeout_s: float = 3.0) -> AsyncIterator[EtcdStore]:
    store = EtcdStore(StoreSettings(endpoints=endpoints, timeout_s=timeout_s), rng=First(), progress_s=0.3)
    try:
        yield store
    finally:
        await store.close()


async def complaint(*endpoints: str, timeout_s: float = 3.0) -> str:
    """What an `Unreachable` says to the user."""
    async with opened(*endpoints, timeout_s=timeout_s) as store:
        with pytest.raises(Unreachable) as raised:
            await store.put("k", b"")
    return str(raised.value)


async def test_nothing_listens() -> None:
    endpoint = f"127.0.0.1:{free_ports(1)[0]}"
    said = await complaint(endpoint)
    assert f"nothing listens at http://{endpoint}" in said


async def test_a_name_that_is_none() -> None:
    assert "cannot be resolved" in await complaint("no-such-host.invalid:2379")


@contextmanager
def web_server() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        BaseHTTPRequestHandler.log_message = lambda *_: None  # type: ignore[assignment]
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


async def test_a_web_server_is_not_etcd() -> None:
    with web_server() as endpoint:
        assert "web server" in await complaint(endpoint)


async def test_the_metrics_port_is_not_the_client_port(own_etcd: EmbeddedEtcd) -> None:
    assert "client port" in await complaint(f"127.0.0.1:{own_etcd._ports[2]}")


async def test_something_that_never_answers_costs_the_time_limit_and_no_more() -> None:
    with create_server(("127.0.0.1", 0)) as mute:
        started = time.monotonic()
        said = await complaint(f"127.0.0.1:{mute.getsockname()[1]}", timeout_s=0.5)
        assert time.monotonic() - started < 5
    assert "does not answer" in said


async def test_the_first_endpoint_is_dead(etcd: str, following: Any, cluster: str) -> None:
    dead = f"127.0.0.1:{free_ports(1)[0]}"
    async with opened(dead, etcd) as store:
        sights = following(store, cluster)
        assert await store.put(cluster, b"1")
        await eventually(lambda: sights.fold() == {cluster: b"1"}, what="the follower found the other one too")


async def test_all_endpoints_are_named_when_none_works() -> None:
    dead = [f"127.0.0.1:{port}" for port in free_ports(2)]
    said = await complaint(*dead)
    assert all(endpoint in said for endpoint in dead)


async def test_an_endpoint_that_hangs_is_left_for_another(etcd: str, cluster: str, following: Any) -> None:
    host, _, port = etcd.rpartition(":")
    async with TcpProxy(host, int(port)) as proxy, opened(proxy.endpoint, etcd, timeout_s=1.0) as store:
        sights = following(store, cluster)
        await store.put(cluster, b"1")
        await eventually(lambda: sights.fold() == {cluster: b"1"}, what="the watch")
        proxy.stall()
        with pytest.raises(Uncertain):
            await store.put(cluster, b"2")
        assert await store.put(cluster, b"3")
        await eventually(lambda: sights.fold() == {cluster: b"3"}, what="the watch goes on elsewhere")


async def test_host_name(etcd: str) -> None:
    store = await open_store(StoreSettings(endpoints=(f"localhost:{etcd.rpartition(':')[2]}",)))
    assert (await store.status()).has_leader
    await store.close()


async def test_proxies_for_the_web_are_not_for_us(etcd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    async with opened(f"localhost:{etcd.rpartition(':')[2]}") as store:
        assert (await store.status()).has_leader


async def test_killed_and_restarted(own_etcd: EmbeddedEtcd, following: Any) -> None:
    async with opened(own_etcd.endpoint) as store:
        sights = following(store, "k/")
        await store.put("k/a", b"1")
        await eventually(lambda: sights.fold() == {"k/a": b"1"}, what="the watch")
        own_etcd.kill()
        await eventually(lambda: sights.kinds()[-1] == "Lost", what="the loss is said")
        with pytest.raises(Unreachable):
            await store.put("k/a", b"2")
        await asyncio.to_thread(own_etcd.restart)
        assert await store.put("k/a", b"3")
        await eventually(lambda: sights.fold() == {"k/a": b"3"}, what="the watch goes on")
        assert sights.kinds().count("Lost") == 1


async def test_a_store_that_has_gone_back_is_listed_anew(own_etcd: EmbeddedEtcd, following: Any) -> None:
    """Restored from a backup, it counts from an earlier revision: a watch from where we were would hear nothing."""
    with EmbeddedEtcd() as restored:
        async with opened(restored.endpoint) as store:
            await store.put("/back/a", b"old")
        async with opened(own_etcd.endpoint, restored.endpoint, timeout_s=1.0) as store:
            for number in range(20):
                await store.put("/back/a", f"{number}".encode())
            sights = following(store, "/back/")
            await eventually(lambda: sights.fold() == {"/back/a": b"19"}, what="the watch")
            own_etcd.kill()
            await eventually(lambda: sights.fold() == {"/back/a": b"old"}, 20, "what stands in the other")
            await store.put("/back/b", b"new")
            await eventually(lambda: sights.fold() == {"/back/a": b"old", "/back/b": b"new"}, 20, "the watch goes on")


async def test_a_stalled_path_is_seen_and_healed(etcd: str, cluster: str, following: Any) -> None:
    host, _, port = etcd.rpartition(":")
    async with TcpProxy(host, int(port)) as proxy, opened(proxy.endpoint, timeout_s=1.0) as store:
        sights = following(store, cluster)
        await store.put(cluster, b"1")
        await eventually(lambda: sights.fold() and sights.kinds()[-1] == "Progress", what="the watch")
        proxy.stall()
        await eventually(lambda: "Lost" in sights.kinds(), what="the silence is noticed")
        assert "silent" in next(sight.reason for sight in sights.seen if hasattr(sight, "reason"))
        proxy.release()
        await eventually(lambda: sights.kinds()[-1] == "Progress", what="sight is back")
        await store.put(cluster, b"2")
        await eventually(lambda: sights.fold() == {cluster: b"2"}, what="the watch goes on")
        assert sights.kinds().count("Lost") == 1


async def test_a_path_that_swallowed_the_connection_heals_by_a_new_one(etcd: str, cluster: str) -> None:
    host, _, port = etcd.rpartition(":")
    async with TcpProxy(host, int(port)) as proxy, opened(proxy.endpoint, timeout_s=0.5) as store:
        await store.put(cluster, b"1")
        proxy.swallow()  # this connection is dead for ever and nobody is told; new ones work

        async def works() -> bool:
            try:
                return bool(await store.put(cluster, b"2"))
            except StoreError:
                return False

        await eventually(works, 8, "a new connection, long before TCP gives the old one up")


async def test_a_paused_etcd(own_etcd: EmbeddedEtcd, following: Any) -> None:
    async with opened(own_etcd.endpoint, timeout_s=0.5) as store:
        sights = following(store, "k")
        await store.put("k", b"1")
        await eventually(lambda: sights.fold() == {"k": b"1"}, what="the watch")
        own_etcd.pause()
        with pytest.raises(Uncertain):
            await store.put("k", b"2")
        with pytest.raises(Unreachable):
            await store.get("k")
        await eventually(lambda: sights.kinds()[-1] == "Lost", what="the silence is noticed")
        own_etcd.resume()
        # whether "2" was written is open: what counts is that reader and follower agree again
        await eventually(lambda: sights.kinds()[-1] != "Lost", what="sight is back")
        value = (await store.get("k")).value  # type: ignore[union-attr]
        await eventually(lambda: sights.fold() == {"k": value}, what="the same picture")
        await store.put("k", b"3")
        await eventually(lambda: sights.fold() == {"k": b"3"}, what="the watch goes on")


async def test_many_callers_see_store_errors_only_and_none_hangs(own_etcd: EmbeddedEtcd) -> None:
    done = asyncio.Event()
    last: dict[int, str] = {}

    async def call_on(store: EtcdStore, n: int) -> None:
        while not done.is_set():
            try:
                await (store.put(f"k{n}", b"") if n % 2 else store.get(f"k{n}"))
                last[n] = "ok"
            except StoreError as error:
                last[n] = type(error).__name__
            await asyncio.sleep(0.02)

    def all_say(*words: str) -> bool:
        return len(last) == 12 and set(last.values()) <= set(words)

    async with opened(own_etcd.endpoint, timeout_s=0.5) as store:
        callers = [asyncio.create_task(call_on(store, n)) for n in range(12)]
        await eventually(lambda: all_say("ok"), what="all work")
        own_etcd.kill()
        await eventually(lambda: all_say("Unreachable", "Uncertain"), what="all fail")
        await asyncio.to_thread(own_etcd.restart)
        await eventually(lambda: all_say("ok"), what="all work again")
        own_etcd.pause()
        await eventually(lambda: all_say("Unreachable", "Uncertain"), what="all fail again")
        own_etcd.resume()
        await eventually(lambda: all_say("ok"), what="all work in the end")
        done.set()
        await asyncio.gather(*callers)


async def test_a_full_store_says_so_and_can_still_be_read(cluster: str) -> None:
    with EmbeddedEtcd(extra=["--quota-backend-bytes=100000"]) as server:
        async with opened(server.endpoint) as store:

            async def full() -> bool:
                try:
                    return not await store.put(f"k{next(numbers)}", b"x" * 20_000)
                except NoSpace:
                    return True

            numbers = itertools.count()
            await eventually(full, what="the quota is used up")
            with pytest.raises(NoSpace):
                await store.txn([Guard("new", 0)], [Put("new", b"")])
            assert await store.get("k0")
            assert (await store.status()).alarms == ("NOSPACE",)
            assert await store.delete("k0")


async def test_many_and_large_values_come_through(etcd: str, cluster: str, following: Any) -> None:
    prefix = f"{cluster}/"
    async with opened(etcd, timeout_s=20.0) as store:
        early = following(store, prefix)
        await eventually(lambda: early.seen, what="a listing")
        for n in range(12):
            await store.put(f"{prefix}{n:02d}", b"x" * 1_000_000)
        assert len((await store.list(prefix)).items) == 12
        await eventually(lambda: len(early.fold()) == 12, what="all changes")
        late = following(store, prefix)
        await eventually(lambda: len(late.fold()) == 12, what="the listing")
        await store.delete_prefix(prefix)
        await eventually(lambda: not early.fold() and not late.fold(), what="the deletes")


async def test_a_closed_store_says_so(etcd: str, following: Any) -> None:
    async with opened(etcd) as store:
        sights = following(store, "k")
        await eventually(lambda: sights.seen, what="a listing")
        await store.close()
        with pytest.raises(StoreError, match="closed"):
            await store.get("k")
