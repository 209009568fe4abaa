"""Metrics computed from the present state at the moment they are asked for; names and help come from the catalogue."""

import logging
import platform
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from rankpulse.core import catalogue
from rankpulse.core import diagnosis as d
from rankpulse.core import events as ev
from rankpulse.core.catalogue import BUILD, MONITOR
from rankpulse.core.door import REASONS
from rankpulse.monitor import executor, metrics_incidents, metrics_ledger
from rankpulse.monitor.metrics_incidents import is_open
from rankpulse.monitor.samples import Sample, Source, Traced, View, counted, single
from rankpulse.monitor.tallies import Histogram, of_incident
from rankpulse.monitor.vitals import Vitals

log = logging.getLogger("rankpulse.monitor")
MISSING: Final = "rankpulse_monitor_metrics_missing"
OUTCOMES: Final = (d.FINISHED, d.STOPPED_BY_USER, d.FAILED, d.ABANDONED)
ASKED: Final = ("told", "nothing")
GATES: Final = ("go", "without", "stop")
RESTARTED_BY: Final = ("torchelastic", "order")
POSTS: Final = (ev.TAKEN, ev.FAILED, ev.GONE, ev.UNSENT)
PROBES: Final = (ev.ANSWERED, ev.ACCEPTED, ev.REFUSED, ev.SILENT, ev.UNABLE)
ACTIONS: Final = tuple(
    (kind, result)
    for kind in ("create", "erase", "write")
    for result in (executor.DEPOSED, executor.DONE, executor.EXISTS, executor.FAILED)
)


def registry(view: Callable[[], View], vitals: Vitals) -> CollectorRegistry:
    """A registry of its own, so that two monitors can live in one process."""
    made = CollectorRegistry()
    made.register(_Monitor(view, vitals))
    ProcessCollector(registry=made)
    return made


class _Monitor(Collector):
    def __init__(self, view: Callable[[], View], vitals: Vitals) -> None:
        self._view, self._vitals = view, vitals
        self._complained: set[str] = set()

    def describe(self) -> Iterable[Metric]:
        return ()  # known only when asked; also keeps `register` from collecting

    def collect(self) -> Iterator[Metric]:
        """One that cannot be made is left out and counted, for what it would say must not be guessed."""
        view, self._vitals.metrics_missing = self._view(), 0
        for metric in sorted((BUILD, *MONITOR), key=lambda metric: metric.name == MISSING):  # which counts, and is last
            try:
                yield self._family(metric, view)
            except Exception as error:
                self._vitals.metrics_missing += 1
                self._complain(metric.name, error)

    def _family(self, metric: catalogue.Metric, view: View) -> Metric:
        family: Metric = _FAMILIES[metric.type](metric.name, metric.help, labels=metric.labels)
        for labels, value in SOURCES[metric.name](view, self._vitals):
            _add(family, labels, value)
        return family

    def _complain(self, name: str, error: Exception) -> None:
        """Once for each metric."""
        if name not in self._complained:
            self._complained.add(name)
            log.error("metric %s cannot be made: a bug in rankpulse, please report it", name, exc_info=error)


