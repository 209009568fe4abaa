"""A webhook target as the convention asks for one: it checks signatures, and knows again what it has had."""

import asyncio
import base64
import hmac
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass
class Hook:
    """`status`: what it answers next; `hang`: it takes the request and says nothing."""

    key: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    text: str = ""
    hang: bool = False
    port: int = 0
    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)  # path, headers, body
    effects: dict[str, dict[str, Any]] = field(default_factory=dict)  # by id, once each

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.requests.append((request.path, headers, body))
        if self.hang:
            await asyncio.sleep(60)
        if 200 <= self.status < 300 and self.key:
            assert signed(self.key, headers, body), "a signature that cannot be verified"
            self.effects.setdefault(headers["webhook-id"], json.loads(body))
        return web.Response(status=self.status, headers=self.headers, text=self.text)


def signed(key: bytes, headers: dict[str, str], body: bytes) -> bool:
    """As a receiver checks it, by its own code."""
    told = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    wanted = "v1," + base64.b64encode(hmac.digest(key, told, "sha256")).decode()
    return wanted in headers["webhook-signature"].split(" ")


@asynccontextmanager
async def serving(hook: Hook, tls: ssl.SSLContext | None = None) -> AsyncIterator[Hook]:
    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", hook._take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        hook.port = runner.addresses[0][1]
        yield hook
    finally:
        await runner.cleanup()
