"""What operators ask of the outbox: to try a target out, and to try anew what was given up."""

from typing import Final

import msgspec

from rankpulse.core import announcing
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.fold_outbox import DEAD, PENDING

TEST, RETRY = "webhook_test", "webhook_retry"
KINDS: Final = (TEST, RETRY)


def answer(desk: Desk) -> None:
    """Take up the requests about webhooks, and leave the others."""
    folder = desk.folder
    for key, request in list(folder.requests.items()):
        if request.kind in KINDS:
            del folder.requests[key]
            refusal = _test(desk, request) if request.kind == TEST else _retry(desk, request)
            folder.fold(key)  # last: whoever asked finds what came of it when the request is gone
            if refusal:
                folder.say("warning", f"request {request.id} by {request.author} refused: {refusal}")


def id_of_test(request: r.Request) -> str:
    return f"test-{request.id}"


def _test(desk: Desk, request: r.Request) -> str:
    """Create an event for the target, or for all of them; or say why not."""
    names = [target.name for target in desk.settings.webhook.targets if request.about in ("", target.name)]
    for name in names:
        body = announcing.body_of_test(
            id_of_test(request), cluster=desk.keys.cluster, at=desk.at, author=request.author, reason=request.reason
        )
        made = r.Outgoing(event=id_of_test(request), target=name, first_at=desk.at, body=body)
        desk.want(desk.keys.outgoing(made.event, name), made, f"a test of {name} by {request.author}", once=True)
    return "" if names else f"no such webhook target is configured here: {request.about or 'there are none'}"


def _retry(desk: Desk, request: r.Request) -> str:
    """Dead letters become pending again; those of the event (and target) that is named, or all."""
    found = [
        outgoing
        for letter, outgoing in desk.folder.outbox.stored.items()
        if outgoing.state == DEAD and request.about in ("", letter.event, "/".join(letter)) and outgoing.incident
    ]
    for outgoing in found:
        made = msgspec.structs.replace(
            outgoing, state=PENDING, attempts=0, pause_s=0.0, waited_s=0.0, next_at=0.0, ended_at=None
        )
        desk.want(desk.keys.outgoing(made.event, made.target), made, f"tried anew at the word of {request.author}")
    return "" if found else f"no dead letter {request.about}".rstrip()
