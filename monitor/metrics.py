"""Metrics computed from the present state at the moment they are asked for; names and help come from the catalogue."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rankpulse.core.catalogue import MONITOR
from rankpulse.monitor.vitals import Vitals

Sample: TypeAlias = tuple[tuple[str, ...], float]  # label values, value
View: TypeAlias = Mapping[str, Any]  # `Monitor.state()`: the engine's snapshot and what the shell adds


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


def _node(field: str) -> "Source":
    return lambda view, vitals: _rows(view["nodes"], lambda row: row.get(field))


def _run(read: Callable[[Mapping[str, Any]], float | None]) -> "Source":
    return lambda view, vitals: _rows(_running(view), read)


def _rows(rows: Mapping[str, Any], read: Callable[[Mapping[str, Any]], float | None]) -> Iterator[Sample]:
    """One sample per row; what is unknown has none, for unknown is not zero."""
    for name, row in rows.items():
        value = read(row)
        if value is not None:
            yield (name,), float(value)


def _running(view: View) -> dict[str, Any]:
    return {uid: run for uid, run in view["runs"].items() if run["outcome"] == "running"}


def _run_info(view: View, vitals: Vitals) -> Iterator[Sample]:
    for uid, run in _running(view).items():
        yield (uid, str(run["run_id"])), 1.0


def _open_incidents(view: View, vitals: Vitals) -> Iterator[Sample]:
    """A class that was seen once keeps its zero, so that a graph comes down again."""
    count = Counter({incident["klass"]: 0 for incident in view["incidents"]})
    count.update(incident["klass"] for incident in view["incidents"] if incident["state"] == "open")
    yield from (((klass,), float(n)) for klass, n in sorted(count.items()))


def _last_of_class(field: str) -> "Source":
    """Of the last incident of each class that has `field`; the snapshot lists them in order of opening."""

    def samples(view: View, vitals: Vitals) -> Iterator[Sample]:
        last = {i["klass"]: i[field] for i in view["incidents"] if i[field] is not None}
        yield from (((klass,), float(value)) for klass, value in sorted(last.items()))

    return samples


def _counted(read: Callable[[Vitals], Mapping[str, int]]) -> "Source":
    return lambda view, vitals: [((name,), float(n)) for name, n in sorted(read(vitals).items())]


Source: TypeAlias = Callable[[View, Vitals], Iterable[Sample]]

SOURCES: Final[Mapping[str, Source]] = {
    "rankpulse_monitor_info": lambda view, vitals: [((view["monitor"], view["version"]), 1.0)],
    "rankpulse_monitor_leader": lambda view, vitals: _one(view["leads"]),
    "rankpulse_monitor_epoch": lambda view, vitals: _one(view["epoch"]),
    "rankpulse_monitor_armed": lambda view, vitals: _one(view["armed"]),
    "rankpulse_monitor_blind": lambda view, vitals: _one(view["blind"]),
    "rankpulse_monitor_blind_seconds": lambda view, vitals: _one(view["blind_seconds_total"]),
    "rankpulse_monitor_events": _counted(lambda vitals: vitals.events),
    "rankpulse_monitor_refused": lambda view, vitals: _one(vitals.refused),
    "rankpulse_monitor_actions": lambda view, vitals: sorted(vitals.actions.items()),
    "rankpulse_monitor_loop_lag_seconds": lambda view, vitals: _one(vitals.loop_lag_s),
    "rankpulse_store_db_bytes": lambda view, vitals: _one(vitals.store.db_bytes if vitals.store else None),
    "rankpulse_store_revision": lambda view, vitals: _one(vitals.store.revision if vitals.store else None),
    "rankpulse_store_alarms": lambda view, vitals: _one(len(vitals.store.alarms) if vitals.store else None),
    "rankpulse_node_silence_seconds": _node("silence_s"),
    "rankpulse_node_deadline_seconds": _node("deadline_s"),
    "rankpulse_node_suspect": _node("suspect"),
    "rankpulse_run_info": _run_info,
    "rankpulse_run_round": _run(lambda run: run["round"]),
    "rankpulse_run_ranks": _run(lambda run: len(run["ranks"])),
    "rankpulse_run_world_size": _run(lambda run: run["world_size"]),
    "rankpulse_run_step": _run(lambda run: run["step"]),
    "rankpulse_run_step_spread": _run(lambda run: run["step_spread"]),
    "rankpulse_run_step_deadline_seconds": _run(lambda run: run["phase_deadline_s"]),
    "rankpulse_incidents_open": _open_incidents,
    "rankpulse_incidents": _counted(lambda vitals: vitals.incidents),
    "rankpulse_restarts": _counted(lambda vitals: vitals.restarts),
    "rankpulse_time_to_detect_seconds": _last_of_class("time_to_detect_s"),
    "rankpulse_time_to_recover_seconds": _last_of_class("time_to_recover_s"),
}
