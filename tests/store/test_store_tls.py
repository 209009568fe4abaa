"""TLS: what works, and what is said when it does not."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from certs import Authority
from support import eventually

from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import Denied, StoreError, Unreachable
from rankpulse.store.embedded import EmbeddedEtcd, ServerTls
from rankpulse.store.etcd import EtcdStore

pytestmark = pytest.mark.live


@asynccontextmanager
async def opened(*endpoints: str, **settings: Any) -> AsyncIterator[EtcdStore]:
    store = EtcdStore(StoreSettings(endpoints=endpoints, **{"timeout_s": 5.0, **settings}))
    try:
        yield store
    finally:
        await store.close()


async def complaint(kind: type[StoreError], *endpoints: str, **settings: Any) -> str:
    """What a call raises, as a user reads it."""
    async with opened(*endpoints, **settings) as store:
        with pytest.raises(kind) as raised:
            await store.get("k")
    return str(raised.value)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("theirs"), "theirs")


@pytest.fixture(scope="module")
def server(ours: Authority) -> Iterator[EmbeddedEtcd]:
    """Shows a certificate, asks for none."""
    with EmbeddedEtcd(tls=ServerTls(*ours.issue("server"))) as etcd:
        yield etcd


@pytest.fixture(scope="module")
def strict(ours: Authority) -> Iterator[EmbeddedEtcd]:
    """Asks for a client certificate as well."""
    with EmbeddedEtcd(tls=ServerTls(*ours.issue("strict"), ours.ca_file)) as etcd:
        yield etcd


@pytest.mark.parametrize("form", ["{}", "https://{}", "localhost"])
async def test_tls(server: EmbeddedEtcd, ours: Authority, form: str, following: Any) -> None:
    endpoint = f"localhost:{server.port}" if form == "localhost" else form.format(server.endpoint)
    async with opened(endpoint, ca_file=ours.ca_file) as store:
        await store.put("tls", b"1")
        sights = following(store, "tls")
        await eventually(lambda: sights.fold() == {"tls": b"1"}, what="a listing")
        await store.delete("tls")
        await eventually(lambda: sights.fold() == {}, what="the change")


async def test_client_certificates(strict: EmbeddedEtcd, ours: Authority) -> None:
    cert_file, key_file = ours.issue("client")
    async with opened(strict.endpoint, ca_file=ours.ca_file, cert_file=cert_file, key_file=key_file) as store:
        assert await store.put("k", b"1")


async def test_a_client_certificate_is_wanted(strict: EmbeddedEtcd, ours: Authority) -> None:
    assert "store.cert_file" in await complaint(Denied, strict.endpoint, ca_file=ours.ca_file)


async def test_a_client_certificate_of_another_ca(strict: EmbeddedEtcd, ours: Authority, theirs: Authority) -> None:
    cert_file, key_file = theirs.issue("stranger")
    said = await complaint(Denied, strict.endpoint, ca_file=ours.ca_file, cert_file=cert_file, key_file=key_file)
    assert "store.cert_file" in said


async def test_a_server_certificate_of_another_ca(server: EmbeddedEtcd, theirs: Authority) -> None:
    said = await complaint(Denied, server.endpoint, ca_file=theirs.ca_file)
    assert "not trusted" in said
    assert "store.ca_file" in said


async def test_an_expired_server_certificate(ours: Authority) -> None:
    with EmbeddedEtcd(tls=ServerTls(*ours.issue("old", expired=True))) as etcd:
        said = await complaint(Denied, etcd.endpoint, ca_file=ours.ca_file)
    assert "expired" in said
    assert "renew" in said


async def test_a_certificate_for_another_name(ours: Authority) -> None:
    with EmbeddedEtcd(tls=ServerTls(*ours.issue("elsewhere", ip="10.9.9.9", dns="elsewhere"))) as etcd:
        said = await complaint(Denied, etcd.endpoint, ca_file=ours.ca_file)
    assert "another name" in said


async def test_plain_to_a_tls_port(server: EmbeddedEtcd) -> None:
    said = await complaint(Unreachable, server.endpoint)
    assert "TLS" in said
    assert f"https://{server.endpoint}" in said


async def test_tls_to_a_plain_port(etcd: str, ours: Authority) -> None:
    said = await complaint(Unreachable, etcd, ca_file=ours.ca_file)
    assert "does not speak TLS" in said
    assert f"http://{etcd}" in said


async def test_a_follower_with_the_wrong_ca_ends_denied(
    server: EmbeddedEtcd, theirs: Authority, following: Any
) -> None:
    async with opened(server.endpoint, ca_file=theirs.ca_file) as store:
        sights = following(store, "k")
        await eventually(lambda: sights.error, what="the end of the follower")
        assert isinstance(sights.error, Denied)


async def test_renewed_client_certificates_are_used_without_a_restart(
    strict: EmbeddedEtcd, ours: Authority, theirs: Authority, tmp_path: Path
) -> None:
    cert_file, key_file = tmp_path / "now.pem", tmp_path / "now.key"

    def install(authority: Authority) -> None:
        for target, source in zip((cert_file, key_file), authority.issue("rotating"), strict=True):
            target.write_bytes(Path(source).read_bytes())

    install(theirs)
    settings = {"ca_file": ours.ca_file, "cert_file": str(cert_file), "key_file": str(key_file)}
    async with opened(strict.endpoint, **settings) as store:
        with pytest.raises(Denied):
            await store.get("k")
        install(ours)
        assert await store.get("none") is None


@pytest.mark.parametrize("name", ["ca_file", "cert_file"])
async def test_files_that_are_missing_or_hold_something_else(ours: Authority, tmp_path: Path, name: str) -> None:
    cert_file, key_file = ours.issue("client")
    good = {"ca_file": ours.ca_file, "cert_file": cert_file, "key_file": key_file}
    (tmp_path / "junk").write_text("not a certificate")
    for path in (tmp_path / "none", tmp_path / "junk"):
        with pytest.raises(StoreError, match=name):
            EtcdStore(StoreSettings(**{**good, name: str(path)}))  # type: ignore[arg-type]
