"""Addresses as people write them: places to listen, and endpoints of the store. Understood once, by nobody else."""

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")
_FORMS: Final = "write host:port, [IPv6]:port, http://host:port or https://host:port"


class BadAddress(ValueError):
    """This is not an address; the text says how one is written."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One place where etcd listens. `tls`: whether we speak TLS to it."""

    host: str
    port: int
    tls: bool

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}"

    @property
    def target(self) -> str:
        """As gRPC wants it. Names are resolved by gRPC, again at each connection: addresses behind a name change."""
        family = _family(self.host)
        if family == 4:
            return f"ipv4:{self.host}:{self.port}"
        return f"ipv6:[{self.host}]:{self.port}" if family == 6 else f"dns:///{self.host}:{self.port}"


def parse_endpoint(text: str, *, tls: bool) -> Endpoint:
    """One endpoint. `tls`: certificates are configured, so a form without a scheme means TLS. Raises `BadAddress`."""
    scheme, rest = _scheme(text.strip())
    if "@" in rest:  # not repeated in the message: it may hold a password
        raise BadAddress("no user or password in an endpoint; use store.user and store.password_file")
    found = _split(rest.removesuffix("/"))
    if found is None:
        raise BadAddress(f"endpoint {text!r}: {_FORMS}")
    host, port = found
    if not 0 < port < 65536:
        raise BadAddress(f"endpoint {text!r}: the port must be a number from 1 to 65535")
    if scheme == "http" and tls:
        raise BadAddress(f"endpoint {text!r} says http, but store.ca_file or store.cert_file asks for TLS: use https")
    return Endpoint(host, port, tls or scheme == "https")


def hosts_of(endpoints: Iterable[str]) -> tuple[str, ...]:
    """The hosts that endpoints name; what is no endpoint is left out."""
    found = (_split(_scheme(text.strip())[1].removesuffix("/")) for text in endpoints)
    return tuple(place[0] for place in found if place)


def parse_listen(text: str) -> tuple[str, int]:
    """`host:port`, `[v6]:port` or `:port` (all interfaces) taken apart; port 0: any free one. Raises `BadAddress`."""
    found = ("0.0.0.0", _port(text[1:])) if text.startswith(":") else _split(text)
    if found is None or not 0 <= found[1] < 65536:
        raise BadAddress(f"{text!r}: write host:port, [IPv6]:port or :port, the port from 0 to 65535")
    return found


def check_page(text: str) -> str:
    """The address of a page, for a link. Raises `BadAddress`."""
    if not re.fullmatch(r"https?://[^\s\"'<>]+", text):
        raise BadAddress(f"{text[:100]!r}: write http://… or https://…")
    return text


def parse_peer(text: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port` under which another machine is reached, taken apart. Raises `BadAddress`."""
    found = _split(text)
    if found is None or not 0 < found[1] < 65536 or is_wildcard(found[0]):
        raise BadAddress(f"{text[:300]!r}: write host:port or [IPv6]:port as others reach it, the port from 1 to 65535")
    return found


def peer(host: str, port: int) -> str:
    """The text that `parse_peer` takes apart."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there; False for names that only a resolver knows."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_wildcard(host: str) -> bool:
    """Whether it means every interface."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def _scheme(text: str) -> tuple[str, str]:
    scheme, found, rest = text.rpartition("://")
    if found and scheme.lower() not in ("http", "https"):
        raise BadAddress(f"endpoint with the scheme {scheme[:20]!r}: {_FORMS}")
    return scheme.lower(), rest


def _split(text: str) -> tuple[str, int] | None:
    """Host and port; None when it is not of that form, port -1 when that is no number."""
    if text.startswith("["):
        host, _, port = text[1:].partition("]:")
        good = _family(host) == 6
    else:
        host, _, port = text.rpartition(":")
        # what consists of numbers and dots only must be an address: 10.0.0 or 10.0.0.256 is a slip, not a name
        good = _family(host) == 4 or bool(_NAME.fullmatch(host) and re.search(r"[A-Za-z]", host))
    return (host, _port(port)) if good and port else None


def _port(text: str) -> int:
    """-1 for what is no port."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 5 else -1


def _family(host: str) -> int:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0