_FAMILIES: Final[Mapping[str, Callable[..., Any]]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


def _add(family: Any, labels: tuple[str, ...], value: float | Traced | Histogram) -> None:
    if isinstance(value, Histogram):
        family.add_metric(labels, buckets=list(value.buckets()), sum_value=value.sum)
    elif isinstance(value, Traced):
        family.add_metric(labels, value.value, exemplar=value.exemplar)
    else:
        family.add_metric(labels, value)


def _node(field: str) -> Source:
    return lambda view, vitals: _rows(view["nodes"], lambda row: row.get(field))


def _reached(row: Mapping[str, Any]) -> float | None:
    """A standby looks at nobody, and says nothing."""
    look = row.get("look")
    return float(look["reached"]) if look and (look["reached"] or look["answer"]) else None


def _broken(row: Mapping[str, Any]) -> bool:
    return bool((row.get("health") or {}).get("faults"))


def _run(read: Callable[[Mapping[str, Any]], float | None]) -> Source:
    return lambda view, vitals: _rows(_running(view), read)


def _rows(rows: Mapping[str, Any], read: Callable[[Mapping[str, Any]], float | None]) -> Iterator[Sample]:
    """One sample per row; what is unknown has none, for unknown is not zero."""
    for name, row in rows.items():
        value = read(row)
        if value is not None:
            yield (name,), float(value)


def _running(view: View) -> dict[str, Any]:
    return {uid: run for uid, run in view["runs"].items() if run["outcome"] == "running"}


def _checkpoint(field: str, unknown: float | None = None) -> Source:
    """Of every run that goes on and has told of its checkpoints; what was never said has no sample."""

    def read(run: Mapping[str, Any]) -> float | None:
        value = run["checkpoint"][field] if run["checkpoint"] is not None else None
        return None if value == unknown else value

    return _run(read)


def _checkpoint_count(field: str) -> Source:
    """Zero from the start, also while nothing is known."""
    return _run(lambda run: run["checkpoint"][field] if run["checkpoint"] is not None else 0)


def _advice(bounds: Mapping[str, str]) -> Source:
    """What the advice of every run that goes on says, where it has one; `bounds`: field by label."""

    def samples(view: View, vitals: Vitals) -> Iterator[Sample]:
        for uid, run in _running(view).items():
            for bound, field in bounds.items() if run["advice"] else ():
                yield (uid, bound), float(run["advice"][field])

    return samples


def _run_info(view: View, vitals: Vitals) -> Iterator[Sample]:
    for uid, run in _running(view).items():
        yield (uid, str(run["run_id"])), 1.0


def _still(run: Mapping[str, Any]) -> float | None:
    return min((row["stale_s"] for row in run["ranks"] if "stale_s" in row), default=None)


def _ranks_by(field: str) -> Source:
    """How many ranks of each run have which value of `field`; a rank that no beat has told of is left out."""

    def samples(view: View, vitals: Vitals) -> Iterator[Sample]:
        for uid, run in _running(view).items():
            count = Counter(row[field] for row in run["ranks"] if field in row)
            yield from (((uid, value), float(n)) for value, n in sorted(count.items()))

    return samples


def _steps_behind(view: View, vitals: Vitals) -> Iterator[Sample]:
    for uid, run in _running(view).items():
        told = [row for row in run["ranks"] if "step" in row]
        fastest = max((row["step"] for row in told), default=0)
        lowest: dict[str, int] = {}
        for row in told:
            lowest[row["node"]] = min(row["step"], lowest.get(row["node"], fastest))
        yield from (((uid, node), float(fastest - step)) for node, step in sorted(lowest.items()))


def _stragglers(view: View, vitals: Vitals) -> Iterator[Sample]:
    for uid, run in _running(view).items():
        for one in run["stragglers"]:
            yield (uid, one["node"], str(one["rank"])), float(one["ratio"])


def _phase_deadlines(view: View, vitals: Vitals) -> Iterator[Sample]:
    for uid, run in _running(view).items():
        yield from (((uid, phase), float(clock["deadline_s"])) for phase, clock in run["clocks"].items())


def _of_run(count: Callable[[Mapping[str, Any]], int]) -> Source:
    """For every run that goes on, the sum of `count` over its incidents."""

    def samples(view: View, vitals: Vitals) -> Iterator[Sample]:
        total = Counter(dict.fromkeys(_running(view), 0))
        for incident in view["incidents"]:
            if incident["run_uid"] in total:
                total[incident["run_uid"]] += count(incident)
        yield from (((uid,), float(n)) for uid, n in sorted(total.items()))

    return samples


def _targets(field: str) -> Source:
    return lambda view, vitals: (((name,), float(row[field])) for name, row in view["outbox"]["targets"].items())


def _attempts(view: View, vitals: Vitals) -> Iterator[Sample]:
    zeros = dict.fromkeys(((name, outcome) for name in view["outbox"]["targets"] for outcome in POSTS), 0)
    yield from ((labels, float(n)) for labels, n in {**zeros, **vitals.posts}.items())


def _build(view: View, vitals: Vitals) -> Iterator[Sample]:
    yield ("monitor", view["version"], platform.python_version()), 1.0


def _restarts(view: View, vitals: Vitals) -> Iterator[Sample]:
    for by, count in {**dict.fromkeys(RESTARTED_BY, 0), **vitals.restarts}.items():
        last = vitals.last_restart.get(by)
        yield (by,), Traced(float(count), of_incident(last, 1.0) if last else None)


SOURCES: Final[Mapping[str, Source]] = {
    **metrics_incidents.SOURCES,
    **metrics_ledger.SOURCES,
    "rankpulse_build_info": _build,
    "rankpulse_monitor_tick_seconds": lambda view, vitals: [((), vitals.tick_s)],
    "rankpulse_monitor_beat_delay_seconds": lambda view, vitals: [((), vitals.beat_delay_s)],
    "rankpulse_monitor_echo_age_seconds": lambda view, vitals: single(view["echo_age_s"]),
    "rankpulse_store_write_seconds": lambda view, vitals: [((), vitals.store_write_s)],
    "rankpulse_store_status_age_seconds": lambda view, vitals: single(view["store"]["age_s"]),
    "rankpulse_monitor_info": lambda view, vitals: [((view["monitor"], view["version"]), 1.0)],
    "rankpulse_monitor_leader": lambda view, vitals: single(view["leads"]),
    "rankpulse_monitor_epoch": lambda view, vitals: single(view["epoch"]),
    "rankpulse_monitor_armed": lambda view, vitals: single(view["armed"]),
    "rankpulse_monitor_breaker_open": lambda view, vitals: single(bool(view.get("breaker"))),
    "rankpulse_monitor_blind": lambda view, vitals: single(view["blind"]),
    "rankpulse_monitor_blind_seconds": lambda view, vitals: single(view["blind_seconds_total"]),
    "rankpulse_monitor_events": counted(lambda vitals: vitals.events),
    "rankpulse_monitor_http_refused": counted(lambda vitals: vitals.http_refused, REASONS),
    "rankpulse_monitor_http_acts": lambda view, vitals: [(labels, float(n)) for labels, n in vitals.acts.items()],
    MISSING: lambda view, vitals: single(vitals.metrics_missing),
    "rankpulse_monitor_refused": lambda view, vitals: single(vitals.refused),
    "rankpulse_monitor_actions": lambda view, vitals: (
        (labels, float(n)) for labels, n in {**dict.fromkeys(ACTIONS, 0), **vitals.actions}.items()
    ),
    "rankpulse_monitor_loop_lag_seconds": lambda view, vitals: single(vitals.loop_lag_s),
    "rankpulse_monitor_probes": counted(lambda vitals: vitals.probes, PROBES),
    "rankpulse_monitor_probe_seconds": lambda view, vitals: single(vitals.probe_s),
    "rankpulse_store_db_bytes": lambda view, vitals: single(vitals.store.db_bytes if vitals.store else None),
    "rankpulse_store_in_use_bytes": lambda view, vitals: single(
        (vitals.store.in_use_bytes or None) if vitals.store else None
    ),
    "rankpulse_store_quota_bytes": lambda view, vitals: single(vitals.quota_bytes or None),
    "rankpulse_store_revision": lambda view, vitals: single(vitals.store.revision if vitals.store else None),
    "rankpulse_store_alarms": lambda view, vitals: single(len(vitals.store.alarms) if vitals.store else None),
    "rankpulse_node_silence_seconds": _node("silence_s"),
    "rankpulse_node_deadline_seconds": _node("deadline_s"),
    "rankpulse_node_suspect": _node("suspect"),
    "rankpulse_node_reached": lambda view, vitals: _rows(view["nodes"], _reached),
    "rankpulse_node_leaving": _node("leaving"),
    "rankpulse_run_info": _run_info,
    "rankpulse_run_round": _run(lambda run: run["round"]),
    "rankpulse_run_ranks": _run(lambda run: len(run["ranks"])),
    "rankpulse_run_world_size": _run(lambda run: run["world_size"]),
    "rankpulse_run_step": _run(lambda run: run["step"]),
    "rankpulse_run_step_spread": _run(lambda run: run["step_spread"]),
    "rankpulse_run_step_deadline_seconds": _run(lambda run: run["phase_deadline_s"]),
    "rankpulse_run_still_seconds": _run(_still),
    "rankpulse_run_ranks_in_state": _ranks_by("state"),
    "rankpulse_run_ranks_in_phase": _ranks_by("phase"),
    "rankpulse_run_node_steps_behind": _steps_behind,
    "rankpulse_run_straggler_ratio": _stragglers,
    "rankpulse_run_stragglers": _run(lambda run: len(run["stragglers"])),
    "rankpulse_run_slowdown_ratio": _run(lambda run: run["pace"]["slowdown"]),
    "rankpulse_run_phase_deadline_seconds": _phase_deadlines,
    "rankpulse_run_incidents_open": _of_run(lambda incident: int(is_open(incident))),
    "rankpulse_run_restarts": _of_run(lambda incident: int(incident["restarts"])),
    "rankpulse_run_checkpoint_step": _checkpoint("step", -1),
    "rankpulse_run_checkpoint_verified_step": _checkpoint("verified_step", -1),
    "rankpulse_run_checkpoint_age_seconds": _checkpoint("age_s"),
    "rankpulse_run_checkpoint_verified_age_seconds": _checkpoint("verified_age_s"),
    "rankpulse_run_checkpoint_bytes": _checkpoint("bytes", 0),
    "rankpulse_run_checkpoint_save_seconds": _checkpoint("save_s", 0),
    "rankpulse_run_checkpoint_verify_seconds": _checkpoint("verify_s", 0),
    "rankpulse_run_checkpoint_load_seconds": _checkpoint("load_s", 0),
    "rankpulse_run_checkpoint_saves": _checkpoint_count("saves"),
    "rankpulse_run_checkpoint_failures": _checkpoint_count("failures"),
    "rankpulse_run_checkpoint_refused": _checkpoint_count("refused"),
    "rankpulse_checkpoint_durable_step": _checkpoint("durable_step", -1),
    "rankpulse_checkpoint_durable_age_seconds": _checkpoint("durable_age_s"),
    "rankpulse_checkpoint_upload_failures": _checkpoint_count("upload_failures"),
    "rankpulse_checkpoint_interval_advice_seconds": _advice({"best": "interval_s", "low": "low_s", "high": "high_s"}),
    "rankpulse_checkpoint_lost_ratio": _run(lambda run: run["advice"]["lost_share"] if run["advice"] else None),
    "rankpulse_run_mtbf_seconds": _advice({"best": "mtbf_s", "low": "mtbf_low_s", "high": "mtbf_high_s"}),
    "rankpulse_runs_ended": counted(lambda vitals: vitals.ended, OUTCOMES),
    "rankpulse_restarts": _restarts,
    "rankpulse_cordons": lambda view, vitals: single(len(view["cordons"])),
    "rankpulse_nodes_with_broken_gpu": lambda view, vitals: single(sum(map(_broken, view["nodes"].values()))),
    "rankpulse_gates": counted(lambda vitals: vitals.gates, GATES),
    "rankpulse_evidence": lambda view, vitals: single(vitals.evidence),
    "rankpulse_evidence_questions": counted(lambda vitals: vitals.asked, ASKED),
    "rankpulse_webhook_waiting": _targets("waiting"),
    "rankpulse_webhook_dead": _targets("dead"),
    "rankpulse_webhook_attempts": _attempts,
}
