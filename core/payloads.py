"""An event as each kind of target wants to be told: address, headers and bytes. Pure."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from rankpulse.core import targets as t
from rankpulse.core.signing import BadKey, key, sign
from rankpulse.core.words import utc

ALERT_LASTS_S: Final = 86_400.0  # Alertmanager forgets an alert that nobody repeats; ours ends by `closed`
TEST_LASTS_S: Final = 60.0
SUMMARY_MAX: Final = 1000  # PagerDuty takes 1024 characters
Event = Mapping[str, Any]  # a CloudEvent, see `core.announcing`


class Sending(NamedTuple):
    """What goes over the wire. `url` and `headers` may hold secrets: they are never shown."""

    url: str
    headers: dict[str, str]
    body: bytes


def sending(target: t.WebhookTarget, event: Event, secrets: Sequence[str], now: float) -> Sending:
    """`secrets`: the lines of its secret file. `now`: UTC seconds, which the receiver checks. Raises `BadKey`."""
    lines = [line.strip() for line in secrets if line.strip()]
    if target.secret_file and not lines:
        raise BadKey("it holds no secret")
    if not all(line.isascii() and line.isprintable() for line in lines):
        raise BadKey("a secret is one line of plain characters")
    return _BY_KIND[target.kind](target, event, lines, now)


def _cloudevents(target: t.WebhookTarget, event: Event, lines: Sequence[str], now: float) -> Sending:
    body, timestamp = msgspec.json.encode(event), round(now)
    headers = {
        "content-type": "application/cloudevents+json; charset=utf-8",
        "webhook-id": event["id"],
        "webhook-timestamp": str(timestamp),
        "webhook-signature": sign([key(line) for line in lines], event["id"], timestamp, body),
    }
    return Sending(target.url, headers, body)


def _alertmanager(target: t.WebhookTarget, event: Event, lines: Sequence[str], now: float) -> Sending:
    """One alert; its labels are those by which it is taken back, so they hold nothing that may be corrected.

    Not the run either: the incident of a broken GPU comes to concern one, or none any more.
    """
    data = event["data"]
    is_test = data["event"] == t.TEST
    ends_at = data["at"] + (TEST_LASTS_S if is_test else ALERT_LASTS_S)
    if data["event"] == t.CLOSED:  # a page may be of what is closed by now: it calls for somebody all the same
        ends_at = max(data["closed_at"], data["opened_at"])  # of two monitors, whose clocks may differ
    alert = {
        "labels": {
            "alertname": "RankpulseTest" if is_test else "RankpulseIncident",
            "severity": "info" if is_test else "critical",
            "cluster": data["cluster"],
            "incident": data["incident"] or data["decision"],
        },
        "annotations": {"summary": data["summary"], "description": _details(data), "run_uid": data.get("run_uid", "")},
        "startsAt": utc(data["opened_at"]),
        "endsAt": utc(ends_at),
    }
    bearer = {"authorization": f"Bearer {lines[0]}"} if lines else {}
    return _json(target.url, [alert], bearer)


def _slack(target: t.WebhookTarget, event: Event, lines: Sequence[str], now: float) -> Sending:
    data = event["data"]
    head = f"*{_escaped(_title(data))}*\n{_escaped(data['summary'])}"
    details = _details(data)
    return _json(
        target.url + (lines[0] if lines else ""), {"text": head + (f"\n{_escaped(details)}" if details else "")}
    )


def _pagerduty(target: t.WebhookTarget, event: Event, lines: Sequence[str], now: float) -> Sending:
    data = event["data"]
    made: dict[str, Any] = {
        "routing_key": lines[0],
        "event_action": "resolve" if data["event"] == t.CLOSED else "trigger",
        "dedup_key": f"{data['cluster']}/{data['incident'] or data['decision']}/{data['opened_at']:.0f}",
    }
    if data["event"] != t.CLOSED:
        made["payload"] = {
            "summary": f"{_title(data)}: {data['summary']}"[:SUMMARY_MAX],
            "source": data["cluster"],
            "severity": "info" if data["event"] == t.TEST else "critical",
            "timestamp": event["time"],
            "component": data.get("run_uid", ""),
            "class": data.get("class", ""),
            "custom_details": data,
        }
    return _json(target.url, made)


def _title(data: Event) -> str:
    run = f", run {data['run_uid']}" if data.get("run_uid") else ""
    what = (
        f"{data['incident']} {data['outcome']}" if data["event"] == t.CLOSED else data["incident"] or data["decision"]
    )
    return f"rankpulse {data['cluster']}: {data['event']} {what}{run}"


def _details(data: Event) -> str:
    """What is done about it, and where the whole story is."""
    if "action" not in data:
        return ""
    action = f"{data['action']}: {data['action_reason']}" if data["event"] != t.CLOSED else f"closed, {data['outcome']}"
    return f"{action}\n{data['explain']}"


def _escaped(text: str) -> str:
    """So that no text of a job becomes a link or calls a whole channel; Mattermost does so for a mere @channel."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("@", "@\u200b")


def _json(url: str, value: Any, headers: Mapping[str, str] | None = None) -> Sending:
    return Sending(url, {"content-type": "application/json", **(headers or {})}, msgspec.json.encode(value))


_BY_KIND: Final[Mapping[str, Callable[[t.WebhookTarget, Event, Sequence[str], float], Sending]]] = {
    t.CLOUDEVENTS: _cloudevents,
    t.ALERTMANAGER: _alertmanager,
    t.SLACK: _slack,
    t.PAGERDUTY: _pagerduty,
}
