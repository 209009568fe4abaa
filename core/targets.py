"""Webhook targets: the only places to which anything is sent, and what is wrong with their settings."""

from collections import Counter
from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from rankpulse.core.addresses import is_loopback
from rankpulse.core.keys import BadName, check_name

CLOUDEVENTS, ALERTMANAGER, SLACK, PAGERDUTY = "cloudevents", "alertmanager", "slack", "pagerduty"
KINDS: Final = (CLOUDEVENTS, ALERTMANAGER, SLACK, PAGERDUTY)
PAGE, RESTART, CLOSED, TEST = "page", "restart", "closed", "test"
EVENTS: Final = (PAGE, RESTART, CLOSED)
TARGETS_MAX: Final = 16


class WebhookTarget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One place that is told of events."""

    name: str
    url: str
    kind: str = CLOUDEVENTS
    secret_file: str = ""  # what it is by kind: the signing key, a bearer token, the rest of the URL, a routing key
    ca_file: str = ""  # verify its certificate against this one instead of the system's
    events: tuple[str, ...] = (PAGE, CLOSED)


def problems(targets: Sequence[WebhookTarget]) -> list[str]:
    """What is wrong with the targets, one line each. URLs are not repeated: they may hold a secret."""
    found = [f"webhook.targets: at most {TARGETS_MAX}"] if len(targets) > TARGETS_MAX else []
    twice = [name for name, count in Counter(target.name for target in targets).items() if count > 1]
    found += [f"webhook.targets: the name {name!r} is given twice" for name in twice]
    for number, target in enumerate(targets[:TARGETS_MAX]):
        found += [f"webhook.targets[{number}]{text}" for text in _of_one(target)]
    return found


def _of_one(target: WebhookTarget) -> list[str]:
    found = [f".url {why}"] if (why := _bad_url(target.url)) else []
    try:
        check_name(target.name, "name")
    except BadName as error:
        found.append(f": {error}")
    if target.kind not in KINDS:
        found.append(f".kind {target.kind[:20]!r}: choose one of {', '.join(KINDS)}")
    elif target.kind in (CLOUDEVENTS, PAGERDUTY) and not target.secret_file:
        found.append(f".secret_file: a target of kind {target.kind} needs one")
    return found + _bad_events(target)


def _bad_events(target: WebhookTarget) -> list[str]:
    unknown = [name[:20] for name in target.events if name not in EVENTS]
    if unknown:
        return [f".events {', '.join(unknown[:4])}: known are {', '.join(EVENTS)}"]
    if RESTART in target.events and target.kind != CLOUDEVENTS:
        return [".events: restart is told to targets of kind cloudevents only, for nothing else of ours is signed"]
    return [] if target.events else [".events: name at least one"]


def _bad_url(url: str) -> str:
    """Why nothing is sent there, or ""."""
    parts = _split(url)
    if parts is None or parts.scheme not in ("https", "http") or not parts.hostname:
        return "must be https://host[:port]/path"
    if "@" in parts.netloc:
        return "must hold no user or password; secrets are for secret_file"
    if parts.fragment:
        return "must hold no #fragment"
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        return "must be https: plain http is for this machine only"
    return ""


def _split(url: str) -> SplitResult | None:
    """None for what is no URL, or hides something that a person would not see."""
    if not url.isascii() or not url.isprintable() or any(char in url for char in ' "<>\\^`'):
        return None
    try:
        parts = urlsplit(url)
        return parts if parts.port is None or parts.port > 0 else None
    except ValueError:
        return None
