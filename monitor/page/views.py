"""Which pieces make which page. Pure, but that it remembers what it drew."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote

from rankpulse.core.glance import Glance
from rankpulse.monitor.page import detail, detail_node, detail_run, fleet, incidents, runs, sight, undone
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.board import Piece
from rankpulse.monitor.page.html import Html
from rankpulse.monitor.page.parts import Parts

if TYPE_CHECKING:
    from rankpulse.core.engine import Engine

SEARCH: Final = "/nodes"  # with ?name=


class Views:
    """`complain` is told of a part that cannot be made: the others are shown all the same."""

    def __init__(self, engine: "Engine", complain: Callable[[str, Exception], None]) -> None:
        self._engine, self._racks = engine, fleet.Racks()
        self._parts = Parts(complain)

    def pieces(self, path: str, told: Glance, about: About) -> tuple[list[Piece], bool]:
        """The pieces of the page at `path`, and whether there is what it is about."""
        part, over = self._parts.section, path == "/"
        head = Piece("verdict", part("verdict", lambda: sight.verdict(told, about, title=over)))
        if over:
            return [head, *self._overview(told, about)], True
        found = [True]

        def main() -> Html:
            kind, name = _named(path)
            made = self._one(kind, name, told, about)
            found[0] = made is not None
            return made if made is not None else detail.absent(kind, name, told)

        return [head, Piece("main-piece", part("main-piece", main))], found[0]

    def _overview(self, told: Glance, about: About) -> list[Piece]:
        part = self._parts.section
        return [
            Piece("incidents", part("incidents", lambda: incidents.incidents(told, about, self._parts))),
            Piece("runs", part("runs", lambda: runs.runs(told))),
            *self._fleet(told),
            Piece("undone", part("undone", lambda: undone.undone(told, about))),
            Piece("sight", part("sight", lambda: sight.sight(told, about))),
            Piece("notable", part("notable", lambda: fleet.notable(told))),
            Piece("closed", part("closed", lambda: incidents.closed(told))),
        ]

    def _fleet(self, told: Glance) -> list[Piece]:
        """The map, and its racks within it."""
        racks = self._racks.draw(told.racks, self._parts.section)
        count = sum(len(rack.nodes) for rack in told.racks)
        whole = Piece("fleet", fleet.whole(racks, count), same=f"{count} {' '.join(id_ for id_, _ in racks)}")
        return [whole, *(Piece(id_, html, within="fleet") for id_, html in racks)]

    def _one(self, kind: str, name: str, told: Glance, about: About) -> Html | None:
        if kind == "search":
            return detail.search(name, told)
        if kind == "nodes":
            return detail_node.node(self._engine, told, name)
        if kind == "runs":
            return detail_run.run(self._engine, told, name, about)
        found = self._engine.book.get(name) if kind == "incidents" else None
        return detail.incident(found, told.findings.get(name), about) if found is not None else None


def _named(path: str) -> tuple[str, str]:
    """Kind and name of what a path is about."""
    if path.partition("?")[0] == SEARCH:
        return "search", parse_qs(path.partition("?")[2]).get("name", [""])[0].strip()
    _, kind, name = [*path.split("/", 2), "", ""][:3]
    return (kind, unquote(name)) if kind in ("incidents", "nodes", "runs") else ("", unquote(path))
