"""What came of a swarm: figures for people and for programs."""

from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One that was killed. `after_s` None: nobody said so."""

    node: str
    run: str
    after_s: float | None


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, megabytes and processors (cores) where the name says so. None: not known, or not ours to know."""

    nodes: int
    gpus: int
    runs: int
    interval_s: float
    seconds: float
    speaking_after_s: float
    beats_expected: int
    beats_sent: int
    beats_acknowledged: int
    beats_refused: int
    beats_folded: int | None
    errors: dict[str, int]
    store_p50_s: float | None
    store_p99_s: float | None
    to_engine_p50_s: float | None  # upper bound of the histogram's bucket
    to_engine_p99_s: float | None
    monitor_cores: float | None
    monitor_mb: float | None
    etcd_cores: float | None
    etcd_mb: float | None
    etcd_db_mb: float
    swarm_cores: float
    swarm_mb: float
    pages_s: dict[str, tuple[float, float]]  # typical and worst, by path
    killed: list[Found]
    accused: list[dict[str, Any]]  # to whom nothing was done
    incidents: dict[str, int]  # by class
    garbled: int
    refused: int | None  # records that the monitor could not read
    load: float  # of the machine, at the end
    etcd_version: str

    @property
    def found(self) -> int:
        return sum(one.after_s is not None for one in self.killed)

    def sound(self) -> bool:
        """All that was killed was found, and nobody else accused."""
        return self.found == len(self.killed) and not self.accused


def show(report: Report, console: Console) -> None:
    table = Table(title=f"{report.nodes:,} nodes x {report.gpus} GPUs, {report.seconds:.0f} s", show_header=False)
    for name, text in rows(report):
        table.add_row(name, text)
    console.print(table)
    for one in report.accused:
        console.print(f"[red]accused without reason:[/red] {one}")


def rows(report: Report) -> list[tuple[str, str]]:
    after = sorted(one.after_s for one in report.killed if one.after_s is not None)
    share = report.beats_acknowledged / max(report.beats_expected, 1)
    folded = f"{report.beats_folded:,}" if report.beats_folded is not None else "unknown"
    return [
        ("beats expected", f"{report.beats_expected:,}, one per node and {report.interval_s:g} s"),
        ("beats acknowledged", f"{report.beats_acknowledged:,} ({share:.1%}); {_counts(report.errors)}"),
        ("beats folded by the monitor", folded),
        ("store, beat written", f"p50 {_ms(report.store_p50_s)}, p99 {_ms(report.store_p99_s)}"),
        ("beat to engine", f"p50 <= {_ms(report.to_engine_p50_s)}, p99 <= {_ms(report.to_engine_p99_s)}"),
        ("monitor", f"{_num(report.monitor_cores)} cores, {_num(report.monitor_mb, 0)} MB at most"),
        ("etcd", f"{_num(report.etcd_cores)} cores, {_num(report.etcd_mb, 0)} MB, file {report.etcd_db_mb:.0f} MB"),
        ("swarm", f"{report.swarm_cores:.2f} cores, {report.swarm_mb:.0f} MB"),
        ("all nodes speak after", f"{report.speaking_after_s:.1f} s"),
        *(
            (f"answer of {path}", f"{typical:.2f} s, worst {worst:.2f} s")
            for path, (typical, worst) in report.pages_s.items()
        ),
        ("killed, found", f"{len(report.killed)}, {report.found}" + _spread(after)),
        ("accused besides", str(len(report.accused))),
        ("incidents", _counts(report.incidents) or "none"),
        ("records that nobody can read", f"{report.garbled:,} written, {report.refused} refused"),
        ("load of the machine", f"{report.load:.1f}"),
    ]


def _spread(after: list[float]) -> str:
    return f", after {after[0]:.1f} to {after[-1]:.1f} s" if after else ""


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "no errors"


def _ms(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{1000 * seconds:.0f} ms"


def _num(value: float | None, digits: int = 2) -> str:
    return "?" if value is None else f"{value:.{digits}f}"
