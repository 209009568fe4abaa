"""/metrics and /healthz. Metrics are computed from the present state when they are asked for."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from aiohttp import web
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from rankpulse.core import catalogue
from rankpulse.core.addresses import parse_listen
from rankpulse.web.door import Door

# values of one metric: label values -> number
Samples = Mapping[tuple[str, ...], float]


class CatalogueCollector(Collector):
    """Metrics of `table`; `read` returns the samples of each metric by name (a missing name has none at present)."""

    def __init__(self, table: Iterable[catalogue.Metric], read: Callable[[], Mapping[str, Samples]]) -> None:
        self._table = tuple(table)
        self._read = read

    def collect(self) -> Iterable[Metric]:
        values = self._read()
        for one in self._table:
            kind = CounterMetricFamily if one.type == "counter" else GaugeMetricFamily
            family = kind(one.name, one.help, labels=one.labels)
            for labels, value in sorted(values.get(one.name, {}).items()):
                family.add_metric(labels, value)
            yield family


class HttpServer:
    """Serves until closed; `door`: whom it lets in."""

    def __init__(self, collector: Collector, health: Callable[[], Mapping[str, Any]], door: Door) -> None:
        self._door = door
        self._keeping: asyncio.Task[None] | None = None
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        self._health = health
        self._runner: web.AppRunner | None = None

    async def open(self, listen: str) -> str:
        """Listen; returns the address that was taken. Raises OSError (taken, not allowed) or ValueError (bad)."""
        host, port = parse_listen(listen)
        app = web.Application(middlewares=[self._door.middleware()])
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        tls = self._door.certificates
        await web.TCPSite(self._runner, host, port, ssl_context=tls.context).start()
        self._keeping = asyncio.create_task(tls.keep())
        return "{}:{}".format(*self._runner.addresses[0][:2])

    async def close(self) -> None:
        if self._keeping:
            self._keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._keeping
        if self._runner:
            await self._runner.cleanup()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response(self._health())
