"""The document around the pieces of a page: what is there before anything is known, and without a script. Pure."""

from typing import Final, NamedTuple

from rankpulse.monitor.page.about import About
from rankpulse.monitor.page.board import Board
from rankpulse.monitor.page.html import Html, el, join
from rankpulse.monitor.page.words import clock

RELOAD_S: Final = 10  # where there is no script


class Frame(NamedTuple):
    """What stands around the pieces. `look`: of style and script, so that a page of an older monitor loads anew."""

    about: About
    cluster: str
    title: str
    path: str
    look: str
    at: float


def document(frame: Frame, board: Board) -> Html:
    return Html("<!doctype html>\n") + el("html", _head(frame), _body(frame, board), lang="en")  # type: ignore[return-value]


def _head(frame: Frame) -> Html:
    return el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("title", frame.title),
        el("link", rel="icon", href=f"/static/icon.svg?{frame.look}", type="image/svg+xml"),
        el("link", rel="stylesheet", href=f"/static/page.css?{frame.look}"),
        el("noscript", el("meta", http_equiv="refresh", content=str(RELOAD_S))),
        el("script", src=f"/static/page.js?{frame.look}", defer=True),
    )


def _body(frame: Frame, board: Board) -> Html:
    return el(
        "body",
        el("a", "Skip to what is wrong", href="#main", class_="skip"),
        el("header", _nav(frame), _live(frame), class_="top"),
        el("main", board.outer(), id="main", tabindex="-1"),
        el("footer", _foot(frame)),
        data_mark=board.mark, data_at=f"{frame.at:.1f}", data_view=frame.path, data_look=frame.look,
    )  # fmt: skip


def _nav(frame: Frame) -> Html:
    links = [el("a", f"rankpulse {frame.cluster}", href="/", class_="home")]
    if frame.path == "/":
        links += [el("a", name, href=f"#{to}") for name, to in (("runs", "runs"), ("fleet", "fleet"))]
    if frame.about.grafana:
        links.append(el("a", "Grafana", href=f"{frame.about.grafana.rstrip('/')}/d/rankpulse-fleet"))
    return el("nav", join(links), aria_label="pages")


def _live(frame: Frame) -> Html:
    """Says how old the page is; the script says whether it is live."""
    asked = f"as of {clock(frame.at)}"
    return el("p", asked, el("noscript", f"; loads anew every {RELOAD_S} s"), id="live", role="status")


def _foot(frame: Frame) -> Html:
    return join((
        el("p", f"monitor {frame.about.monitor}, rankpulse {frame.about.version}. Read-only: act in a terminal, by ",
           el("code", "rankpulse arm"), ", ", el("code", "restart"), ", ", el("code", "pause"), ", ",
           el("code", "cordon"), ", ", el("code", "breaker close"), ". ",
           el("a", "state", href="/state"), " · ", el("a", "metrics", href="/metrics")),
    ))  # fmt: skip
