"""An HTTP port behind a `Door`: opened, its certificates kept, and closed."""

import asyncio
from contextlib import suppress
from typing import Final

from aiohttp import web

from rankpulse.web.door import Door
from rankpulse.web.rubbish import log

HANDSHAKE_S: Final = 10.0


class Port:
    """Serves an application until it is closed. `door`: whom it lets in."""

    def __init__(self, app: web.Application, door: Door, *, backlog: int = 128) -> None:
        # streams that are watched must not hold up the end
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0, logger=log)
        self._door, self._backlog = door, backlog
        self._server: asyncio.Server | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def open(self, host: str, port: int) -> tuple[str, int]:
        """Listen; returns what was bound. Raises `OSError`: taken, not allowed, no such address."""
        await self._runner.setup()
        tls, connections = self._door.certificates, self._door.connections
        connections.inner = self._runner.server
        within = HANDSHAKE_S if tls.context else None
        try:
            self._server = await asyncio.get_running_loop().create_server(
                connections, host or None, port, ssl=tls.context, ssl_handshake_timeout=within, backlog=self._backlog
            )
        except OSError:
            await self.close()
            raise
        self._keeping = asyncio.create_task(tls.keep())
        bound = self._server.sockets[0].getsockname()
        return bound[0], bound[1]

    async def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._keeping
            self._keeping = None
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._runner.cleanup()
