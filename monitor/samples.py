"""What metrics are made of: a view of the present state, and samples that are read from it."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from prometheus_client.samples import Exemplar

from rankpulse.core import diagnosis as d
from rankpulse.core import verdict as v
from rankpulse.monitor.tallies import Histogram
from rankpulse.monitor.vitals import Vitals


class Traced(NamedTuple):
    """A count, and what leads to the last thing that it counted."""

    value: float
    exemplar: Exemplar | None


Sample: TypeAlias = tuple[tuple[str, ...], float | Traced | Histogram]  # label values, value
View: TypeAlias = Mapping[str, Any]  # `Monitor.state()`: the engine's snapshot and what the shell adds
Source: TypeAlias = Callable[[View, Vitals], Iterable[Sample]]

# What may be counted is there with its zero from the start: a counter that is born at 1 has not grown, for Prometheus.
CLASSES: Final = (
    d.WORKER_DEAD,
    d.COLLECTIVE_HANG,
    v.COLLECTIVE_MISMATCH,
    v.NETWORK_STALL,
    v.DATA_STALL,
    v.STORAGE_STALL,
    v.GPU_FAULT,
    v.NVLINK_DOMAIN,
    v.OOM,
    v.NUMERICAL,
    d.NON_FINITE,
    d.SILENT_CORRUPTION,
    v.STARTUP_FAILURE,
    d.NODE_DEAD,
    d.SIDECAR_DEAD,
    d.AGENT_CUT_OFF,
    d.CONTROL_PLANE_DELAY,
    d.OPERATOR_RESTART,
    d.DRAIN,
    d.BREAKER_OPEN,
    d.UNKNOWN,
)


def single(value: float | None) -> list[Sample]:
    return [] if value is None else [((), float(value))]


def counted(read: Callable[[Vitals], Mapping[str, int]], known: Iterable[str] = ()) -> Source:
    return lambda view, vitals: [((name,), float(n)) for name, n in {**dict.fromkeys(known, 0), **read(vitals)}.items()]
