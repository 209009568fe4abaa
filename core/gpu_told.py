"""What is told of GPUs: as records, as samples of metrics, as JSON values."""

from collections.abc import Iterable, Mapping
from typing import Final

from rankpulse.core.gpu_health import GpuHealth
from rankpulse.core.health_book import Book, Change, Finding
from rankpulse.core.records import GpuRow, HealthFinding, Scalar

OVER_TOLD: Final = 8  # findings that are over, of each
_VALUES: Final[Mapping[str, str]] = {  # metric by figure, as they are
    "ecc_corrected_volatile": "rankpulse_gpu_ecc_corrected_volatile",
    "ecc_uncorrected_volatile": "rankpulse_gpu_ecc_uncorrected_volatile",
    "ecc_corrected_aggregate": "rankpulse_gpu_ecc_corrected_aggregate",
    "ecc_uncorrected_aggregate": "rankpulse_gpu_ecc_uncorrected_aggregate",
    "remap_corrected": "rankpulse_gpu_rows_remapped_corrected",
    "remap_uncorrected": "rankpulse_gpu_rows_remapped_uncorrected",
    "remap_pending": "rankpulse_gpu_row_remap_pending",
    "remap_failed": "rankpulse_gpu_row_remap_failed",
    "retired_pending": "rankpulse_gpu_retired_pages_pending",
    "sram_threshold_exceeded": "rankpulse_gpu_sram_threshold_exceeded",
    "recovery_action": "rankpulse_gpu_recovery_action",
    "pcie_replay": "rankpulse_gpu_pcie_replays",
    "clock_reasons": "rankpulse_gpu_clock_event_reasons",
    "temperature_c": "rankpulse_gpu_temperature_celsius",
    "memory_temperature_c": "rankpulse_gpu_memory_temperature_celsius",
    "memory_used": "rankpulse_gpu_memory_used_bytes",
    "fabric_state": "rankpulse_gpu_fabric_state",
}
_SCALED: Final[Mapping[str, tuple[str, float]]] = {
    "power_mw": ("rankpulse_gpu_power_watts", 1e-3),
    "sm_clock_mhz": ("rankpulse_gpu_sm_clock_hertz", 1e6),
    "busy_percent": ("rankpulse_gpu_busy_ratio", 1e-2),
}
_HELD_DOWN: Final[Mapping[str, str]] = {  # why clocks are held down, by counter of nanoseconds
    "power_cap_ns": "sw_power_cap",
    "sw_thermal_ns": "sw_thermal",
    "hw_thermal_ns": "hw_thermal",
    "power_brake_ns": "hw_power_brake",
}
_LEVELS: Final = {"ok": 0.0, "watch": 1.0, "unknown": 2.0, "sick": 3.0, "broken": 4.0}
Samples = dict[str, dict[tuple[str, ...], float]]


def findings(book: Book) -> tuple[HealthFinding, ...]:
    return tuple(_finding(one) for one in (*book.open, *book.over[:OVER_TOLD]))


def row(gpu: GpuHealth) -> GpuRow:
    who = gpu.identity
    xids = {str(code): one.times for code, one in sorted(gpu.xids.items())}
    return GpuRow(gpu.bus, who.uuid, who.name, who.index, gpu.level, gpu.action, findings(gpu.book), xids)


def detail(change: Change, gpu: GpuHealth | None) -> dict[str, Scalar]:
    """Of the observation `gpu_fault`. None: it is about the node."""
    found = change.finding
    who: dict[str, Scalar] = {"bus": ""}
    if gpu is not None:
        who = {"bus": gpu.bus, "uuid": gpu.identity.uuid, "index": gpu.identity.index}
    about = {
        "what": found.what,
        "level": found.level,
        "action": found.action,
        "text": found.text,
        "source": found.source,
    }
    return {"how": change.how, **who, **about, "count": found.count}


def samples(gpus: Iterable[GpuHealth], host: str) -> Samples:
    """By name of metric and values of its labels. What is not known has no sample: it is not zero."""
    found: Samples = {}
    for gpu in gpus:
        labels = (str(gpu.identity.index) if gpu.identity.index >= 0 else "", gpu.identity.uuid, gpu.bus, host)
        for name, more, value in _of(gpu):
            found.setdefault(name, {})[(*labels, *more)] = value
    return found


def _of(gpu: GpuHealth) -> Iterable[tuple[str, tuple[str, ...], float]]:
    yield "rankpulse_gpu_info", (gpu.identity.name,), 1.0
    yield "rankpulse_gpu_health", (), _LEVELS[gpu.level]
    yield "rankpulse_gpu_resets", (), float(gpu.resets)
    for finding in gpu.book.findings.values():
        yield "rankpulse_gpu_finding", (finding.what, finding.action), float(finding.open)
    for code, xid in gpu.xids.items():
        yield "rankpulse_gpu_xids", (str(code),), float(xid.times)
        yield "rankpulse_gpu_xid_first_seen_timestamp_seconds", (str(code),), xid.first_at
        yield "rankpulse_gpu_xid_last_seen_timestamp_seconds", (str(code),), xid.last_at
    for name, metric in _VALUES.items():
        if name in gpu.values:
            yield metric, (), gpu.values[name]
    for name, (metric, scale) in _SCALED.items():
        if name in gpu.values:
            yield metric, (), gpu.values[name] * scale
    for name, reason in _HELD_DOWN.items():
        if name in gpu.values:
            yield "rankpulse_gpu_held_down_seconds", (reason,), gpu.values[name] * 1e-9
    yield from _of_links(gpu)


def _of_links(gpu: GpuHealth) -> Iterable[tuple[str, tuple[str, ...], float]]:
    """Counters of every kind that this generation has; `all`: of all links together."""
    for name, value in gpu.values.items():
        if name.startswith("nvlink_"):
            yield "rankpulse_gpu_nvlink_errors", ("all", name.removeprefix("nvlink_")), value
    for number, link in enumerate(gpu.links):
        for name, value in link.items():
            if name == "state":
                yield "rankpulse_gpu_nvlink_up", (str(number),), float(value != 0)
            else:
                yield "rankpulse_gpu_nvlink_errors", (str(number), name), value


def _finding(one: Finding) -> HealthFinding:
    return HealthFinding(
        one.what, one.level, one.action, one.text, one.first_at, one.last_at, one.count, one.cleared_at, one.source
    )
