"""Names of machines to addresses, without waiting for a resolver that does not answer.

The system's resolver cannot be interrupted: each question goes to a thread that nobody waits for at the end, and few
are allowed at once.
"""

import asyncio
import contextlib
import ipaddress
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Final

from rankpulse.core.addresses import is_loopback, parse_peer
from rankpulse.monitor.clock import Clock

FRESH_S: Final = 60.0
QUESTIONS_MAX: Final = 8
KEPT_MAX: Final = 20_000
Lookup = Callable[[str], list[str]]


class Unresolved(Exception):
    """No address is known for that name; the text says why."""


def system_lookup(name: str) -> list[str]:
    """The addresses that this system's resolver knows, at most three. Blocks. Raises OSError."""
    rows = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return list(dict.fromkeys(str(row[4][0]) for row in rows))[:3]


class Names:
    """Remembers what it was told, and goes on with it while the resolver is away."""

    def __init__(self, clock: Clock, lookup: Lookup = system_lookup) -> None:
        self._clock, self._lookup = clock, lookup
        self._known: dict[str, tuple[list[str], float]] = {}  # and when we were told
        self._asked: dict[str, asyncio.Future[list[str]]] = {}

    async def resolve(self, host: str, timeout_s: float) -> list[str]:
        """Addresses of `host`, which may be one itself. Raises `Unresolved`."""
        with contextlib.suppress(ValueError):
            return [str(ipaddress.ip_address(host))]
        known = self._known.get(host)
        if known is not None and self._clock.now() - known[1] < FRESH_S:
            return known[0]
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(self._ask(host))
        except (OSError, TimeoutError, UnicodeError) as error:
            if known is not None:
                return known[0]
            why = "the resolver does not answer" if isinstance(error, TimeoutError) else str(error)
            raise Unresolved(f"the name {host} does not resolve: {why}") from None

    async def places(self, address: str, boot_id: str, own_boot_id: str, timeout_s: float) -> Sequence[tuple[str, int]]:
        """IP addresses and port of an agent that tells `address`, of a machine that booted as `boot_id`.

        Raises `BadAddress` and `Unresolved` with the reason why there are none.
        """
        if not address:
            raise Unresolved("its agent tells no address to be looked at: probe.listen is empty there, or it is older")
        host, port = parse_peer(address)
        if is_loopback(host) and not (boot_id and boot_id == own_boot_id):
            raise Unresolved(
                f"its agent listens at {address}, which only its own machine reaches: set probe.listen there"
            )
        return [(number, port) for number in await self.resolve(host, timeout_s)]

    def _ask(self, host: str) -> "asyncio.Future[list[str]]":
        if host in self._asked:
            return self._asked[host]
        if len(self._asked) >= QUESTIONS_MAX:
            raise TimeoutError
        future: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        future.add_done_callback(lambda done: self._told(host, done))
        self._asked[host] = future
        threading.Thread(target=self._question, args=(host, future), name="resolve", daemon=True).start()
        return future

    def _question(self, host: str, future: "asyncio.Future[list[str]]") -> None:
        """In a thread."""
        found: list[str] | Exception
        try:
            found = self._lookup(host)
        except (OSError, UnicodeError) as error:
            found = error
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            future.get_loop().call_soon_threadsafe(_settle, future, found)

    def _told(self, host: str, done: "asyncio.Future[list[str]]") -> None:
        self._asked.pop(host, None)
        if not done.cancelled() and done.exception() is None:
            if len(self._known) >= KEPT_MAX:
                self._known.clear()
            self._known[host] = done.result(), self._clock.now()


def _settle(future: "asyncio.Future[list[str]]", found: "list[str] | Exception") -> None:
    if future.done():
        return
    if isinstance(found, Exception):
        future.set_exception(found)
    else:
        future.set_result(found)
