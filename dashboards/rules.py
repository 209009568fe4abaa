"""Recording and alert rules, as the file that Prometheus reads."""

from typing import Any, Final

from rankpulse.dashboards.alerting import RECORDS, Alert
from rankpulse.dashboards.alerts_gpus import GPUS
from rankpulse.dashboards.alerts_jobs import CHECKPOINTS, JOBS
from rankpulse.dashboards.alerts_nodes import NODES
from rankpulse.dashboards.alerts_store import LEDGER, RELIABILITY, STORE, TOLD
from rankpulse.dashboards.alerts_watch import WATCH

GROUPS: Final[dict[str, tuple[Alert, ...]]] = {
    "rankpulse-watch": WATCH,
    "rankpulse-nodes": NODES,
    "rankpulse-gpus": GPUS,
    "rankpulse-webhooks": TOLD,
    "rankpulse-jobs": JOBS,
    "rankpulse-checkpoints": CHECKPOINTS,
    "rankpulse-store": STORE,
    "rankpulse-ledger": LEDGER,
    "rankpulse-reliability": RELIABILITY,
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
            "runbook_url": alert.runbook,
        },
    }
