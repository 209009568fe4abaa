"""The endpoints of a store."""

import pytest

from rankpulse.core.settings import StoreSettings
from rankpulse.store.api import StoreError
from rankpulse.store.endpoints import BadEndpoint, parse_endpoints
from rankpulse.store.etcd import open_store


def test_repeats_count_once_and_none_is_an_error() -> None:
    assert len(parse_endpoints(["a:1", "http://a:1", "b:1"], tls=False)) == 2
    with pytest.raises(StoreError):
        parse_endpoints([], tls=False)


@pytest.mark.parametrize("text", ["etcd", "http://me:secret@etcd:2379", "ftp://etcd:1"])
def test_a_slip_is_a_store_error_that_names_the_setting(text: str) -> None:
    with pytest.raises(BadEndpoint, match=r"^store\.endpoints: ") as refused:
        parse_endpoints([text], tls=False)
    assert "secret" not in str(refused.value)


async def test_files_that_do_not_serve_are_all_named() -> None:
    gone = "/nonexistent/file"
    settings = StoreSettings(ca_file=gone, cert_file=gone, key_file="/", user="u", password_file=gone)
    with pytest.raises(StoreError) as refused:
        await open_store(settings)
    for name in ("ca_file", "cert_file", "password_file"):
        assert f"store.{name}: {gone} does not exist" in str(refused.value)
    assert "store.key_file: / is not a regular file" in str(refused.value)
