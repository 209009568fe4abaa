"""The fleet map: racks, in them nodes, on them the GPUs that are not well. Each state has a shape of its own. Pure."""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import quote

from rankpulse.core import node_standing as ns
from rankpulse.core.glance import Glance, Rack
from rankpulse.core.node_standing import Gpu, Standing
from rankpulse.monitor.page.html import Child, Html, el
from rankpulse.monitor.page.words import GPU_LEVELS, SHAPES, link, many, mark, path

NOTABLE: Final = 40  # nodes that are listed below the map with their reason
GPUS: Final = 8  # drawn of a node
SMALL: Final = 300  # nodes


class Racks:
    """Draws racks, each anew only when it changed: a fleet of thousands is mostly as it was."""

    def __init__(self) -> None:
        self._drawn: dict[str, tuple[Rack, Html]] = {}

    def draw(self, racks: tuple[Rack, ...], part: Callable[[str, Callable[[], Html]], Html]) -> list[tuple[str, Html]]:
        """Ids with what they show. `part` makes one of an id, or says that it cannot be made."""
        before, self._drawn = self._drawn, {}
        for rack in racks:
            known = before.get(rack.name)
            if known is None or known[0] != rack:
                known = rack, part(rack_id(rack.name), partial(drawn, rack))
            self._drawn[rack.name] = known
        return [(rack_id(name), html) for name, (_, html) in self._drawn.items()]


def rack_id(name: str) -> str:
    """An id of the document. Settings allow few letters; what a record says is anybody's."""
    return f"rack-{quote(name, safe='')}" if name else "rack"


def drawn(rack: Rack) -> Html:
    title = f"{rack.name or 'no rack known'}"
    counts = Counter(node.state for node in rack.nodes)
    told = ", ".join(f"{counts[state]} {SHAPES[state].word}" for state in ns.STANDINGS if counts[state])
    return el(
        "section",
        el("h3", title, " ", el("small", told)),
        el("ol", [_tile(node) for node in rack.nodes], class_="nodes"),
        id=rack_id(rack.name), class_="rack", aria_label=f"{title}: {told}",
    )  # fmt: skip


def _tile(node: Standing) -> Html:
    """One that is well is small, and skipped when going from link to link by keys: the search reaches it."""
    shape = SHAPES[node.state]
    quiet = node.state in ns.QUIET and not node.gpus
    title = f"{node.node}: {shape.word}" + (f", {many(node.ranks, 'rank')}" if node.ranks else "")
    title += f"; {node.words}" if node.words else ""
    inner: Child = [shape.sign, el("span", node.node, class_="name"), _gpus(node.gpus)] if not quiet else shape.sign
    anchor = el(
        "a", inner, class_=f"{shape.kind} {node.state}", href=path("nodes", node.node), title=title,
        aria_label=title, tabindex="-1" if quiet else None,
    )  # fmt: skip
    return el("li", anchor)


def _gpus(gpus: tuple[Gpu, ...]) -> Child:
    if not gpus:
        return None
    shown = [(GPU_LEVELS.get(gpu.level, "?"), str(gpu.number) if gpu.number >= 0 else "") for gpu in gpus[:GPUS]]
    return el("span", [el("span", f"{sign}{number}") for sign, number in shown], class_="gpus")


def notable(told: Glance) -> Html:
    """Nodes of which something is to be said, the worst first, as text."""
    found = [node for node in told.nodes() if node.state not in ns.QUIET or node.gpus]
    found.sort(key=lambda node: (ns.STANDINGS.index(node.state), node.node))
    rows = [el("li", mark(node.state), " ", link("nodes", node.node), " ", _why(node)) for node in found[:NOTABLE]]
    rest = len(found) - NOTABLE
    more = el("li", f"and {many(rest, 'more node')}: rankpulse status") if rest > 0 else None
    body: Child = el("ul", rows, more, class_="notable") if rows else el("p", "None.", class_="quiet")
    return el("section", el("h2", "Nodes to know of"), body, id="notable")


def _why(node: Standing) -> str:
    word = SHAPES[node.state].word
    gpus = [f"{gpu.name}: {gpu.text or gpu.level}" for gpu in node.gpus[:3]]
    told = "; ".join([*filter(None, [node.words]), *(text for text in gpus if text not in node.words)])
    return f"{word}: {told}" if told else word


def legend() -> Html:
    rows = [el("li", mark(state), " ", el("b", SHAPES[state].word), f" {SHAPES[state].says}") for state in ns.STANDINGS]
    return el("details", el("summary", "Legend"), el("ul", rows, class_="legend"), id="legend")


def whole(racks: list[tuple[str, Html]], count: int) -> Html:
    """The map with all its racks."""
    search = el(
        "form",
        el("label", "Find a node ", el("input", name="name", size="16", autocomplete="off", id="find")),
        el("button", "Show"),
        action="/nodes", method="get", class_="find",
    )  # fmt: skip
    size = "small" if count <= SMALL else "large"  # a small one stands beside the incidents
    title = el("h2", f"Fleet ({many(count, 'node')})")
    return el(
        "section",
        title,
        search,
        el("div", [html for _, html in racks], class_="racks"),
        legend(),
        id="fleet",
        class_=size,
    )
