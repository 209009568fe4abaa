"""Holds every request of an HTTP port against `core.door`: let in, or refused, logged and counted."""

import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from aiohttp import web

from rankpulse.core.buckets import Buckets
from rankpulse.core.door import ANYBODY, HOST, RATE, REASONS, SAFE, TOKEN, Caller, Knock, Refusal, decide
from rankpulse.core.settings import HttpSettings
from rankpulse.core.words import printable
from rankpulse.web.connections import Connections
from rankpulse.web.tls import Certificates
from rankpulse.web.tokens import Callers

CALLER: Final[ContextVar[Caller]] = ContextVar("caller")  # of the request that is being answered
STILL: Final[ContextVar[Callable[[], bool]]] = ContextVar(
    "still", default=lambda: True
)  # whether it would be let in now
ASK: Final = {"WWW-Authenticate": 'Basic realm="rankpulse: any name, a token as the password", Bearer'}
HEADERS: Final = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"}
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Door:
    """One port's. `say(level, text)` writes to the log; `refused` counts by reason.

    `hint`: what else is told to who may not act; `headers`: of such an answer.
    """

    def __init__(
        self,
        settings: HttpSettings,
        say: Callable[[str, str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        hint: str = "",
        headers: Mapping[str, str] = HEADERS,
    ) -> None:
        """Raises `StoreError` for a file of tokens that cannot serve, and `OSError` for such certificates."""
        self._callers, self._say, self._clock = Callers(settings.tokens_file, say, clock), say, clock
        self._hint, self._headers = hint, headers
        self.certificates = Certificates(settings.cert_file, settings.key_file, say)
        self._hosts = frozenset(name.lower().rstrip(".") for name in (*settings.hosts, socket.gethostname()))
        self._all, self._bad = Buckets(settings.per_minute), Buckets(settings.refused_per_minute)
        self.connections = Connections()
        self.refused: Counter[str] = Counter(dict.fromkeys(REASONS, 0))

    @property
    def scheme(self) -> str:
        return "https" if self.certificates.context else "http"

    @property
    def knows_callers(self) -> bool:
        """Whether it asks for tokens."""
        return bool(self._callers.get())

    def middleware(self) -> Any:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._guard(request, handler)

        return guard

    async def _guard(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        peer = request.remote or "?"
        if not self._all.one_more(peer, self._clock()):
            return self._refuse(request, peer, Refusal(429, RATE, "too many requests: try again in a minute"))
        known = self._callers.get()
        knock = _knock(request, peer)
        found = decide(knock, known, self._hosts)
        if isinstance(found, Refusal):
            return self._refuse(request, peer, found)
        CALLER.set(found)
        STILL.set(lambda: not isinstance(decide(knock, self._callers.get(), self._hosts), Refusal))
        if not known or found is not ANYBODY:
            self.connections.let_in(request.transport)
        answer = await handler(request)
        if known and found is ANYBODY:
            return web.Response(status=answer.status, text="ok\n" if answer.status < 400 else "not ok\n")
        return answer

    def _refuse(self, request: web.Request, peer: str, refusal: Refusal) -> web.Response:
        """Said in the log until an address has been refused too often in a minute; counted always."""
        self.refused[refusal.what] += 1
        if self._bad.one_more(peer, self._clock()):
            what = f"{printable(request.method, 10)} {printable(request.rel_url.raw_path, 100)}"
            self._say("warning", f"refused {what} from {printable(peer, 50)}: {refusal.said}")
        elif refusal.status in (401, 403):
            refusal = Refusal(429, RATE, "refused too often: try again in a minute")
        headers = {**self._headers, **(ASK if refusal.status == 401 and refusal.what == TOKEN else {})}
        if refusal.status == 429:
            headers["Retry-After"] = "60"
        hint = f"\n{self._hint}" if self._hint and request.method not in SAFE and refusal.what != HOST else ""
        return web.Response(status=refusal.status, text=f"{refusal.said}\n{hint}", headers=headers)


def _knock(request: web.Request, peer: str) -> Knock:
    """A header that is there twice counts as none: which of them would another reader take?"""
    given = request.headers.getall("Authorization", [])
    authorization = given[0] if len(given) == 1 else "?" if given else ""
    hosts = request.headers.getall("Host", [])
    host = hosts[0] if len(hosts) == 1 else ""
    return Knock(request.method, request.path, host, peer, request.secure, authorization)
