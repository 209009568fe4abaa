"""What the monitor serves over HTTP: its page, `/metrics`, `/healthz`, `/readyz`, `/state`, and `/act`, which asks."""

import asyncio
import errno
import ipaddress
import logging
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from aiohttp import web
from prometheus_client import CollectorRegistry, exposition
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics

from rankpulse.core.addresses import BadAddress, parse_listen
from rankpulse.web.door import Door
from rankpulse.web.port import Port

log = logging.getLogger("rankpulse.monitor")


BACKLOG: Final = 16  # the event loop complains of each of them when no file descriptor is left
SAY_EVERY_S: Final = 60.0


class SeldomSaid:
    """An event loop's complaints; of connections that cannot be taken, which it repeats without end, one a minute."""

    def __init__(self) -> None:
        self._said_at = float("-inf")

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "socket.accept()" not in str(context.get("message")):
            loop.default_exception_handler(context)
        elif loop.time() - self._said_at >= SAY_EVERY_S:
            self._said_at = loop.time()
            log.error("no room for another connection (%s): pages and metrics are not served", context.get("exception"))


class PortTaken(Exception):
    """We cannot listen there; the text says why, and what to do."""


class Pages:
    """The HTTP server. `state` and `trouble` are asked at every request."""

    def __init__(
        self,
        *,
        state: Callable[[], dict[str, Any]],
        alive: Callable[[], str],
        ready: Callable[[], str],
        registry: CollectorRegistry,
        door: Door,
        page: Iterable[web.RouteDef] = (),
    ) -> None:
        """`door`: whom it lets in. `alive` and `ready` return "" or the reason why not.

        `page`: the routes of the page for people, and of what may be asked.
        """
        self._state, self._alive, self._ready, self._registry = state, alive, ready, registry
        self._page, self._door = tuple(page), door
        self._port: Port | None = None

    async def start(self, listen: str) -> str:
        """Serve; returns the URL others can use. Raises `PortTaken`."""
        try:
            host, port = parse_listen(listen)
        except BadAddress as error:
            raise PortTaken(f"monitor.listen {error}") from None
        app = web.Application(middlewares=[self._door.middleware()])
        routes = {"/metrics": self._metrics, "/state": self._json}
        app.add_routes([web.get(path, handler) for path, handler in routes.items()])
        app.add_routes([web.get("/healthz", self._health), web.get("/readyz", self._readiness)])
        app.add_routes(self._page or [web.get("/", self._index)])
        asyncio.get_running_loop().set_exception_handler(SeldomSaid())
        self._port = Port(app, self._door, backlog=BACKLOG)
        try:
            bound = await self._port.open(host, port)
        except OSError as error:
            raise PortTaken(f"cannot listen on {listen}: {_why(error)}") from error
        if not _is_local(host) and not self._door.knows_callers:
            log.warning("listening on %s: anyone who reaches this port can read it: set http.tokens_file", listen)
        return f"{self._door.scheme}://{_reachable(host)}:{bound[1]}"

    async def stop(self) -> None:
        if self._port is not None:
            await self._port.close()
            self._port = None

    async def _index(self, request: web.Request) -> web.Response:
        return web.Response(text="rankpulse monitor: /state /metrics /healthz /readyz\n")

    async def _metrics(self, request: web.Request) -> web.Response:
        """As OpenMetrics, which can carry exemplars, for who asks for it, as Prometheus does; else as plain text.

        Samples are of one moment; to write them down takes as long again, and decisions go on meanwhile.
        """
        told = _Collected(list(self._registry.collect()))
        if "application/openmetrics-text" in request.headers.get("Accept", ""):
            write: Callable[[Any], bytes] = openmetrics.generate_latest
            kind = openmetrics.CONTENT_TYPE_LATEST
        else:
            write, kind = exposition.generate_latest, exposition.CONTENT_TYPE_PLAIN_0_0_4
        made = await asyncio.to_thread(write, told)
        return web.Response(body=made, headers={"Content-Type": kind, "Vary": "Accept"})

    async def _json(self, request: web.Request) -> web.Response:
        return web.json_response(self._state())

    async def _health(self, request: web.Request) -> web.Response:
        return _verdict(self._alive())

    async def _readiness(self, request: web.Request) -> web.Response:
        return _verdict(self._ready())


class _Collected(NamedTuple):
    """What a registry has collected, for who writes it down."""

    families: list[Metric]

    def collect(self) -> list[Metric]:
        return self.families


def _why(error: OSError) -> str:
    """What is in the way, and its remedy."""
    where = "--listen HOST:PORT or monitor.listen in the configuration"
    if isinstance(error, socket.gaierror):
        return f"the name cannot be resolved ({error.strerror}); correct it: {where}"
    if error.errno == errno.EADDRINUSE:
        return f"the port is taken. Another monitor may run here already; choose another place with {where}"
    if error.errno == errno.EACCES:
        return f"not allowed (ports below 1024 need root); choose another place with {where}"
    return f"{error.strerror or error}; is it an address of this machine? Correct {where}"


def _verdict(reason: str) -> web.Response:
    return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)


def _is_local(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reachable(host: str) -> str:
    """The name under which other machines reach what listens on `host`."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
