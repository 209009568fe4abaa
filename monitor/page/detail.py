"""The page of one incident, what a search found, and a sentence where there is none of that name. Pure."""

from typing import Final

from rankpulse.core import node_standing as ns
from rankpulse.core.glance import Glance
from rankpulse.core.incident_sections import sections
from rankpulse.core.incident_words import facts, headline, records
from rankpulse.core.records import Finding, Incident
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.blocks import ROWS, lines, row
from rankpulse.monitor.page.html import Child, Html, el
from rankpulse.monitor.page.incidents import needs, runbook
from rankpulse.monitor.page.words import SHAPES, clock, link, many, mark, sign

FOUND: Final = 500  # nodes of a search that are listed


def incident(i: Incident, found: Finding | None, about: About) -> Html:
    """Everything about one, as `rankpulse explain` tells it."""
    told_state = needs(i) if i.state == "open" else [sign("–", "out", "over"), f" {i.outcome or i.state}"]
    rows = [row(name, value) for name, value in facts(i, found, clock)]
    told = [(title, list(words)) for title, words in (*sections(i, found), *records(i))]
    more = [lines(title, words) for title, words in told if words]
    where = el("p", _links(i), "In a terminal: ", el("code", f"rankpulse explain {i.id}"), " · ", runbook(i, about))
    return el(
        "article",
        el("p", told_state, class_="needs"),
        el("h1", headline(i, found)),
        where, el("dl", rows, class_="facts"), more,
        id="main-piece", class_="detail",
    )  # fmt: skip


def _links(i: Incident) -> Child:
    run: Child = ["Run ", link("runs", i.run_uid, i.run_id or i.run_uid), " · "] if i.run_uid else None
    nodes: Child = [[link("nodes", name), " "] for name in i.nodes[:16]]
    return [run, ["Nodes ", nodes, "· "] if i.nodes else None]


def absent(kind: str, name: str, told: Glance) -> Html:
    """What to say where there is none of that name."""
    what = {"incidents": "incident", "nodes": "node", "runs": "run"}.get(kind, "page")
    shown = [el("li", link(kind, known)) for known in _alike(kind, name, told)]
    return el(
        "article",
        el("h1", f"No {what} {name!r} is known" if kind else f"There is no page {name!r}"),
        el("p", {
            "incidents": "One that is over is let go after a while; the ledger keeps it: rankpulse ledger show. ",
            "nodes": "A node is known once its agent has written a beat into this cluster's store. ",
            "runs": "A run that ended is let go after a while. ",
        }.get(kind, ""), "What is known now: ", el("a", "the overview", href="/"), "."),
        el("ul", shown) if shown else None,
        id="main-piece", class_="detail",
    )  # fmt: skip


def _alike(kind: str, name: str, told: Glance) -> list[str]:
    names = {
        "incidents": [i.id for i in (*told.open, *told.closed)],
        "nodes": [node.node for node in told.nodes() if node.state != ns.UNKNOWN],
        "runs": list(told.runs),
    }.get(kind, [])
    return [known for known in names if name and name.lower() in known.lower()][:ROWS]


def search(name: str, told: Glance) -> Html:
    """Nodes whose names hold these letters."""
    found = [node for node in told.nodes() if name.lower() in node.node.lower()]
    shown = found[:FOUND]
    rows = [el("li", mark(node.state), " ", link("nodes", node.node), f" {SHAPES[node.state].word}") for node in shown]
    if len(found) > FOUND:
        rows.append(el("li", f"and {many(len(found) - FOUND, 'more node')}: say more of the name"))
    return el(
        "article",
        el("h1", f"{many(len(found), 'node')} with {name!r}" if name else many(len(found), "node")),
        el("ul", rows, class_="notable"),
        id="main-piece", class_="detail",
    )  # fmt: skip
