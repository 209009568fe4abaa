"""Addresses as people write them: endpoints of the store, and places to listen."""

import pytest

from rankpulse.core.addresses import BadAddress, parse_endpoint, parse_listen


@pytest.mark.parametrize(
    ("text", "target", "shown"),
    [
        ("127.0.0.1:2379", "ipv4:127.0.0.1:2379", "http://127.0.0.1:2379"),
        ("[::1]:2379", "ipv6:[::1]:2379", "http://[::1]:2379"),
        ("etcd-0.etcd.svc:2379", "dns:///etcd-0.etcd.svc:2379", "http://etcd-0.etcd.svc:2379"),
        ("localhost:1", "dns:///localhost:1", "http://localhost:1"),
        ("http://10.0.0.1:2379/", "ipv4:10.0.0.1:2379", "http://10.0.0.1:2379"),
        ("https://etcd:2379", "dns:///etcd:2379", "https://etcd:2379"),
        (" HTTPS://[fd00::2]:2379 ", "ipv6:[fd00::2]:2379", "https://[fd00::2]:2379"),
    ],
)
def test_good_forms(text: str, target: str, shown: str) -> None:
    endpoint = parse_endpoint(text, tls=False)
    assert (endpoint.target, str(endpoint)) == (target, shown)


@pytest.mark.parametrize(
    "text",
    [
        "", "etcd", ":2379", "etcd:", "etcd:port", "etcd:0", "etcd:65536", "::1:2379", "[::1]", "[::1:2379", "[etcd]:1",
        "ftp://etcd:2379", "http://etcd:2379/v3", "a b:1", "etcd:2379,other:2379", "etcd:²", "10.0.0.256:1",
        "etcd:2379?x=1", "ipv4:1.2.3.4:5",
    ],
)  # fmt: skip
def test_bad_forms_say_what_a_good_one_is(text: str) -> None:
    with pytest.raises(BadAddress, match="endpoint"):
        parse_endpoint(text, tls=False)


def test_a_password_in_an_endpoint_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadAddress) as refused:
        parse_endpoint("http://me:secret@etcd:2379", tls=False)
    assert "secret" not in str(refused.value)


def test_certificates_mean_tls() -> None:
    assert parse_endpoint("etcd:2379", tls=True).tls
    with pytest.raises(BadAddress, match="use https"):
        parse_endpoint("http://etcd:2379", tls=True)


@pytest.mark.parametrize(
    ("listen", "expected"),
    [
        ("127.0.0.1:9460", ("127.0.0.1", 9460)),
        ("[::1]:80", ("::1", 80)),
        (":9460", ("0.0.0.0", 9460)),
        ("gpu07:0", ("gpu07", 0)),
    ],
)
def test_places_to_listen(listen: str, expected: tuple[str, int]) -> None:
    assert parse_listen(listen) == expected


@pytest.mark.parametrize(
    "listen",
    [
        *("", "9460", "host", "host:", "host:port", "host:65536", "host:-1", "h:٣", "h:²", "::1:9460", "[::1]"),
        *("garbage", "a b:1", ":", "http://h:1", "h:" + "9" * 5000),
    ],
)
def test_places_nobody_can_listen(listen: str) -> None:
    with pytest.raises(BadAddress, match="write host:port"):
        parse_listen(listen)
