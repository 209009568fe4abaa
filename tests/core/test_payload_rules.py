"""What other systems publish about the form that they take, held against the largest incident that there can be.

Alertmanager: its OpenAPI v2 (`postableAlerts`), the grammar of labels. Slack: incoming webhooks. PagerDuty: Events v2.
"""

import re
from datetime import datetime
from typing import Any

import msgspec
import pytest

from rankpulse.core import records as r
from rankpulse.core.announcing import body, body_of_test
from rankpulse.core.payloads import sending
from rankpulse.core.targets import ALERTMANAGER, PAGERDUTY, SLACK, WebhookTarget

AT = 1_800_000_000.0
LONG = "rank 0 raised <!channel> & \u0000\n\u202e" + "é" * 100_000
CLUSTER = "c" * 100
LARGE = r.Incident(
    id="i9999-9999",
    klass="worker_dead",
    state="open",
    opened_at=AT,
    run_uid="u" * 100,
    run_id=LONG,
    round=2**31,
    nodes=tuple(f"node-{n:05d}" for n in range(5000)),
    culprits=tuple(r.Member(n, f"node-{n:05d}", 0, n, n) for n in range(5000)),
    evidence=("k" * 200,) * 1000,
    summary=LONG,
    reasons=(LONG,) * 50,
    action="page",
    action_reason=LONG,
)
EMPTY = r.Incident(id="i0001-0001", klass="breaker_open", state="open", opened_at=AT, action="page")
CLOSED = msgspec.structs.replace(LARGE, state="closed", outcome="recovered", closed_at=AT + 60)
CASES = [(LARGE, "page"), (EMPTY, "page"), (CLOSED, "closed"), (None, "test")]


def sent(kind: str, incident: r.Incident | None, event: str) -> Any:
    target = WebhookTarget(
        name="t", url="https://t.example/x", kind=kind, secret_file="/s" if kind == PAGERDUTY else ""
    )
    if incident is None:
        text = body_of_test("test-q1", cluster=CLUSTER, at=AT, author=LONG, reason=LONG)
    else:
        text = body(incident, event, cluster=CLUSTER, at=AT + 5)
    made = sending(target, msgspec.json.decode(text), ["R" * 32] if kind == PAGERDUTY else [], AT + 6)
    assert len(made.body) < 512 * 1024
    assert made.headers["content-type"].startswith("application/json")
    return msgspec.json.decode(made.body)


def is_time(text: str) -> bool:
    """RFC 3339, as `date-time` of OpenAPI asks."""
    return bool(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)) and bool(datetime.fromisoformat(text))


@pytest.mark.parametrize(("incident", "event"), CASES)
def test_alertmanager_takes_it(incident: r.Incident | None, event: str) -> None:
    alerts = sent(ALERTMANAGER, incident, event)
    assert isinstance(alerts, list)
    for alert in alerts:
        assert alert.keys() <= {"labels", "annotations", "startsAt", "endsAt", "generatorURL"}
        assert alert["labels"]["alertname"]
        for name, value in (*alert["labels"].items(), *alert["annotations"].items()):
            assert re.fullmatch(r"[a-zA-Z_][a-zA-Z0-9_]*", name)
            assert isinstance(value, str)
        assert all(alert["labels"].values()), "an empty label is none: what it resolves would be another alert"
        assert is_time(alert["startsAt"])
        assert is_time(alert["endsAt"])
        assert alert["startsAt"] <= alert["endsAt"]


def test_an_alert_is_taken_back_though_its_incident_concerns_another_run_by_then() -> None:
    """As that of a broken GPU does once its job has left the node, or hangs by it."""
    ((opened,), (ended,)) = (
        sent(ALERTMANAGER, msgspec.structs.replace(incident, run_uid=uid, round=round_), event)
        for incident, event, uid, round_ in ((LARGE, "page", "", -1), (CLOSED, "closed", "job-1", 3))
    )
    assert opened["labels"] == ended["labels"]


@pytest.mark.parametrize(("incident", "event"), CASES)
def test_pagerduty_takes_it(incident: r.Incident | None, event: str) -> None:
    told = sent(PAGERDUTY, incident, event)
    assert len(told["routing_key"]) == 32
    assert told["event_action"] in ("trigger", "resolve")
    assert 0 < len(told["dedup_key"]) <= 255
    if told["event_action"] == "trigger":
        payload = told["payload"]
        assert 0 < len(payload["summary"]) <= 1024
        assert payload["source"]
        assert payload["severity"] in ("critical", "error", "warning", "info")
        assert is_time(payload["timestamp"])
        assert isinstance(payload["custom_details"], dict)


@pytest.mark.parametrize(("incident", "event"), CASES)
def test_slack_takes_it(incident: r.Incident | None, event: str) -> None:
    told = sent(SLACK, incident, event)
    assert told.keys() == {"text"}
    assert 0 < len(told["text"]) <= 40_000
    assert not re.search(r"[<>]|&(?!amp;|lt;|gt;)", told["text"]), "control characters of its markup are escaped"
