"""The receiver's port: bounded requests in, a sentence out. It knows HTTP and TLS, and nothing of events."""

import asyncio
import ssl
from typing import Final

from aiohttp import web

from rankpulse.core.addresses import parse_listen, peer
from rankpulse.receiver.connections import Connections
from rankpulse.receiver.desk import Desk, Reply
from rankpulse.receiver.settings import ReceiverSettings
from rankpulse.receiver.vitals import Vitals
from rankpulse.web.rubbish import log

PATHS: Final = ("/", "/rankpulse")
HEADERS_MAX: Final = 8190  # bytes of one line or header


class TooLarge(Exception):
    """The body is longer than it may be."""


class CannotListen(Exception):
    """The text says why."""


class Server:
    """Serves one `Desk`."""

    def __init__(self, settings: ReceiverSettings, desk: Desk, vitals: Vitals) -> None:
        self._settings, self._desk, self._vitals = settings, desk, vitals
        self._inner = web.Server(
            self._answer,
            access_log=None,
            logger=log,
            max_line_size=HEADERS_MAX,
            max_field_size=HEADERS_MAX,
            keepalive_timeout=1,
        )
        self.connections = Connections(
            self._inner,
            most=settings.limits.connections,
            last_s=settings.limits.exchange_s,
            dropped=self._dropped,
        )
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self, tls: ssl.SSLContext | None) -> None:
        """Raises `CannotListen`."""
        limits, loop = self._settings.limits, asyncio.get_running_loop()
        host, port = parse_listen(self._settings.listen)
        within = limits.exchange_s if tls else None  # of a handshake
        try:
            self._server = await loop.create_server(self.connections, host, port, ssl=tls, ssl_handshake_timeout=within)
        except OSError as error:
            why = error.strerror or error
            raise CannotListen(f"cannot listen on {self._settings.listen}: {why}") from None
        bound = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://{peer(host, bound)}"

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
        await self._inner.shutdown(0.5)

    def _dropped(self) -> None:
        self._vitals.dropped += 1

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        reply = await self._reply(request)
        self._vitals.requests[str(reply.status)] += 1
        headers = {"retry-after": str(reply.retry_after_s)} if reply.retry_after_s else {}
        if reply.status == 204:
            response = web.Response(status=204, reason=reply.text, headers=headers)
        else:
            response = web.Response(status=reply.status, text=f"{reply.text}\n", headers=headers)
        response.force_close()
        return response

    async def _reply(self, request: web.BaseRequest) -> Reply:
        if request.path not in PATHS:
            return Reply(404, "events are taken at /rankpulse")
        if request.method != "POST":
            return Reply(405, "events are posted")
        try:
            body = await _read(request, self._settings.limits.body_max)
        except TooLarge:
            return self._desk.too_large(request.remote or "?")
        return self._desk.answer(request.headers.items(), body, request.remote or "?")


async def _read(request: web.BaseRequest, limit: int) -> bytes:
    if (request.content_length or 0) > limit:
        raise TooLarge
    kept = bytearray()
    async for chunk in request.content.iter_any():
        kept += chunk
        if len(kept) > limit:
            raise TooLarge
    return bytes(kept)
