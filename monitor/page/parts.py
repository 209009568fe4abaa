"""Parts of a page, each made by itself: what cannot be made says so where it would stand, and the rest stands."""

from collections.abc import Callable

from rankpulse.monitor.page.html import Child, Html, el
from rankpulse.monitor.page.words import sign


class Parts:
    """`complain` is told of what could not be made, and why."""

    def __init__(self, complain: Callable[[str, Exception], None]) -> None:
        self._complain = complain

    def section(self, id_: str, make: Callable[[], Html]) -> Html:
        """What `make` makes; else a section with this id that says why there is none."""
        return self._made(id_, make, lambda: el("section", lacking(id_), id=id_))

    def item(self, id_: str, make: Callable[[], Html], what: Child) -> Html:
        """One of several, such as a card of an incident; `what` leads to it."""
        return self._made(id_, make, lambda: el("article", el("h3", what), lacking(id_), class_="card bad", id=id_))

    def _made(self, name: str, make: Callable[[], Html], instead: Callable[[], Html]) -> Html:
        try:
            return make()
        except Exception as error:
            self._complain(name, error)
            return instead()


def lacking(name: str) -> Html:
    """A sentence in the place of something."""
    told = f" This part ({name}) cannot be shown: a bug in rankpulse, the monitor's log tells it. "
    return el(
        "p", sign("✕", "bad", "trouble"), told, "What it would say: ", el("code", "rankpulse status"), class_="lacks"
    )
