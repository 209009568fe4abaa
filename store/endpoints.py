"""Endpoints as people write them, understood once."""

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rankpulse.store.api import StoreError

_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")
_FORMS: Final = "write host:port, [IPv6]:port, http://host:port or https://host:port"


class BadEndpoint(StoreError, ValueError):
    """This is not an endpoint; the text says how one is written."""


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


def parse_endpoints(texts: Sequence[str], *, tls: bool) -> tuple[Endpoint, ...]:
    """All of them, without repeats. `tls`: certificates are configured, so a form without a scheme means TLS."""
    found = dict.fromkeys(parse_endpoint(text, tls=tls) for text in texts)
    if not found:
        raise BadEndpoint("store.endpoints is empty: name at least one host:port")
    return tuple(found)


def parse_endpoint(text: str, *, tls: bool) -> Endpoint:
    """One endpoint. Raises `BadEndpoint`."""
    scheme, rest = _scheme(text.strip())
    if "@" in rest:  # not repeated in the message: it may hold a password
        raise BadEndpoint("store.endpoints: no user or password in an endpoint; use store.user and store.password_file")
    host, port = _split(rest.removesuffix("/"), text)
    if scheme == "http" and tls:
        raise BadEndpoint(f"endpoint {text!r} says http, but store.ca_file or store.cert_file asks for TLS: use https")
    return Endpoint(host, port, tls or scheme == "https")


def _scheme(text: str) -> tuple[str, str]:
    scheme, found, rest = text.rpartition("://")
    if found and scheme.lower() not in ("http", "https"):
        raise BadEndpoint(f"endpoint with the scheme {scheme[:20]!r}: {_FORMS}")
    return scheme.lower(), rest


def _split(rest: str, text: str) -> tuple[str, int]:
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]:")
        good = _family(host) == 6
    else:
        host, _, port = rest.rpartition(":")
        # what consists of numbers and dots only must be an address: 10.0.0 or 10.0.0.256 is a slip, not a name
        good = _family(host) == 4 or bool(_HOST.fullmatch(host) and re.search(r"[A-Za-z]", host))
    if not good or not port:
        raise BadEndpoint(f"endpoint {text!r}: {_FORMS}")
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise BadEndpoint(f"endpoint {text!r}: the port must be a number from 1 to 65535")
    return host, int(port)


def _family(host: str) -> int:
    try:
        return ipaddress.ip_address(host).version
    except ValueError:
        return 0
