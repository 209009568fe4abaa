"""Under which address others reach what listens on this machine."""

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Iterable, Sequence
from typing import Final

from rankpulse.core.addresses import is_loopback, is_wildcard, peer

_RESOLVE_S: Final = 2.0
_FAR: Final = ("192.0.2.1", "2001:db8::1")  # reserved for documentation: only asked which way one would go there


async def numbers_of(hosts: Iterable[str]) -> list[str]:
    """The IP addresses of `hosts`; those that do not resolve within two seconds are left out."""
    found: list[str] = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_RESOLVE_S):
            for host in hosts:
                with contextlib.suppress(OSError, UnicodeError):
                    rows = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
                    found += [str(row[4][0]) for row in rows]
    return found


def advertised(host: str, port: int, name: str, towards: Sequence[str]) -> str:
    """`host:port` as others reach it. A wildcard host: by our address on the way `towards` the store, which is near
    the monitors; else on the way to anywhere, else by the machine's `name`."""
    if not is_wildcard(host):
        return peer(host, port)
    for number in (*towards, *_FAR):
        own = _own_address(number)
        if own and not _near_only(own) and (":" in host or ":" not in own):
            return peer(own, port)
    return peer(name, port)


def _near_only(number: str) -> bool:
    """Whether it means something on this machine or on one cable only."""
    return is_loopback(number) or ipaddress.ip_address(number).is_link_local


def _own_address(number: str) -> str:
    """Our address on the way to that one, "" when there is no way. Sends nothing."""
    family = socket.AF_INET6 if ipaddress.ip_address(number.partition("%")[0]).version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.connect((number, 9))
            return str(sock.getsockname()[0]).partition("%")[0]
    except OSError:
        return ""
