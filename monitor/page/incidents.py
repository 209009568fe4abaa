"""Incidents on the page: open ones as cards, the culprit first; those that are over as a list. Pure."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from rankpulse.core import diagnosis as d
from rankpulse.core import todo
from rankpulse.core.announcing import calls
from rankpulse.core.glance import Glance
from rankpulse.core.incident_words import cascade, culprits_in_words, headline, sureness
from rankpulse.core.naming import names_in_words
from rankpulse.core.policy import DRAIN, NONE, WAIT
from rankpulse.core.records import Finding, Incident
from rankpulse.core.stacks import ranks_in_words
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.html import Child, Html, el
from rankpulse.monitor.page.parts import Parts
from rankpulse.monitor.page.words import link, many, sign, when

LEVELS: Final = ("bad", "doubt", "out")  # by urgency
NEEDS: Final = (("✕", "needs a person"), ("?", "rankpulse is acting"), ("–", "planned, or expected to pass"))
PLANNED: Final = 2  # an urgency
FULL: Final = 3  # open incidents that are shown at once
CARDS: Final = 16  # with those that unfold; the others by name
STORY: Final = 6  # lines of it on a card, the newest
WHY: Final = 4  # reasons on a card
NAMED: Final = 8  # nodes that are linked one by one
_PAGED: Final = "RankpulseIncidentPages"
RUNBOOKS: Final = {  # by class; what is not here pages by its action
    d.GPU_FAULT: "RankpulseGpuFault",
    d.NVLINK_DOMAIN: "RankpulseNvlinkDown",
    d.NON_FINITE: "RankpulseNotFinite",
    d.BREAKER_OPEN: "RankpulseBreakerOpen",
    d.AGENT_CUT_OFF: "RankpulseAgentCutOff",
    d.SIDECAR_DEAD: "RankpulseAgentSilent",
}


def urgent(i: Incident) -> int:
    """0: a person is needed; 1: rankpulse acts; 2: it was planned, or passes by itself."""
    if calls(i):
        return 0
    return 2 if i.action in (DRAIN, WAIT, NONE) else 1


def ordered(told: Glance) -> list[Incident]:
    """Those that are open: what needs a person first, then what holds up a run, then the newest."""
    return sorted(told.open, key=lambda i: (urgent(i), not i.run_uid, -i.opened_at, i.id))


def incidents(told: Glance, about: About, parts: Parts) -> Html:
    """The first few in full; the others, and what was planned, folded up."""
    found = ordered(told)
    title = el("h2", f"Open incidents ({len(found)})" if found else "Open incidents")
    full = [i for i in found if urgent(i) < PLANNED][:FULL]
    shown = [
        parts.item(
            f"i-{i.id}",
            partial(card, i, told.findings.get(i.id), about, folded=i not in full),
            link("incidents", i.id, f"{i.id}, {i.klass}"),
        )
        for i in found[:CARDS]
    ]
    rest = [el("li", link("incidents", i.id), f" {i.klass}: {i.summary}") for i in found[CARDS:]]
    body: Child = shown or el("p", "None.", class_="quiet")
    return el("section", title, body, el("ul", rest) if rest else None, id="incidents")


def card(i: Incident, found: Finding | None, about: About, *, folded: bool) -> Html:
    level = LEVELS[urgent(i)]
    facts = el("dl", [_row(name, says) for name, says in _facts(i, found, about)], class_="facts")
    if folded:
        summary = el("summary", el("span", needs(i), class_=f"needs {level}"), " · ", headline(i, found))
        page = el("p", link("incidents", i.id, f"the page of {i.id}"))
        return el("details", summary, facts, story(i, STORY), page, class_=f"card {level}", id=f"i-{i.id}")
    head = el("p", needs(i), class_=f"needs {level}"), el("h3", link("incidents", i.id, headline(i, found)))
    return el("article", head, facts, story(i, STORY), class_=f"card {level}", id=f"i-{i.id}")


def needs(i: Incident) -> Child:
    """Whether somebody has to get up."""
    level = LEVELS[urgent(i)]
    sign_, words = NEEDS[urgent(i)]
    return [sign(sign_, level, level), f" {words}"]


def _row(name: str, says: Child) -> Html:
    return el("div", el("dt", name), el("dd", says), class_="do" if name == "what to do" else None)


def _facts(i: Incident, found: Finding | None, about: About) -> Iterator[tuple[str, Child]]:
    yield "what to do", steps(i, found)
    yield "culprit", culprit(i, found)
    if i.cascade:
        yield "cascade", cascade(i)
    if why := i.reasons or (found.reasons if found is not None else ()):
        yield "evidence", [[el("br") if at else None, text] for at, text in enumerate(why[:WHY])]
    yield "action", f"{i.action}: {i.action_reason}" if i.action_reason else i.action
    yield "sure", sureness(i.confidence)
    yield "opened", [when(i.opened_at), f", class {i.klass}", _of_run(i)]
    yield "read", [el("code", f"rankpulse explain {i.id}"), " · ", runbook(i, about)]


def steps(i: Incident, found: Finding | None) -> Child:
    """What a person should do, with the command to type."""
    told = list(todo.todo(i, found))
    return told[0] if len(told) == 1 else el("ul", [el("li", step) for step in told])


def culprit(i: Incident, found: Finding | None) -> Child:
    """Who went first, else where it is."""
    nodes = _nodes(i)
    if not i.culprits:
        return el("strong", nodes or "nobody is named")
    if len(i.culprits) > 1:
        ranks, where = (one.rank for one in i.culprits), (one.node for one in i.culprits)
        return [el("strong", f"{ranks_in_words(ranks)} on {names_in_words(where)}"), " · ", nodes]
    who, *more = culprits_in_words(i, found)
    return [el("strong", who), [[el("br"), line.strip()] for line in more[:2]], " · ", nodes]


def _nodes(i: Incident) -> Child:
    links = [[", " if at else None, link("nodes", name)] for at, name in enumerate(i.nodes[:NAMED])]
    rest = f" and {len(i.nodes) - NAMED} more" if len(i.nodes) > NAMED else None
    return [links, rest] if links else None


def _of_run(i: Incident) -> Child:
    if not i.run_uid:
        return ""
    return [", run ", link("runs", i.run_uid, i.run_id or i.run_uid), f", round {i.round}"]


def runbook(i: Incident, about: About) -> Child:
    """The page that says what such an alert means."""
    name = RUNBOOKS.get(i.klass, _PAGED)
    if about.runbooks:
        return el("a", f"runbook {name}", href=f"{about.runbooks.rstrip('/')}/{name}.md")
    return el("span", f"runbook docs/runbooks/{name}.md")


def story(i: Incident, most: int) -> Html | None:
    """The timeline, the newest lines; the whole stands on the incident's own page."""
    if not i.trail:
        return None
    skipped = len(i.trail) - most
    lines = [el("li", el("span", f"{line.after_s:+.1f} s", class_="after"), " ", line.text) for line in i.trail[-most:]]
    before = el("li", el("span", "…"), f"{many(skipped, 'line')} before", class_="quiet") if skipped > 0 else None
    return el("ol", before, lines, class_="story", aria_label="story")


def closed(told: Glance) -> Html:
    rows = [
        el(
            "tr",
            el("td", link("incidents", i.id)), el("td", i.klass), el("td", i.outcome or i.state),
            el("td", when(i.closed_at)), el("td", i.summary, class_="long"),
        )
        for i in told.closed
    ]  # fmt: skip
    head = [el("th", name, scope="col") for name in ("incident", "class", "outcome", "closed", "what")]
    table = el("table", el("thead", el("tr", head)), el("tbody", rows))
    body = el("div", table, class_="wide", tabindex="0", role="region", aria_label="closed incidents") if rows else None
    return el("section", el("h2", "Lately over"), body or el("p", "None.", class_="quiet"), id="closed")
