"""Which pieces make which page. Pure, but that it remembers what it drew."""

from typing import TYPE_CHECKING
from urllib.parse import unquote

from rankpulse.core.glance import Glance
from rankpulse.monitor.page import detail, detail_node, detail_run, fleet, incidents, runs, sight, undone
from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.board import Piece
from rankpulse.monitor.page.html import Html

if TYPE_CHECKING:
    from rankpulse.core.engine import Engine


class Views:
    def __init__(self, engine: "Engine") -> None:
        self._engine, self._racks = engine, fleet.Racks()

    def pieces(self, path: str, told: Glance, about: About) -> tuple[list[Piece], bool]:
        """The pieces of the page at `path`, and whether there is what it is about."""
        head = Piece("verdict", sight.verdict(told, about))
        if path == "/":
            return [head, *self._overview(told, about)], True
        kind, name = _named(path)
        main = self._one(kind, name, told, about)
        shown = main if main is not None else detail.absent(kind, name, told)
        return [head, Piece("main-piece", shown)], main is not None

    def _overview(self, told: Glance, about: About) -> list[Piece]:
        racks = self._racks.draw(told.racks)
        count = sum(len(rack.nodes) for rack in told.racks)
        return [
            Piece("incidents", incidents.incidents(told, about)),
            Piece("runs", runs.runs(told)),
            Piece("fleet", fleet.whole(racks, count), same=f"{count} {' '.join(id_ for id_, _ in racks)}"),
            *(Piece(id_, html, within="fleet") for id_, html in racks),
            Piece("undone", undone.undone(told, about)),
            Piece("sight", sight.sight(told, about)),
            Piece("notable", fleet.notable(told)),
            Piece("closed", incidents.closed(told)),
        ]

    def _one(self, kind: str, name: str, told: Glance, about: About) -> Html | None:
        if kind == "nodes":
            return detail_node.node(self._engine, told, name)
        if kind == "runs":
            return detail_run.run(self._engine, told, name, about)
        found = self._engine.book.get(name) if kind == "incidents" else None
        return detail.incident(found, told.findings.get(name), about) if found is not None else None


def _named(path: str) -> tuple[str, str]:
    """Kind and name of what a path is about."""
    _, kind, name = [*path.split("/", 2), "", ""][:3]
    return (kind, unquote(name)) if kind in ("incidents", "nodes", "runs") else ("", unquote(path))
