"""Users, passwords and tokens."""

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from etcd3aio.auth import AuthService, PermissionType
from etcd3aio.kv import KVService, prefix_range_end
from support import eventually

from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import Denied, StoreError
from rankpulse.store.auth import read_password
from rankpulse.store.embedded import EmbeddedEtcd
from rankpulse.store.etcd import EtcdStore

SECRET = "correct-horse"


@pytest.fixture(scope="module")
def users() -> Iterator[str]:
    """Tokens live one second. User `root`, and `agent` who may touch /mine/ only; all have the same password."""
    with EmbeddedEtcd(extra=["--auth-token-ttl=1"]) as server:
        asyncio.run(enable_at(server.endpoint))
        yield server.endpoint


async def enable_at(endpoint: str) -> None:
    async with grpc.aio.insecure_channel(endpoint) as channel:
        await enable(AuthService(channel))


async def enable(auth: AuthService) -> None:
    await auth.user_add("root", SECRET)
    await auth.role_add("root")
    await auth.user_grant_role("root", "root")
    await auth.role_add("mine")
    await auth.role_grant_permission("mine", "/mine/", prefix_range_end("/mine/"), perm_type=PermissionType.READWRITE)
    await auth.user_add("agent", SECRET)
    await auth.user_grant_role("agent", "mine")
    await auth.auth_enable()


@pytest.fixture
def password(tmp_path: Path) -> str:
    path = tmp_path / "password"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return str(path)


@asynccontextmanager
async def opened(endpoint: str, **settings: Any) -> AsyncIterator[EtcdStore]:
    store = EtcdStore(StoreSettings(endpoints=(endpoint,), timeout_s=5.0, **settings), progress_s=0.3)
    try:
        yield store
    finally:
        await store.close()


@pytest.mark.live
async def test_expired_tokens_are_renewed(users: str, password: str) -> None:
    async with opened(users, user="agent", password_file=password) as store:
        await store.put("/mine/a", b"1")
        first = store._identity.token

        # only a call made after a pause finds its token expired: etcd prolongs tokens that are used
        await eventually(lambda: _expired(users, first), 20, "etcd forgets the token")
        await store.put("/mine/a", b"2")
        assert store._identity.token != first
        lease = await store.grant(5)
        assert await store.keep_alive(lease) > 0


async def _expired(endpoint: str, token: str) -> bool:
    """Asked seldom, since asking prolongs the token's life."""
    await asyncio.sleep(2.5)
    async with grpc.aio.insecure_channel(endpoint) as channel:
        kv = KVService(channel, max_attempts=1)
        kv.set_token(token)
        try:
            await kv.get("/mine/a", timeout=5)
        except Exception as error:
            return "invalid auth token" in str(error)
    return False


@pytest.mark.live
async def test_a_follower_outlives_its_token(users: str, password: str, following: Any) -> None:
    async with opened(users, user="agent", password_file=password) as store:
        sights = following(store, "/mine/follow/")
        await eventually(lambda: sights.seen, what="a listing")
        await eventually(lambda: _expired(users, store._identity.token), 20, "etcd forgets the token")
        await store.put("/mine/follow/a", b"1")
        await eventually(lambda: sights.fold() == {"/mine/follow/a": b"1"}, what="the change")


@pytest.mark.live
async def test_a_restart_of_etcd_forgets_tokens_and_we_do_not_care(password: str, following: Any) -> None:
    with EmbeddedEtcd() as server:
        await enable_at(server.endpoint)
        async with opened(server.endpoint, user="agent", password_file=password) as store:
            await store.put("/mine/a", b"1")
            sights = following(store, "/mine/")
            await eventually(lambda: sights.fold(), what="a listing")
            server.restart()
            await store.put("/mine/a", b"2")
            await eventually(lambda: sights.fold() == {"/mine/a": b"2"}, what="the change")


@pytest.mark.live
async def test_users_switched_on_while_we_run(password: str) -> None:
    with EmbeddedEtcd() as server:
        async with opened(server.endpoint, user="agent", password_file=password) as store:
            assert await store.put("/mine/a", b"1")
            await enable_at(server.endpoint)
            assert await store.put("/mine/a", b"2")


@pytest.mark.live
async def test_what_the_role_does_not_allow(users: str, password: str, following: Any) -> None:
    async with opened(users, user="agent", password_file=password) as store:
        for call in (store.get("/other/a"), store.put("/other/a", b""), store.list("/")):
            with pytest.raises(Denied, match=r"agent.*may not"):
                await call
        sights = following(store, "/other/")
        await eventually(lambda: sights.error, what="the end of the follower")
        assert isinstance(sights.error, Denied)
        assert sights.seen == []


@pytest.mark.live
async def test_a_wrong_password(users: str, tmp_path: Path) -> None:
    path = tmp_path / "wrong"
    path.write_text("battery-staple")
    path.chmod(0o600)
    async with opened(users, user="agent", password_file=str(path)) as store:
        with pytest.raises(Denied, match=r"store\.password_file") as raised:
            await store.get("/mine/a")
        assert "battery" not in str(raised.value)
        path.write_text(SECRET)  # corrected while we run
        assert await store.put("/mine/a", b"")


@pytest.mark.live
async def test_no_user_where_one_is_wanted(users: str) -> None:
    async with opened(users) as store:
        with pytest.raises(Denied, match=r"set store\.user"):
            await store.get("/mine/a")


@pytest.mark.parametrize("content", [b"", b"\n", b"\xff\xfe", b"x" * 5000])
def test_a_file_without_a_password(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "password"
    path.write_bytes(content)
    with pytest.raises(StoreError, match="first line"):
        read_password(str(path))


def test_a_password_file_must_be_a_regular_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path, said in (
        (tmp_path / "pipe", "not a regular file"),
        (tmp_path, "regular|directory"),
        (tmp_path / "none", "No such"),
    ):
        with pytest.raises(StoreError, match=said):
            read_password(str(path))


def test_a_password_that_everybody_can_read_is_warned_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "password"
    path.write_text(SECRET)
    for mode, warned in ((0o644, True), (0o640, False)):
        caplog.clear()
        path.chmod(mode)
        with caplog.at_level(logging.WARNING):
            assert read_password(str(path)) == SECRET
        assert ("chmod 600" in caplog.text) is warned
        assert SECRET not in caplog.text
