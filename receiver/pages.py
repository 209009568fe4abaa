"""/metrics and /healthz, at a place of their own: who may read them need not reach the port that takes events."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from aiohttp import web
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from rankpulse.core.addresses import parse_listen
from rankpulse.core.catalogue import RECEIVER
from rankpulse.receiver.jobs import ACTUATORS
from rankpulse.receiver.journal import DONE, DRY, FAILED
from rankpulse.receiver.vitals import Vitals
from rankpulse.web.rubbish import log

Samples = Mapping[tuple[str, ...], float]
# there with their zero from the start: a counter that is born at 1 has not grown, for Prometheus
STATUSES: Final = ("204", "400", "401", "403", "409", "413", "429", "503")
REFUSED: Final = ("headers", "signature", "late", "early", "size")
EVENTS: Final = ("accepted", "heard", "had", "denied", "full")


class Collected(Collector):
    """The catalogue's metrics, by name, from `read` at the moment they are asked for."""

    def __init__(self, read: Callable[[], Mapping[str, Samples]]) -> None:
        self._read = read

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        values = self._read()
        for one in RECEIVER:
            kind = CounterMetricFamily if one.type == "counter" else GaugeMetricFamily
            family = kind(one.name, one.help, labels=one.labels)
            for labels, value in sorted(values[one.name].items()):
                family.add_metric(labels, value)
            yield family


def samples(
    vitals: Vitals, *, version: str, dry_run: bool, trouble: str, waiting: int, connections: int
) -> Mapping[str, Samples]:
    ends: dict[tuple[str, ...], float] = {(actuator, end): 0.0 for actuator in ACTUATORS for end in (DONE, FAILED, DRY)}
    return {
        "rankpulse_receiver_info": {(version, str(dry_run).lower()): 1.0},
        "rankpulse_receiver_ready": {(): float(not trouble)},
        "rankpulse_receiver_requests": _counted(STATUSES, vitals.requests),
        "rankpulse_receiver_refused": _counted(REFUSED, vitals.refused),
        "rankpulse_receiver_events": _counted(EVENTS, vitals.events),
        "rankpulse_receiver_actions": {**ends, **vitals.actions},
        "rankpulse_receiver_actions_waiting": {(): float(waiting)},
        "rankpulse_receiver_connections": {(): float(connections)},
        "rankpulse_receiver_connections_dropped": {(): float(vitals.dropped)},
    }


def _counted(known: Iterable[str], counter: Mapping[str, int]) -> Samples:
    return {(name,): float(counter.get(name, 0)) for name in (*known, *counter)}


class Pages:
    """Serves until stopped."""

    def __init__(self, read: Callable[[], Mapping[str, Samples]], trouble: Callable[[], str]) -> None:
        """`trouble`: why events cannot be taken at present, or ""."""
        self._registry, self._trouble = CollectorRegistry(), trouble
        self._registry.register(Collected(read))
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def start(self, listen: str) -> None:
        """Raises `OSError`."""
        host, port = parse_listen(listen)
        app = web.Application()
        app.add_routes([web.get("/metrics", self._metrics), web.get("/healthz", self._healthz)])
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0, logger=log)
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port, backlog=16).start()
        self.url = f"http://{host}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"content-type": CONTENT_TYPE_LATEST})

    async def _healthz(self, request: web.Request) -> web.Response:
        said: Any = self._trouble()
        return web.Response(status=503 if said else 200, text=f"{said or 'ok'}\n")
