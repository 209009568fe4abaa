"""Recording and alert rules, as values. What each alert asks of its reader stands in docs/dashboards.md."""

from typing import Any, Final, NamedTuple

from rankpulse.dashboards.promql import Ask

ask: Final = Ask()
PAGE: Final = "docs/dashboards.md"
CRITICAL, WARNING, INFO = "critical", "warning", "info"  # wake somebody | this working day | when you come across it
MONITORS: Final = 'up{job="rankpulse-monitor"}'
AGENTS: Final = 'up{job="rankpulse-agent"}'
OPEN: Final = "cluster_class:rankpulse_incidents_open:leader"
PAGING: Final = "cluster_class:rankpulse_incidents_paging:leader"
SUSPECT: Final = "cluster_node:rankpulse_node_suspect:leader"
LOST: Final = 'outcome=~"failed|abandoned"'
FAILED: Final = 'result="failed"'
RESTARTS: Final = "cluster_run_uid:rankpulse_run_restarts:leader"
STEP: Final = "cluster_run_uid:rankpulse_run_step:leader"
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
        """Where it says what to do: a page of this repository and its heading."""
        return f"{PAGE}#{self.name.lower()}"


def _leader(name: str, metric: str, *labels: str) -> Record:
    by = ("cluster", *labels)
    return Record(name, ask.leader(metric, ", ".join(by)), by)


RECORDS: Final = (
    _leader(OPEN, "rankpulse_incidents_open", "class"),
    _leader(PAGING, "rankpulse_incidents_paging", "class"),
    _leader(SUSPECT, "rankpulse_node_suspect", "node"),
    _leader(RESTARTS, "rankpulse_run_restarts", "run_uid"),
    _leader(STEP, "rankpulse_run_step", "run_uid"),
    _leader(VERIFIED_AGE, "rankpulse_run_checkpoint_verified_age_seconds", "run_uid"),
)
IN_CLUSTER: Final = "{{ with $labels.cluster }} in cluster {{ . }}{{ end }}"

