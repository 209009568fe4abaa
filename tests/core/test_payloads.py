"""Signatures by the convention, and the forms in which other systems take an event."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from rankpulse.core import records as r
from rankpulse.core.announcing import body, body_of_test, takers
from rankpulse.core.payloads import sending
from rankpulse.core.settings import BadSettings, parse
from rankpulse.core.signing import BadKey, key, sign
from rankpulse.core.targets import ALERTMANAGER, CLOUDEVENTS, PAGERDUTY, SLACK, WebhookTarget
from rankpulse.core.words import utc

AT = 1_800_000_000.0
INCIDENT = r.Incident(
    id="i0001-0002",
    klass="worker_dead",
    state="open",
    opened_at=AT,
    run_uid="run-1",
    run_id="<https://evil.example|llama>",
    round=3,
    nodes=("gpu07",),
    culprits=(r.Member(0, "gpu07", 0, 4711, 77),),
    summary="rank 0 on gpu07 raised <!channel> & died",
    action="page",
    action_reason="start the job again",
)


def told(kind: str, event: str = "page", incident: r.Incident = INCIDENT, secret: str = "") -> dict | list:
    target = WebhookTarget(name="t", url="https://t.example/x", kind=kind, secret_file="/s" if secret else "")
    text = body(incident, event, cluster="prod", at=AT + 5)
    sent = sending(target, msgspec.json.decode(text), [secret] if secret else [], AT + 6)
    return msgspec.json.decode(sent.body)


def closed(outcome: str) -> r.Incident:
    return msgspec.structs.replace(INCIDENT, state="closed", outcome=outcome, closed_at=AT + 60, klass="unknown")


def test_the_signature_is_that_of_the_published_example() -> None:
    one = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    assert (
        sign([one], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
        == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.mark.parametrize("line", ["", "short", "whsec_", "whsec_c2hvcnQ=", "whsec_ä"])
def test_what_can_be_guessed_is_no_key(line: str) -> None:
    with pytest.raises((BadKey, ValueError)):
        key(line)


def test_a_cloud_event_has_the_fields_that_the_specification_demands() -> None:
    event = told(CLOUDEVENTS, secret="k" * 32)
    assert isinstance(event, dict)
    assert {name: event[name] for name in ("specversion", "id", "source", "type", "subject", "time")} == {
        "specversion": "1.0",
        "id": "prod/i0001-0002-page/1800000000",
        "source": "/rankpulse/prod",
        "type": "rankpulse.page",
        "subject": "i0001-0002",
        "time": "2027-01-15T08:00:05.000Z",
    }
    assert event["data"]["culprits"] == [{"rank": 0, "node": "gpu07", "local_rank": 0, "pid": 4711}]


def test_the_id_of_an_event_is_another_where_a_store_that_was_wiped_counts_anew() -> None:
    ids = {
        msgspec.json.decode(body(msgspec.structs.replace(INCIDENT, opened_at=opened_at), "page", cluster="c", at=AT))[
            "id"
        ]
        for opened_at in (AT, AT + 9, AT + 9)
    }
    assert len(ids) == 2


def test_no_dot_of_a_name_is_taken_for_one_of_what_is_signed() -> None:
    """`id.timestamp.body`: with a dot in it the end of an id could be shown as the timestamp."""
    ids = {
        msgspec.json.decode(body(INCIDENT, "page", cluster=cluster, at=AT))["id"] for cluster in ("a.b", "a-b", "a_b")
    }
    ids.add(msgspec.json.decode(body_of_test("test-1", cluster="a.b", at=AT, author="ann", reason="x"))["id"])
    assert len(ids) == 4
    assert not any("." in id_ for id_ in ids)


def test_an_alert_is_taken_back_by_the_labels_that_it_had() -> None:
    ((opened,), (ended,)) = told(ALERTMANAGER), told(ALERTMANAGER, "closed", closed("recovered"))
    assert opened["labels"] == ended["labels"]
    assert (opened["startsAt"], opened["endsAt"]) == (utc(AT), utc(AT + 5 + 86400))
    assert (ended["startsAt"], ended["endsAt"]) == (utc(AT), utc(AT + 60))


def test_a_page_of_a_run_that_has_ended_already_is_no_alert_that_is_over() -> None:
    (alert,) = told(ALERTMANAGER, "page", closed("run_ended"))
    assert alert["endsAt"] == utc(AT + 5 + 86400), "one that arrives ended is told to nobody"


def test_an_alert_ends_no_earlier_than_it_began_though_another_monitors_clock_says_so() -> None:
    (alert,) = told(ALERTMANAGER, "closed", msgspec.structs.replace(closed("recovered"), closed_at=AT - 3))
    assert alert["startsAt"] == alert["endsAt"] == utc(AT)


def test_pagerduty_resolves_what_it_was_told_to_trigger() -> None:
    opened, ended = told(PAGERDUTY, secret="R0"), told(PAGERDUTY, "closed", closed("passed"), secret="R0")
    assert isinstance(opened, dict)
    assert isinstance(ended, dict)
    assert (opened["event_action"], ended["event_action"]) == ("trigger", "resolve")
    assert opened["dedup_key"] == ended["dedup_key"]
    assert opened["payload"]["severity"] == "critical"
    assert opened["routing_key"] == "R0"


def test_no_text_of_a_job_calls_a_channel_or_becomes_a_link() -> None:
    message = told(SLACK)
    assert isinstance(message, dict)
    assert "<" not in message["text"]
    assert "&lt;!channel&gt; &amp; died" in message["text"]


def test_what_understands_slacks_form_is_not_made_to_call_a_channel_either() -> None:
    message = told(SLACK, incident=msgspec.structs.replace(INCIDENT, summary="ValueError: @channel, @all, a@b"))
    assert isinstance(message, dict)
    assert not re.search(r"@\w", message["text"])
    assert "@\u200bchannel, @\u200ball, a@\u200bb" in message["text"]


def test_who_is_told_of_what() -> None:
    first = WebhookTarget(name="a", url="https://a.example/", secret_file="/s", events=("restart",))
    second = WebhookTarget(name="b", url="https://b.example/", secret_file="/s")
    assert (takers([first, second], "restart"), takers([first, second], "page")) == (("a",), ("b",))


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ({"name": "t", "url": "http://t.example/", "kind": "slack"}, "must be https"),
        ({"name": "t", "url": "https://u:geheim@t.example/", "kind": "slack"}, "no user or password"),
        ({"name": "t", "url": "ftp://t.example/geheim", "kind": "slack"}, "must be https://host"),
        ({"name": "t", "url": "https://t.example/\ngeheim", "kind": "slack"}, "must be https://host"),
        ({"name": "t", "url": "https://t.example:99999/geheim", "kind": "slack"}, "must be https://host"),
        ({"name": "t", "url": "https:///geheim", "kind": "slack"}, "must be https://host"),
        ({"name": "t", "url": "https://t.example/#geheim", "kind": "slack"}, "#fragment"),
        ({"name": "a/b", "url": "https://t.example/", "kind": "slack"}, "letters, digits"),
        ({"name": "t", "url": "https://t.example/", "kind": "teams"}, "choose one of"),
        ({"name": "t", "url": "https://t.example/"}, "needs one"),
        ({"name": "t", "url": "https://t.example/", "kind": "pagerduty"}, "needs one"),
        ({"name": "t", "url": "https://t.example/", "kind": "slack", "events": ["opened"]}, "known are"),
        ({"name": "t", "url": "https://t.example/", "kind": "slack", "events": []}, "at least one"),
        ({"name": "t", "url": "https://t.example/", "kind": "slack", "events": ["restart"]}, "cloudevents only"),
        ({"name": "t"}, "url"),
        ("t", "webhook.targets"),
    ],
)
def test_what_is_no_target_is_refused_and_no_secret_repeated(target: object, part: str) -> None:
    with pytest.raises(BadSettings) as caught:
        parse({"webhook": {"targets": [target]}})
    assert part in str(caught.value)
    assert "geheim" not in str(caught.value)


def test_names_of_targets_are_unique_and_their_number_bounded() -> None:
    target = {"name": "t", "url": "https://t.example/", "kind": "slack"}
    with pytest.raises(BadSettings, match="'t' is given twice"):
        parse({"webhook": {"targets": [target, target]}})
    with pytest.raises(BadSettings, match="at most 16"):
        parse({"webhook": {"targets": [{**target, "name": f"t{number}"} for number in range(17)]}})


def test_plain_http_is_for_this_machine() -> None:
    for host in ("127.0.0.1:9093", "[::1]:9093", "localhost"):
        parse({"webhook": {"targets": [{"name": "t", "url": f"http://{host}/api", "kind": "alertmanager"}]}})


@pytest.mark.parametrize(
    ("at", "text"), [(0.0, "1970-01-01T00:00:00.000Z"), (951_827_696.789, "2000-02-29T12:34:56.789Z")]
)
def test_times_are_written_as_rfc_3339_says(at: float, text: str) -> None:
    assert utc(at) == text


@pytest.mark.parametrize("at", [-1.0, float("nan"), float("inf"), 1e12])
def test_times_that_no_calendar_has_are_the_epoch(at: float) -> None:
    assert utc(at) == "1970-01-01T00:00:00.000Z"


def examples() -> list[str]:
    page = (Path(__file__).parents[2] / "docs" / "webhooks.md").read_text(encoding="utf-8")
    return re.findall(r"^```(?:json|text)\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)


def test_the_examples_in_the_documentation_are_what_is_sent() -> None:
    why = "rank 0 on gpu07 (pid 4711) killed by SIGKILL"
    incident = msgspec.structs.replace(
        INCIDENT,
        id="i0003-0001",
        run_uid="llama-1f",
        run_id="llama",
        confidence=0.99,
        summary=why,
        reasons=(why,),
        action_reason="torchelastic has ended too (its restarts are used up): start the job again",
    )
    heads, event, *others = examples()
    made = body(incident, "page", cluster="prod", at=AT + 5)
    assert json.loads(event) == json.loads(made)
    target = WebhookTarget(name="t", url="https://t.example/x", secret_file="/s")
    sent = sending(target, json.loads(made), ["0123456789abcdef0123456789abcdef"], AT + 6)
    assert all(f"{name}: {value}\n" in heads for name, value in sent.headers.items())
    for kind, told_ in zip((ALERTMANAGER, SLACK, PAGERDUTY), map(json.loads, others), strict=True):
        secrets = ["R0"] if kind == PAGERDUTY else []
        target = WebhookTarget(name="t", url="https://t.example/x", kind=kind, secret_file="/s" if secrets else "")
        if kind == PAGERDUTY:
            told_["routing_key"], told_["payload"]["custom_details"] = "R0", json.loads(made)["data"]
        sent = sending(target, json.loads(made), secrets, AT + 6)
        assert json.loads(sent.body) == told_
