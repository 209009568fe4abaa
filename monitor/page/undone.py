"""What rankpulse did not do, and why: the half of its decisions that leaves no trace elsewhere. Pure."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from rankpulse.core import ladder
from rankpulse.core.glance import Glance
from rankpulse.core.incidents import OPEN
from rankpulse.core.policy import NONE, OBSERVE, PAGE, WAIT
from rankpulse.core.records import Incident
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.html import Child, Html, el
from rankpulse.monitor.page.sight import blind
from rankpulse.monitor.page.words import link

MOST: Final = 20
_NOT_DONE: Final = {
    OBSERVE: "would restart, and did not",
    PAGE: "did nothing by itself, and called a person",
    WAIT: "does nothing yet",
    NONE: "left it alone",
}
_IN_VAIN: Final = "did all that it may, in vain, and called a person"
_OVER: Final = {OBSERVE: "would have restarted, and did not", WAIT: "waited for it to pass"}  # of what is over


class Undone(NamedTuple):
    what: Child
    why: str


def undone(told: Glance, about: About) -> Html:
    rows = [el("li", el("b", one.what), ": ", one.why) for one, _ in zip(found(told, about), range(MOST), strict=False)]
    body = el("ul", rows) if rows else el("p", "Nothing: whatever called for an action got one.", class_="quiet")
    return el("section", el("h2", "What rankpulse did not do, and why"), body, id="undone")


def found(told: Glance, about: About) -> Iterator[Undone]:
    if why := blind(told, about):
        yield Undone("concludes nothing at all", why)
    if told.breaker is not None:
        yield Undone("orders nothing, and cordons nobody", f"the breaker is open: {told.breaker.reason}")
    elif told.stopped and not blind(told, about):
        yield Undone("orders nothing", told.stopped)
    if not about.leads:
        yield Undone("this monitor decides nothing", "it is a standby")
    if not told.armed:
        yield Undone("orders no restart in this cluster", "it is not armed: rankpulse arm --reason '…'")
    yield from _runs(told)
    for i in (*told.open, *told.closed):
        if words := _not_done(i):
            yield Undone([link("incidents", i.id), f" {i.klass}: {words}"], i.action_reason or "no reason told")
    for name, target in told.targets.items():
        if target["dead"]:
            yield Undone(f"did not tell {name} of {target['dead']} events", "given up: rankpulse webhook ls")


def _not_done(i: Incident) -> str:
    """What was left undone about it; "" where nothing was."""
    if i.state != OPEN:
        words = _OVER.get(i.action) or _NOT_DONE.get(i.action, "")
        return f"{words} (over: {i.outcome or i.state})" if words and (i.action != NONE or i.action_reason) else ""
    if i.rung == ladder.PAGE and i.action not in _NOT_DONE:
        return _IN_VAIN
    return _NOT_DONE.get(i.action, "") if i.action != NONE or i.action_reason else ""


def _runs(told: Glance) -> Iterator[Undone]:
    for uid, run in told.runs.items():
        if run["outcome"] != "running":
            continue
        if run["mode"] == "paused":
            yield Undone(["leaves run ", link("runs", uid, run["run_id"] or uid), " alone"], "it is paused by a person")
        elif run["mode"] == "observe" and told.armed:
            yield Undone(["only observes run ", link("runs", uid, run["run_id"] or uid)], "a person said so")
