"""Tokens expire and certificates are renewed in the middle of work, and nobody notices."""

import asyncio
import logging
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from certs import Authority
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from fort import CLUSTER, Fort, init
from support import eventually

from rankpulse.core.keys import Keys
from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import Changes, Listing, Lost, Sight
from rankpulse.store.embedded import EmbeddedEtcd, ServerTls
from rankpulse.store.etcd import EtcdStore
from rankpulse.store.renewal import Renewal

pytestmark = pytest.mark.live
KEYS = Keys(CLUSTER)


class Files:
    """A certificate and its key where they are renewed in place."""

    def __init__(self, folder: Path) -> None:
        self.cert_file, self.key_file = folder / "now.pem", folder / "now.key"

    def install(self, authority: Authority, name: str) -> None:
        for target, source in zip((self.cert_file, self.key_file), authority.issue(name), strict=True):
            target.write_bytes(Path(source).read_bytes())

    def settings(self, endpoint: str, ca_file: str) -> StoreSettings:
        files = {"cert_file": str(self.cert_file), "key_file": str(self.key_file)}
        return StoreSettings(endpoints=(endpoint,), ca_file=ca_file, timeout_s=5.0, **files)


class Writer:
    """Beats without end, every one acknowledged, and who follows them."""

    def __init__(self, store: EtcdStore, key: str, prefix: str) -> None:
        self._store, self._key, self._prefix = store, key, prefix
        self.acknowledged, self.heard, self.sights, self.lost = 0, 0, 0, 0
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._follow())]

    async def _write(self) -> None:
        while True:
            await self._store.put(self._key, str(self.acknowledged + 1).encode())
            self.acknowledged += 1
            await asyncio.sleep(0.02)

    async def _follow(self) -> None:
        async with aclosing(self._store.follow(self._prefix)) as sights:  # type: ignore[type-var]
            async for sight in sights:
                self._hear(sight)

    def _hear(self, sight: Sight) -> None:
        """Changes are heard one by one; a listing takes their place where a watch had to begin anew."""
        if isinstance(sight, Listing):
            self.sights += 1
            self.heard = max([self.heard, *(int(item.value) for item in sight.items if item.key == self._key)])
        self.lost += isinstance(sight, Lost)
        if isinstance(sight, Changes):
            values = [int(change.value or 0) for change in sight.changes if change.key == self._key]
            assert not self.heard or not values or values[0] <= self.heard + 1, "a beat was missed"
            self.heard = max([self.heard, *values])

    async def goes_on(self) -> None:
        """Writes and news come as before."""
        now = self.acknowledged
        await eventually(lambda: self.heard > now + 5, 20, "beats go on and are heard")

    async def end(self) -> None:
        for task in self._tasks:
            assert not task.done(), task.exception()
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def test_a_certificate_is_renewed_in_the_middle_of_work(
    fort: Fort, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files, user = Files(tmp_path), "rankpulse.prod.agent.gpu07"
    files.install(fort.authority, user)
    async with fort.opened(files.settings(fort.etcd.endpoint, fort.authority.ca_file)) as store:
        work = Writer(store, KEYS.beat("gpu07"), KEYS.node("gpu07"))
        await work.goes_on()
        first = store._links[0]._wire
        files.install(fort.authority, user)
        await eventually(lambda: store._links[0]._wire is not first, what="a connection with the new certificate")
        await work.goes_on()

        second = store._links[0]._wire
        files.key_file.write_text("half of a key")
        with caplog.at_level(logging.WARNING):
            await eventually(lambda: "cannot serve" in caplog.text, what="a word about files that cannot serve")
        await work.goes_on()

        files.install(Authority(tmp_path, "theirs"), user)
        await eventually(lambda: "does not take us" in caplog.text, what="a word about the wrong CA")
        await work.goes_on()
        assert store._links[0]._wire is second
        await work.end()
        assert (work.lost, work.sights) == (0, 1)


async def test_the_certificate_says_who_we_are_from_then_on(fort: Fort, tmp_path: Path) -> None:
    """What the old user might is not what the new one may."""
    from rankpulse.store.api import Denied

    files = Files(tmp_path)
    files.install(fort.authority, "rankpulse.prod.agent.gpu07")
    async with fort.opened(files.settings(fort.etcd.endpoint, fort.authority.ca_file)) as store:
        await store.put(KEYS.beat("gpu07"), b"1")
        files.install(fort.authority, "rankpulse.prod.agent.gpu08")

        async def refused() -> bool:
            try:
                await store.put(KEYS.beat("gpu07"), b"2")
            except Denied:
                return True
            return False

        await eventually(refused, what="gpu08 is refused where gpu07 was not")
        await store.put(KEYS.beat("gpu08"), b"1")


async def test_tokens_that_no_use_prolongs_run_out_in_the_middle_of_work(tmp_path: Path) -> None:
    """JWT of two seconds, over TLS with client certificates: every few beats needs another."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    (tmp_path / "jwt.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    (tmp_path / "jwt.pub").write_bytes(
        key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    jwt = f"jwt,pub-key={tmp_path}/jwt.pub,priv-key={tmp_path}/jwt.key,sign-method=RS256,ttl=2s"
    authority, passwords = Authority(tmp_path, "ours"), tmp_path / "passwords"
    with EmbeddedEtcd(
        tls=ServerTls(*authority.issue("server"), authority.ca_file), extra=["--auth-token", jwt]
    ) as etcd:
        cert_file, key_file = authority.issue("anybody")
        place: dict[str, Any] = {
            "endpoints": (etcd.endpoint,), "ca_file": authority.ca_file, "cert_file": cert_file, "key_file": key_file,
            "timeout_s": 5.0,
        }  # fmt: skip
        await asyncio.to_thread(init, StoreSettings(**place), "gpu07", password_dir=str(passwords), enable_auth=True)
        user = "rankpulse.prod.agent.gpu07"
        store = EtcdStore(StoreSettings(user=user, password_file=str(passwords / user), **place), progress_s=0.3)
        work, tokens = Writer(store, KEYS.beat("gpu07"), KEYS.node("gpu07")), set[str]()
        await eventually(lambda: tokens.add(store._identity.token) or len(tokens) > 3, 30, "three tokens")
        await work.goes_on()
        await work.end()
        await store.close()
        assert work.lost == 0


def test_files_are_looked_at_once_a_second_and_tried_before_they_are_used(tmp_path: Path) -> None:
    from rankpulse.store.channel import Certificates

    now, files, authority = [0.0], Files(tmp_path), Authority(tmp_path, "ours")
    files.install(authority, "u")
    renewal = Renewal(Certificates(authority.ca_file, str(files.cert_file), str(files.key_file)), lambda: now[0])
    files.install(authority, "u")
    assert not renewal.due()
    now[0] = 1.0
    assert renewal.due()
    now[0] = 2.0
    assert not renewal.due()
    assert renewal.in_vain()
    now[0] = 30.0
    assert not renewal.due()
    now[0] = 33.0
    assert renewal.due(), "tried again: etcd may trust the new CA later, or the path was cut"
    assert not renewal.in_vain(), "and said once"
