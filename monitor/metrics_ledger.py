"""Metrics of the ledger: failures, lost time, who fails too often, whether it becomes more. All from the snapshot."""

from collections.abc import Iterator, Mapping
from typing import Final

from rankpulse.core.ledger import PLANNED, usual
from rankpulse.core.trend import VERDICTS
from rankpulse.monitor import ledger_export
from rankpulse.monitor.samples import CLASSES, Sample, Source, View, counted, single
from rankpulse.monitor.vitals import Vitals

EXPORTS: Final = (ledger_export.OK, ledger_export.FAILED)


def _failures(view: View, vitals: Vitals) -> Iterator[Sample]:
    zeros = dict.fromkeys(f"{klass}/{usual(klass)}" for klass in CLASSES if klass not in PLANNED)
    for name in {**zeros, **view["ledger"]["failures"]}:
        klass, _, component = name.partition("/")
        yield (klass, component), float(view["ledger"]["failures"].get(name, 0))


def _ledger_sum(field: str) -> Source:
    return lambda view, vitals: single(view["ledger"][field])


def _ledger_causes(field: str) -> Source:
    return lambda view, vitals: (((cause,), float(s)) for cause, s in view["ledger"][field].items())


def _between_failures(view: View, vitals: Vitals) -> Iterator[Sample]:
    """Bounds that are infinite have no sample."""
    for component, bounds in view["ledger"]["between_failures_gpu_s"].items():
        yield from (((component, bound), float(s)) for bound, s in bounds.items() if s is not None)


def _run_lost(view: View, vitals: Vitals) -> Iterator[Sample]:
    for uid, run in view["ledger"]["runs"].items():
        yield from (((uid, cause), float(s)) for cause, s in run["lost_s"].items())


def _run_share(field: str) -> Source:
    def samples(view: View, vitals: Vitals) -> Iterator[Sample]:
        for uid, run in view["ledger"]["runs"].items():
            if run[field] is not None:
                yield (uid,), float(run[field])

    return samples


def _lemons(view: View, vitals: Vitals) -> Iterator[Sample]:
    yield from (((kind,), float(n)) for kind, n in view["ledger"]["lemons"].items())


def _suspects(field: str) -> Source:
    """Of those that stand out most; a bound that is infinite has no sample."""

    def samples(view: View, vitals: Vitals) -> Iterator[Sample]:
        for row in view["ledger"]["suspects"]:
            if row[field] is not None:
                yield (row["kind"], row["name"]), float(row[field])

    return samples


def _verdict(view: View, vitals: Vitals) -> Iterator[Sample]:
    """Every verdict has its sample, so that a change of it is seen."""
    if trend := view["ledger"]["trend"]:
        yield from (((one,), float(one == trend["verdict"])) for one in VERDICTS)


def _trend(field: str) -> Source:
    """Nothing while there are too few failures to tell."""

    def samples(view: View, vitals: Vitals) -> Iterator[Sample]:
        for name, value in view["ledger"]["trend"][field].items() if view["ledger"]["trend"] else ():
            if value is not None:
                yield (name,), float(value)

    return samples


SOURCES: Final[Mapping[str, Source]] = {
    "rankpulse_ledger_failures": _failures,
    "rankpulse_ledger_lost_seconds": _ledger_causes("lost_s"),
    "rankpulse_ledger_lost_gpu_seconds": _ledger_causes("lost_gpu_s"),
    "rankpulse_ledger_gpu_seconds": _ledger_sum("gpu_s"),
    "rankpulse_ledger_node_seconds": _ledger_sum("node_s"),
    "rankpulse_ledger_run_seconds": _ledger_sum("run_s"),
    "rankpulse_ledger_unseen_seconds": _ledger_sum("unseen_s"),
    "rankpulse_mtbf_gpu_seconds": _between_failures,
    "rankpulse_ledger_entries": _ledger_sum("entries"),
    "rankpulse_ledger_missing": lambda view, vitals: single(vitals.ledger_missing),
    "rankpulse_ledger_exports": counted(lambda vitals: vitals.exports, EXPORTS),
    "rankpulse_run_lost_seconds": _run_lost,
    "rankpulse_run_effective_ratio": _run_share("ettr"),
    "rankpulse_run_goodput_ratio": _run_share("goodput"),
    "rankpulse_ledger_counted_timestamp_seconds": _ledger_sum("counted_at"),
    "rankpulse_lemons": _lemons,
    "rankpulse_lemon_failure_ratio": _suspects("ratio"),
    "rankpulse_lemon_false_discovery_ratio": _suspects("q"),
    "rankpulse_failure_trend": _verdict,
    "rankpulse_failure_trend_p_ratio": _trend("p"),
    "rankpulse_failure_trend_beta": _trend("beta"),
}
