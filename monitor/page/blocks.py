"""What pages of one thing are made of: named facts, lists of lines, tables. Pure."""

from collections.abc import Iterable
from typing import Final

from rankpulse.core.records import Incident
from rankpulse.monitor.page.html import Child, Html, el
from rankpulse.monitor.page.words import link

ROWS: Final = 64  # of a list


def row(name: str, value: object) -> Html:
    """A name and what it is; a list takes a line each."""
    told = [str(line) for line in value] if isinstance(value, (list, tuple)) else [str(value)]
    body: Child = told[0] if len(told) == 1 else el("ul", [el("li", line) for line in told], class_="plain")
    return el("div", el("dt", name), el("dd", body), class_="do" if name == "what to do" else None)


def lines(title: str, told: Iterable[str]) -> Html:
    return el("section", el("h2", title), el("ol", [el("li", line) for line in told], class_="lines"))


def table(title: str, columns: tuple[str, ...], rows: list[Html]) -> Html:
    head = el("thead", el("tr", [el("th", name, scope="col") for name in columns]))
    made = el("table", head, el("tbody", rows))
    wide = el("div", made, class_="wide", tabindex="0", role="region", aria_label=title)
    return el("section", el("h2", title), wide)


def concerning(found: list[Incident]) -> Html | None:
    if not found:
        return None
    rows = [el("li", link("incidents", i.id), f" {i.klass}, {i.outcome or i.state}: {i.summary}") for i in found[:ROWS]]
    return el("section", el("h2", "Incidents"), el("ul", rows))
