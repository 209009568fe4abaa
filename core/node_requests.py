"""Requests of operators about nodes and the breaker: taken up, or refused with the reason."""

from collections.abc import Callable
from typing import Final

from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.gpu_keeping import let_in
from rankpulse.core.keys import BadName, check_name
from rankpulse.core.strikes import Strikes

CORDON, UNCORDON = "cordon", "uncordon"
MAINTENANCE, MAINTENANCE_END = "maintenance", "maintenance_end"
BREAKER_CLOSE: Final = "breaker_close"


def taken(desk: Desk, request: r.Request) -> str | None:
    """Why a request is refused, "" when it is taken up, None when it is of another kind."""
    if request.kind == BREAKER_CLOSE:
        return _close_breaker(desk, request)
    answer = _ANSWERS.get(request.kind)
    if answer is None:
        return None
    try:
        check_name(request.node, "node")
    except BadName as error:
        return str(error)
    return answer(desk, request)


def _cordon(desk: Desk, request: r.Request) -> str:
    """A person's cordon takes the place of one of ours: from then on it is a person's to lift."""
    node, stands = request.node, desk.folder.joint.cordons.get(request.node)
    if stands is not None and stands.owner == "person":
        return f"{node} is cordoned already, by {stands.author}: {stands.reason}"
    cordon = r.Cordon(
        node=node,
        author=request.author,
        reason=request.reason,
        at=request.at,
        until=desk.at + request.for_s if request.for_s > 0 else 0.0,
        drain=request.drain,
    )
    desk.want(desk.keys.cordon(node), cordon, f"cordon of {node}: {request.reason}")
    desk.folder.joint.cordons[node] = cordon  # for gates of this very tick; a listing tells the truth
    desk.folder.say("warning", f"{node} is cordoned by {request.author}: {request.reason}")
    return ""


def _uncordon(desk: Desk, request: r.Request) -> str:
    """Whoever lifts a cordon has looked at the node: its strikes count no more."""
    node = request.node
    if node not in desk.folder.joint.cordons:
        return f"{node} is not cordoned"
    Strikes(desk).pardon(node)
    desk.budgets.keep()  # before the cordon goes: else a successor might cordon it once more
    let_in(desk, node)
    lift(desk, node)
    desk.folder.say("warning", f"the cordon of {node} is lifted by {request.author}: {request.reason}")
    return ""


def lift(desk: Desk, node: str) -> None:
    """Let the node into rounds again."""
    desk.erase(desk.keys.cordon(node))
    del desk.folder.joint.cordons[node]


def _maintenance(desk: Desk, request: r.Request) -> str:
    node, stands = request.node, desk.folder.modes.maintenance.get(request.node)
    if stands is not None:
        return f"{node} is in maintenance already, by {stands.author}: {stands.reason}"
    record = r.Maintenance(node=node, author=request.author, reason=request.reason, at=request.at)
    desk.want(desk.keys.maintenance(node), record, f"maintenance of {node}: {request.reason}")
    desk.folder.modes.maintenance[node] = record
    desk.folder.say("warning", f"{node} is in maintenance, by {request.author}: {request.reason}")
    return ""


def _maintenance_end(desk: Desk, request: r.Request) -> str:
    node = request.node
    if node not in desk.folder.modes.maintenance:
        return f"{node} is not in maintenance"
    let_in(desk, node)
    desk.erase(desk.keys.maintenance(node))
    del desk.folder.modes.maintenance[node]
    desk.folder.say("warning", f"maintenance of {node} is over, by {request.author}: {request.reason}")
    return ""


def _close_breaker(desk: Desk, request: r.Request) -> str:
    if not desk.folder.modes.open:
        return "the breaker is closed"
    record = r.Breaker(open=False, author=request.author, reason=request.reason, at=request.at)
    desk.want(desk.keys.breaker(), record, f"the breaker is closed: {request.reason}")
    desk.folder.modes.say(record)
    desk.folder.say("warning", f"the breaker is closed by {request.author}: {request.reason}")
    return ""


_ANSWERS: Final[dict[str, Callable[[Desk, r.Request], str]]] = {
    CORDON: _cordon,
    UNCORDON: _uncordon,
    MAINTENANCE: _maintenance,
    MAINTENANCE_END: _maintenance_end,
}
