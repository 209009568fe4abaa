"""Metrics computed from the present state at the moment they are asked for; names and help come from the catalogue."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rankpulse.core.catalogue import MONITOR
from rankpulse.monitor.vitals import Vitals

Sample: TypeAlias = tuple[tuple[str, ...], float]  # label values, value
View: TypeAlias = Mapping[str, Any]  # what `page.state` returns


def registry(view: Callable[[], View], vitals: Vitals) -> CollectorRegistry:
    """A registry of its own, so that two monitors can live in one process."""
    made = CollectorRegistry()
    made.register(_Monitor(view, vitals))
    return made


class _Monitor(Collector):
    def __init__(self, view: Callable[[], View], vitals: Vitals) -> None:
        self._view, self._vitals = view, vitals

    def describe(self) -> Iterable[Metric]:
        return ()  # known only when asked; also keeps `register` from collecting

    def collect(self) -> Iterator[Metric]:
        view = self._view()
        for metric in MONITOR:
            kind = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.help, labels=metric.labels)
            samples = SOURCES.get(metric.name)
            for labels, value in samples(view, self._vitals) if samples else ():
                family.add_metric(labels, value)
            yield family


def _one(value: float | None) -> list[Sample]:
    return [] if value is None else [((), float(value))]


def _rows(view: View, section: str, label: str, field: str) -> Iterator[Sample]:
    for row in view.get(section, ()):
        value = row.get(field)
        if value is not None:
            yield (str(row.get(label, "")),), float(value)


def _by_label(view: View, section: str) -> Iterator[Sample]:
    for label, value in view.get(section, {}).items():
        if value is not None:
            yield (str(label),), float(value)


def _running(view: View) -> Iterator[Sample]:
    for row in view.get("runs", ()):
        if row.get("outcome", "running") == "running":
            yield (str(row["run_uid"]), str(row.get("run_id", ""))), 1.0


Source: TypeAlias = Callable[[View, Vitals], Iterable[Sample]]


def _node(field: str) -> Source:
    return lambda view, vitals: _rows(view, "nodes", "node", field)


def _run(field: str) -> Source:
    return lambda view, vitals: _rows(view, "runs", "run_uid", field)


def _section(name: str) -> Source:
    return lambda view, vitals: _by_label(view, name)


SOURCES: Final[Mapping[str, Source]] = {
    "rankpulse_monitor_info": lambda view, vitals: [((view["monitor"], view["version"]), 1.0)],
    "rankpulse_monitor_leader": lambda view, vitals: _one(view["leads"]),
    "rankpulse_monitor_epoch": lambda view, vitals: _one(view["epoch"]),
    "rankpulse_monitor_armed": lambda view, vitals: _one(bool(view.get("armed"))),
    "rankpulse_monitor_blind": lambda view, vitals: _one(bool(view["blind"])),
    "rankpulse_monitor_blind_seconds": lambda view, vitals: _one(view.get("blind_s", vitals.blind_s)),
    "rankpulse_monitor_events": lambda view, vitals: [((kind,), n) for kind, n in sorted(vitals.events.items())],
    "rankpulse_monitor_refused": lambda view, vitals: _one(vitals.refused),
    "rankpulse_monitor_actions": lambda view, vitals: sorted(vitals.actions.items()),
    "rankpulse_monitor_loop_lag_seconds": lambda view, vitals: _one(vitals.loop_lag_s),
    "rankpulse_store_db_bytes": lambda view, vitals: _one(vitals.store.db_bytes if vitals.store else None),
    "rankpulse_store_revision": lambda view, vitals: _one(vitals.store.revision if vitals.store else None),
    "rankpulse_store_alarms": lambda view, vitals: _one(len(vitals.store.alarms) if vitals.store else None),
    "rankpulse_node_silence_seconds": _node("silence_s"),
    "rankpulse_node_deadline_seconds": _node("deadline_s"),
    "rankpulse_node_suspect": _node("suspect"),
    "rankpulse_run_info": lambda view, vitals: _running(view),
    "rankpulse_run_round": _run("round"),
    "rankpulse_run_ranks": _run("ranks"),
    "rankpulse_run_world_size": _run("world_size"),
    "rankpulse_run_step": _run("step"),
    "rankpulse_run_step_spread": _run("step_spread"),
    "rankpulse_run_step_deadline_seconds": _run("step_deadline_s"),
    "rankpulse_incidents_open": _section("incidents_open"),
    "rankpulse_incidents": _section("incidents_total"),
    "rankpulse_restarts": _section("restarts_total"),
    "rankpulse_time_to_detect_seconds": _section("time_to_detect_s"),
    "rankpulse_time_to_recover_seconds": _section("time_to_recover_s"),
}
