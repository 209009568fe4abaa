"""How states look and what they are called: a shape and a word for each, so that nobody needs colour."""

import time
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from rankpulse.core import node_standing as ns
from rankpulse.core.words import span, utc
from rankpulse.monitor.page.html import Html, el

EM: Final = "–"


class Shape(NamedTuple):
    """`sign`: what is drawn; `kind`: its group, for colour; `word`: what it is called; `says`: for the legend."""

    sign: str
    kind: str  # bad | doubt | out | fine
    word: str
    says: str


SHAPES: Final[dict[str, Shape]] = {
    ns.LOST: Shape("✕", "bad", "lost", "given up: nothing was heard of it on any path for long enough"),
    ns.BROKEN: Shape("▲", "bad", "broken GPU", "a GPU or its links are broken"),
    ns.REFUSED: Shape("!", "bad", "kept out", "its own look before a round found something"),
    ns.SUSPECTED: Shape("?", "doubt", "suspect", "it missed its deadline, and is looked at"),
    ns.LATE: Shape(
        "~",
        "doubt",
        "late",
        "no beats, and a reason not to give it up: something speaks for it, or too many are silent",
    ),
    ns.SICK: Shape("△", "doubt", "sick GPU", "a GPU works, and is likely to fail"),
    ns.MAINTENANCE: Shape("M", "out", "maintenance", "a person works on it"),
    ns.DRAINING: Shape("↓", "out", "draining", "its job leaves it after the next checkpoint"),
    ns.CORDONED: Shape("/", "out", "cordoned", "no round is to include it"),
    ns.LEFT: Shape("–", "out", "left", "its agent said goodbye"),
    ns.UNKNOWN: Shape("·", "out", "unknown", "no beat of it was heard"),
    ns.SPARE: Shape("◇", "fine", "spare", "it waits for a round"),
    ns.BUSY: Shape("■", "fine", "busy", "ranks live on it"),
    ns.IDLE: Shape("□", "fine", "idle", "heard, and without work"),
}
GPU_LEVELS: Final = {"broken": "▲", "sick": "△", "unknown": "?", "watch": "·"}


def mark(state: str) -> Html:
    """A state as its shape, with its name for whoever does not see it."""
    shape = SHAPES[state]
    return el("span", shape.sign, class_=f"mark {shape.kind}", role="img", aria_label=shape.word)


def sign(sign_: str, kind: str, word: str) -> Html:
    return el("span", sign_, class_=f"mark {kind}", role="img", aria_label=word)


def when(at: float | None) -> Html:
    """A time of day in UTC; a script adds how long ago that is."""
    if at is None:
        return el("span", EM)
    return el("time", clock(at), datetime=utc(at), data_at=f"{at:.0f}")


def clock(at: float) -> str:
    """Date and time of day; "?" for what no calendar has."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
    except (ValueError, OverflowError, OSError):
        return "?"


def roughly(seconds: Any) -> str:
    return span(float(seconds)) if isinstance(seconds, (int, float)) else EM


def path(kind: str, name: str) -> str:
    """Where the page of an incident, a node or a run is."""
    return f"/{kind}/{quote(name, safe='')}"


def link(kind: str, name: str, label: str = "") -> Html:
    return el("a", label or name, href=path(kind, name))


def many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