WATCH: Final = (
    Alert(
        "RankpulseNoMonitor",
        f"sum by (cluster) ({MONITORS}) == 0 or absent({MONITORS})",
        "2m",
        CRITICAL,
        f"no monitor can be scraped{IN_CLUSTER}",
        "Nobody answers as job rankpulse-monitor. Jobs go on, but nobody watches them: a hang or a crash would be "
        "noticed by nobody.",
    ),
    Alert(
        "RankpulseMonitorDown",
        f"{MONITORS} == 0",
        "5m",
        WARNING,
        "monitor {{ $labels.instance }} cannot be scraped",
        "The other monitors watch on, with fewer to take over.",
    ),
    Alert(
        "RankpulseNoLeader",
        f"sum by (cluster) ({ask('rankpulse_monitor_leader')}) == 0",
        "1m",
        CRITICAL,
        f"no monitor leads{IN_CLUSTER}",
        "Monitors run and none of them leads: nothing is diagnosed and nothing is ordered. Mostly because they do not "
        "reach etcd, or because the one that leads is not scraped.",
    ),
    Alert(
        "RankpulseTwoLeaders",
        f"sum by (cluster) ({ask('rankpulse_monitor_leader')}) > 1",
        "2m",
        WARNING,
        f"{{{{ $value }}}} monitors say that they lead{IN_CLUSTER}",
        "Orders stay fenced, so nothing is done twice. Either two clusters are scraped without the label `cluster`, or "
        "a monitor hangs and has not noticed that it was replaced.",
    ),
    Alert(
        "RankpulseBlind",
        f"min by (cluster) ({ask('rankpulse_monitor_blind')}) == 1",
        "1m",
        CRITICAL,
        f"every monitor is blind{IN_CLUSTER}",
        "No monitor can trust what it sees: no incident is opened, no order given. Look at etcd first.",
    ),
    Alert(
        "RankpulseBreakerOpen",
        f"max by (cluster) ({ask('rankpulse_monitor_breaker_open')}) == 1",
        "0m",
        CRITICAL,
        f"the breaker is open{IN_CLUSTER}: nothing is ordered",
        "Too much of the fleet was silent or left out at once. Find out why, then close it: rankpulse breaker close.",
    ),
    Alert(
        "RankpulseBlindAgain",
        f"max by (cluster, instance) (increase({ask('rankpulse_monitor_blind_seconds')}[1h])) > 300",
        "1m",
        WARNING,
        "monitor {{ $labels.instance }} was blind for {{ $value | humanizeDuration }} of the last hour",
        "Short spells of blindness that add up: a slow etcd, a poor path to it, or an overloaded machine.",
    ),
    Alert(
        "RankpulseLeadChanges",
        f"max by (cluster) (max_over_time({ask('rankpulse_monitor_epoch')}[1h])) - "
        f"min by (cluster) (min_over_time({ask('rankpulse_monitor_epoch')}[1h])) > 4",
        "1m",
        WARNING,
        f"the lead changed {{{{ $value }}}} times within an hour{IN_CLUSTER}",
        "Each change costs some seconds without decisions. The leader loses its lease: etcd slow, or its machine.",
    ),
    Alert(
        "RankpulseMonitorLate",
        f"min_over_time({ask('rankpulse_monitor_loop_lag_seconds')}[5m]) > 0.5",
        "1m",
        WARNING,
        "monitor {{ $labels.instance }} is too slow: its loop is {{ $value | humanizeDuration }} late",
        "The machine is overloaded. Beyond 2 s the monitor calls itself blind.",
    ),
)
NODES: Final = (
    Alert(
        "RankpulseAgentSilent",
        f"{SUSPECT} == 1",
        "1m",
        WARNING,
        f"node {{{{ $labels.node }}}} is silent{IN_CLUSTER}",
        "Its heartbeats have stopped without a goodbye. Either the agent, the path to etcd, or the whole node.",
    ),
    Alert(
        "RankpulseAgentNotScraped",
        f"{AGENTS} == 0",
        "5m",
        WARNING,
        "the agent at {{ $labels.instance }} cannot be scraped",
        "Only its metrics are missing if its heartbeats still arrive (RankpulseAgentSilent tells).",
    ),
    Alert(
        "RankpulseAgentCutOff",
        f"max by (cluster, node) ({ask('rankpulse_agent_store_silence_seconds')}) > 60 or "
        f"max by (cluster, node) ({ask('rankpulse_agent_info')} unless on (cluster, node) "
        f"{ask('rankpulse_agent_store_silence_seconds')})",
        "1m",
        WARNING,
        f"the agent of {{{{ $labels.node }}}} does not reach the store{IN_CLUSTER}",
        "It runs and watches, but no heartbeat of it has been acknowledged for more than a minute, or never.",
    ),
    Alert(
        "RankpulseStoreSilent",
        f"count by (cluster) ({ask('rankpulse_agent_store_silence_seconds')} > 30) / "
        f"count by (cluster) ({ask('rankpulse_agent_info')}) > 0.5",
        "30s",
        CRITICAL,
        f"{{{{ $value | humanizePercentage }}}} of the agents do not reach the store{IN_CLUSTER}",
        "That many at once is not the agents: etcd is down, full, or cut off.",
    ),
    Alert(
        "RankpulseSpoolWaits",
        f"min by (cluster, node) (min_over_time({ask('rankpulse_agent_spooled')}[10m])) > 0",
        "1m",
        WARNING,
        f"observations of {{{{ $labels.node }}}} have waited for ten minutes{IN_CLUSTER}",
        "{{ $value }} observations lie on its disk and do not get into the store.",
    ),
    Alert(
        "RankpulseSpoolDrops",
        f"max by (cluster, node) (increase({ask('rankpulse_agent_dropped')}[15m])) > 0",
        "0m",
        WARNING,
        f"observations of {{{{ $labels.node }}}} are lost: its spool is full{IN_CLUSTER}",
        "What is lost may have been the exit of a worker: incidents of this time may stay unexplained.",
    ),
    Alert(
        "RankpulseSlotsRefused",
        f"max by (cluster, node) (increase({ask('rankpulse_agent_slots_refused')}[15m])) > 0",
        "0m",
        INFO,
        f"slot files of jobs were refused on {{{{ $labels.node }}}}{IN_CLUSTER}",
        "Forged or stale files, another version of rankpulse in the job, or a container whose processes the agent "
        "cannot see. Those workers are not watched.",
    ),
    Alert(
        "RankpulseCordonForgotten",
        f"max by (cluster) ({ask('rankpulse_cordons')}) > 0",
        "1d",
        INFO,
        f"{{{{ $value }}}} nodes have been kept out for a day{IN_CLUSTER}",
        "No new round takes a cordoned node. Perhaps it has long been mended.",
    ),
)
TOLD: Final = (
    Alert(
        "RankpulseWebhookDead",
        f"{ask.leader('rankpulse_webhook_dead', 'cluster, target')} > 0",
        "0m",
        CRITICAL,
        f"webhook {{{{ $labels.target }}}} was not told of {{{{ $value }}}} events{IN_CLUSTER}",
        "They were given up. Whoever is called by that webhook knows nothing of them: a page may be among them.",
    ),
    Alert(
        "RankpulseWebhookFails",
        f"{ask.leader('rankpulse_webhook_waiting', 'cluster, target')} > 0",
        "10m",
        WARNING,
        f"webhook {{{{ $labels.target }}}} has not been told of events for ten minutes{IN_CLUSTER}",
        "It is tried again about once a minute. `rankpulse webhook ls` says what it answers.",
    ),
)
JOBS: Final = (
    Alert(
        "RankpulseIncidentPages",
        f"sum by (cluster, class) ({PAGING}) > 0",
        "1m",
        CRITICAL,
        f"an incident of class {{{{ $labels.class }}}} waits for a person{IN_CLUSTER}",
        "rankpulse cannot or may not solve it. `rankpulse explain last` says what happened and what to do.",
    ),
    Alert(
        "RankpulseIncidentUnanswered",
        f"sum by (cluster, class) ({PAGING}) > 0",
        "30m",
        CRITICAL,
        f"an incident of class {{{{ $labels.class }}}} has waited for half an hour{IN_CLUSTER}",
        "The machines of the job stand idle since. Send this one further up.",
    ),
    Alert(
        "RankpulseIncidentOpenLong",
        f"sum by (cluster, class) ({OPEN}) > 0",
        "1h",
        WARNING,
        f"an incident of class {{{{ $labels.class }}}} has been open for an hour{IN_CLUSTER}",
        "Neither recovered nor passed. A restart that does not succeed, or a path that stays late.",
    ),
    Alert(
        "RankpulseRunFailed",
        f"max by (cluster, outcome) (increase({ask('rankpulse_runs_ended', LOST)}[15m])) > 0",
        "0m",
        WARNING,
        f"a run {{{{ $labels.outcome }}}}{IN_CLUSTER}",
        "It has ended and nobody starts it again. Its incident is closed with it: `rankpulse explain last`.",
    ),
    Alert(
        "RankpulseRestartsAgain",
        f"max_over_time({RESTARTS}[30m]) - min_over_time({RESTARTS}[30m]) >= 3",
        "0m",
        WARNING,
        f"run {{{{ $labels.run_uid }}}} restarted {{{{ $value }}}} times within half an hour{IN_CLUSTER}",
        "It fails again and again. Three orders without progress are the budget (`policy.orders_per_run`), and "
        "torchelastic has its own (`--max-restarts`): soon nobody starts it again.",
    ),
)
CHECKPOINTS: Final = (
    Alert(
        "RankpulseCheckpointSavesFail",
        f"max by (cluster, run_uid) (increase({ask('rankpulse_run_checkpoint_failures')}[30m])) > 0",
        "0m",
        WARNING,
        f"run {{{{ $labels.run_uid }}}} cannot save checkpoints{IN_CLUSTER}",
        "It trains on, and the work since its last checkpoint grows that a restart would lose. `rankpulse status` says "
        "why the last save failed: mostly a full disk.",
    ),
    Alert(
        "RankpulseCheckpointOld",
        f"{VERIFIED_AGE} > 7200 and max_over_time({STEP}[30m]) - min_over_time({STEP}[30m]) > 0",
        "5m",
        WARNING,
        f"run {{{{ $labels.run_uid }}}} trains, and its last verified checkpoint is old{IN_CLUSTER}",
        "For {{ $value | humanizeDuration }} no checkpoint of it was verified. A restart would lose all work since.",
    ),
    Alert(
        "RankpulseCheckpointsRefused",
        f"max by (cluster, run_uid) (increase({ask('rankpulse_run_checkpoint_refused')}[30m])) > 0",
        "0m",
        WARNING,
        f"run {{{{ $labels.run_uid }}}} did not load some of its checkpoints{IN_CLUSTER}",
        "They are damaged, or were set aside because somebody asked for it. The run went on from an older one. Damage "
        "comes from a disk, a file system or a machine that will do it again.",
    ),
)
STORE: Final = (
    Alert(
        "RankpulseStoreAlarm",
        f"max by (cluster) ({ask('rankpulse_store_alarms')}) > 0",
        "0m",
        CRITICAL,
        f"etcd has raised an alarm{IN_CLUSTER}",
        "NOSPACE: it refuses all writes, so everything is blind. CORRUPT: a member must be replaced.",
    ),
    Alert(
        "RankpulseStoreGrows",
        f"max by (cluster) ({ask('rankpulse_store_db_bytes')}) > 1.6e9",
        "10m",
        WARNING,
        f"etcd's database has grown to {{{{ $value | humanize1024 }}}}B{IN_CLUSTER}",
        "At its quota (2 GiB unless raised) it refuses all writes.",
    ),
    Alert(
        "RankpulseRecordsRefused",
        f"max by (cluster) (increase({ask('rankpulse_monitor_refused')}[15m])) > 0",
        "0m",
        WARNING,
        f"records in the store cannot be read{IN_CLUSTER}",
        "They are skipped: of another version, damaged, or forged. The monitor's log names the keys.",
    ),
    Alert(
        "RankpulseDecisionsFail",
        f"sum by (cluster) (increase({ask('rankpulse_monitor_actions', FAILED)}[10m])) > 3",
        "5m",
        WARNING,
        f"decisions cannot be written{IN_CLUSTER}",
        "The store refuses what the leader writes, or is too slow. Each decision is taken anew until it succeeds.",
    ),
)
LEDGER: Final = (
    Alert(
        "RankpulseLedgerLost",
        f"max by (cluster) ({ask('rankpulse_ledger_missing')}) > 0",
        "5m",
        WARNING,
        f"the store has lost {{{{ $value }}}} records of its ledger{IN_CLUSTER}",
        "It was deleted, or restored from an old copy. The monitor's log names the command that brings back what was "
        "exported.",
    ),
    Alert(
        "RankpulseLedgerNotExported",
        f"sum by (cluster) (increase({ask('rankpulse_ledger_exports', FAILED)}[30m])) > 1",
        "10m",
        WARNING,
        f"the ledger cannot be exported{IN_CLUSTER}",
        "Its directory is full, missing or not ours. The store keeps it meanwhile; what happens to the store happens "
        "to the ledger.",
    ),
)
GROUPS: Final[dict[str, tuple[Alert, ...]]] = {
    "rankpulse-watch": WATCH,
    "rankpulse-nodes": NODES,
    "rankpulse-webhooks": TOLD,
    "rankpulse-jobs": JOBS,
    "rankpulse-checkpoints": CHECKPOINTS,
    "rankpulse-store": STORE,
    "rankpulse-ledger": LEDGER,
}
ALERTS: Final = tuple(alert for group in GROUPS.values() for alert in group)


def build() -> dict[str, Any]:
    """The rule file as plain values."""
    records = [{"record": record.name, "expr": record.expr} for record in RECORDS]
    groups = [{"name": name, "rules": [_alert(alert) for alert in group]} for name, group in GROUPS.items()]
    return {"groups": [{"name": "rankpulse-records", "rules": records}, *groups]}


def _alert(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.name,
        "expr": alert.expr,
        "for": alert.wait,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "description": alert.description,
            "runbook": alert.runbook,
        },
    }
