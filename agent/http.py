"""/metrics and /healthz. Metrics are computed from the present state when they are asked for."""

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
from rankpulse.web.port import Port

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
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(collector)
        ProcessCollector(registry=self._registry)
        self._health = health
        self._port: Port | None = None

    async def open(self, listen: str) -> str:
        """Listen; returns the address that was taken. Raises OSError (taken, not allowed) or ValueError (bad)."""
        host, port = parse_listen(listen)
        app = web.Application(middlewares=[self._door.middleware()])
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        self._port = Port(app, self._door)
        return "{}:{}".format(*await self._port.open(host, port))

    async def close(self) -> None:
        if self._port:
            await self._port.close()

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.json_response(self._health())
