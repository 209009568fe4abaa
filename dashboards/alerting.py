"""What alerts are made of: names, severities, series that rules record. What to do: docs/runbooks/."""

from typing import Final, NamedTuple

from rankpulse.dashboards.promql import Ask

ask: Final = Ask()
RUNBOOKS: Final = "docs/runbooks"
CRITICAL, WARNING, INFO = "critical", "warning", "info"  # wake somebody | this working day | when you come across it
NONE: Final = "none"  # nobody: it fires always
MONITORS: Final = 'up{job="rankpulse-monitor"}'
AGENTS: Final = 'up{job="rankpulse-agent"}'
OPEN: Final = "cluster_class:rankpulse_incidents_open:leader"
PAGING: Final = "cluster_class:rankpulse_incidents_paging:leader"
SUSPECT: Final = "cluster_node:rankpulse_node_suspect:leader"
LOST: Final = 'outcome=~"failed|abandoned"'
FAILED: Final = 'result="failed"'
RESTARTS: Final = "cluster_run_uid:rankpulse_run_restarts:leader"
STEP: Final = "cluster_run_uid:rankpulse_run_step:leader"
AGE: Final = "cluster_run_uid:rankpulse_run_checkpoint_age_seconds:leader"
ADVICE: Final = "cluster_run_uid:rankpulse_checkpoint_interval_advice_seconds_best:leader"
LOST_SHARE: Final = "cluster_run_uid:rankpulse_checkpoint_lost_ratio:leader"
FAILURES: Final = "cluster:rankpulse_ledger_failures:leader"
GPU_TIME: Final = "cluster:rankpulse_ledger_gpu_seconds:leader"
MTBF_LOW: Final = "cluster:rankpulse_mtbf_gpu_seconds_low:leader"
VERIFIED_AGE: Final = "cluster_run_uid:rankpulse_run_checkpoint_verified_age_seconds:leader"


class Record(NamedTuple):
    """A series made from others: what the leading monitor says, without the labels of the monitor."""

    name: str
    expr: str
    labels: tuple[str, ...]


class Alert(NamedTuple):
    """`wait` as Prometheus writes durations. The texts may use `{{ $labels.node }}` and `{{ $value }}`."""

    name: str
    expr: str
    wait: str
    severity: str
    summary: str
    description: str

    @property
    def runbook(self) -> str:
        """Where it says what to do: a page of this repository."""
        return f"{RUNBOOKS}/{self.name}.md"


def _leader(name: str, metric: str, *labels: str) -> Record:
    by = ("cluster", *labels)
    return Record(name, ask.leader(metric, ", ".join(by)), by)


_EACH: Final = ask.leader("rankpulse_ledger_failures", "cluster, class, component")
_LOW_OF_ALL: Final = ('component="all"', 'bound="low"')
_ADVISED: Final = ask.leader("rankpulse_checkpoint_interval_advice_seconds", "cluster, run_uid", 'bound="best"')
RECORDS: Final = (
    _leader(OPEN, "rankpulse_incidents_open", "class"),
    _leader(PAGING, "rankpulse_incidents_paging", "class"),
    _leader(SUSPECT, "rankpulse_node_suspect", "node"),
    _leader(RESTARTS, "rankpulse_run_restarts", "run_uid"),
    _leader(STEP, "rankpulse_run_step", "run_uid"),
    _leader(VERIFIED_AGE, "rankpulse_run_checkpoint_verified_age_seconds", "run_uid"),
    _leader(AGE, "rankpulse_run_checkpoint_age_seconds", "run_uid"),
    Record(ADVICE, _ADVISED, ("cluster", "run_uid")),
    _leader(LOST_SHARE, "rankpulse_checkpoint_lost_ratio", "run_uid"),
    Record(FAILURES, f"sum by (cluster) ({_EACH})", ("cluster",)),
    _leader(GPU_TIME, "rankpulse_ledger_gpu_seconds"),
    Record(MTBF_LOW, ask.leader("rankpulse_mtbf_gpu_seconds", "cluster", *_LOW_OF_ALL), ("cluster",)),
)
IN_CLUSTER: Final = "{{ with $labels.cluster }} in cluster {{ . }}{{ end }}"
