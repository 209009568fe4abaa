"""Alerts on the store, the ledger and the webhooks: on what would be lost, or not be told."""

from typing import Final

from rankpulse.dashboards.alerting import (
    CRITICAL,
    FAILED,
    FAILURES,
    GPU_TIME,
    IN_CLUSTER,
    INFO,
    MTBF_LOW,
    WARNING,
    Alert,
    ask,
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
        f"max by (cluster) ({ask('rankpulse_store_db_bytes')} / {ask('rankpulse_store_quota_bytes')}) > 0.75",
        "10m",
        WARNING,
        f"etcd's database has grown to {{{{ $value | humanizePercentage }}}} of its quota{IN_CLUSTER}",
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
        "RankpulseMetricsMissing",
        f"{ask('rankpulse_monitor_metrics_missing')} > 0",
        "1m",
        WARNING,
        "monitor {{ $labels.instance }} cannot make {{ $value }} of its metrics",
        "A bug in rankpulse; its log names them. Alerts that rest on them are silent, whatever happens.",
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

FAILED_TODAY: Final = f"increase({FAILURES}[1d])"
EXPECTED: Final = f"(increase({GPU_TIME}[1d]) / ({MTBF_LOW} offset 1d))"
RELIABILITY: Final = (
    Alert(
        "RankpulseFailuresMoreOften",
        f"{FAILED_TODAY} > {EXPECTED} + 3 * sqrt{EXPECTED} and {FAILED_TODAY} >= 3",
        "15m",
        WARNING,
        f'{{{{ printf "%.0f" $value }}}} failures within a day, far more than before{IN_CLUSTER}',
        "More than chance explains, even at the worst rate that the ledger allowed for a day ago: the time between "
        "failures has dropped.",
    ),
    Alert(
        "RankpulseLemon",
        f"{ask.leader('rankpulse_lemons', 'cluster, kind')} > 0",
        "1h",
        INFO,
        f"{{{{ $value }}}} of kind {{{{ $labels.kind }}}} fail far more often than the rest{IN_CLUSTER}",
        "By the ledger: at least three failures of their own, and hardly by chance. The dashboard of reliability names "
        "them, `rankpulse report` says why.",
    ),
)
