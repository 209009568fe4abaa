"""What is told outside of an incident, and in which words. Values in, values out.

The incident itself lists what is told of it and to whom (`told`), from the moment of the decision. So a new leader
finds what is still to be told, and nothing is told of what was decided before anybody was to be told.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from rankpulse.core import incidents as book_of
from rankpulse.core import ladder, policy
from rankpulse.core.records import Incident, Member
from rankpulse.core.targets import ALERTMANAGER, CLOSED, EVENTS, PAGE, PAGERDUTY, RESTART, TEST, WebhookTarget
from rankpulse.core.words import printable, utc

PAGING: Final = (policy.PAGE, policy.OBSERVE, policy.STOP)  # actions that wait for a person
TEXT_MAX: Final = 1000
REASONS_MAX: Final = 8


def event_id(incident: Incident, event: str) -> str:
    """The id of the decision that an event tells of."""
    return f"{incident.id}-{event}"


def takers(targets: Sequence[WebhookTarget], event: str) -> tuple[str, ...]:
    """The names of the targets that are told of such events."""
    return tuple(target.name for target in targets if event in target.events)


def announced(incident: Incident, targets: Sequence[WebhookTarget]) -> Incident:
    """The incident with everything listed that is to be told of it by now."""
    due = [f"{event}/{t.name}" for event in _events(incident) for t in targets if _takes(t, event, incident)]
    new = tuple(one for one in due if one not in incident.told)
    return msgspec.structs.replace(incident, told=(*incident.told, *new)) if new else incident


def calls(incident: Incident) -> bool:
    """Whether it calls for a person: it was left to one, or all that may be done was done in vain."""
    return incident.action in PAGING or incident.rung == ladder.PAGE


def _takes(target: WebhookTarget, event: str, incident: Incident) -> bool:
    """Where `closed` takes a page back, a run that has ended does not: what called for a person still does."""
    calls_on = event == CLOSED and incident.outcome == book_of.RUN_ENDED and target.kind in (ALERTMANAGER, PAGERDUTY)
    return event in target.events and not calls_on


def _events(incident: Incident) -> Iterator[str]:
    """An incident that has passed calls for nobody; one whose run has ended may call for somebody all the more."""
    is_over = incident.state == book_of.CLOSED
    if not is_over or incident.outcome == book_of.RUN_ENDED:
        if calls(incident):
            yield PAGE
        if incident.rung == ladder.WEBHOOK and not is_over:
            yield RESTART
    if is_over and incident.told:
        yield CLOSED


def told_pairs(incident: Incident) -> Iterator[tuple[str, str]]:
    """Event and target of everything that is told of it; what this version does not know is left to others."""
    for one in incident.told:
        event, _, target = one.partition("/")
        if event in EVENTS:
            yield event, target


# --- the event: a CloudEvent 1.0 as JSON


def body(incident: Incident, event: str, *, cluster: str, at: float, without: Sequence[str] = ()) -> str:
    """What is told. `without`: nodes that a restart is to leave out.

    The id holds the time of opening, too: a store that was wiped counts incidents from one again.
    """
    decision = event_id(incident, event)
    return _cloud_event(
        f"{cluster}/{decision}/{incident.opened_at:.0f}", event, cluster, at, incident.id, _data(incident, without)
        | {"decision": decision, "event": event, "cluster": cluster, "at": at}
    )  # fmt: skip


def body_of_test(id_: str, *, cluster: str, at: float, author: str, reason: str) -> str:
    """What a target is told when a person tries it out."""
    data = {"decision": id_, "event": TEST, "cluster": cluster, "at": at, "incident": "", "opened_at": at}
    summary = f"a test of this webhook, asked for by {printable(author, 100)}: {printable(reason, TEXT_MAX)}"
    return _cloud_event(f"{cluster}/{id_}", TEST, cluster, at, id_, data | {"summary": summary})


def _cloud_event(id_: str, event: str, cluster: str, at: float, subject: str, data: dict[str, Any]) -> str:
    made = {
        "specversion": "1.0",
        "id": id_.replace(".", "~"),  # what is signed is separated by dots: nobody shall move the seam
        "source": f"/rankpulse/{cluster}",
        "type": f"rankpulse.{event}",
        "subject": subject,
        "time": utc(at),
        "datacontenttype": "application/json",
        "data": data,
    }
    return msgspec.json.encode(made).decode()


def _data(incident: Incident, without: Sequence[str]) -> dict[str, Any]:
    return {
        "incident": incident.id,
        "class": incident.klass,
        "state": incident.state,
        "outcome": incident.outcome,
        "action": incident.action,
        "action_reason": printable(incident.action_reason, TEXT_MAX),
        "summary": printable(incident.summary, TEXT_MAX),
        "reasons": [printable(reason, TEXT_MAX) for reason in incident.reasons[:REASONS_MAX]],
        "confidence": incident.confidence,
        "run_uid": incident.run_uid,
        "run_id": printable(incident.run_id),
        "round": incident.round,
        "nodes": list(incident.nodes),
        "without": list(without),
        "culprits": [_culprit(member) for member in incident.culprits],
        "order_id": incident.order_id,
        "opened_at": incident.opened_at,
        "closed_at": incident.closed_at,
        "time_to_recover_s": incident.time_to_recover_s,
        "resumed_from_step": incident.resumed_from_step,
        "lost_steps": incident.lost_steps,
        "explain": f"rankpulse explain {incident.id}",
    }


def _culprit(member: Member) -> dict[str, str | int]:
    return {"rank": member.rank, "node": member.node, "local_rank": member.local_rank, "pid": member.pid}
