"""HTML as values. Whatever is not `Html` is text from somebody, and is escaped here and nowhere else."""

from collections.abc import Iterable
from html import escape
from typing import Final, TypeAlias

TEXT_MAX: Final = 8000  # of one piece of text: a page stays readable, whatever a record says
_VOID: Final = frozenset({"br", "hr", "input", "link", "meta"})


class Html(str):
    """Markup that is safe to send. Only `el`, `join` and constants of this package make it."""

    __slots__ = ()


Child: TypeAlias = "str | int | float | Html | Iterable[Child] | None"
NOTHING: Final = Html("")


def text(value: object) -> Html:
    """Anybody's words as text: they make no markup, steer nothing, and do not run on for ever."""
    said = str(value)
    if not said.isprintable():
        said = "".join(char if char.isprintable() else " " if char in "\t\r\n" else "\ufffd" for char in said)
    if len(said) > TEXT_MAX:
        said = f"{said[:TEXT_MAX]}…"
    return Html(escape(said, quote=True))


def el(tag: str, *children: Child, **attributes: object) -> Html:
    """An element. `class_` is class, `aria_label` aria-label; None and False leave an attribute out, True names it."""
    said = "".join(_attribute(name, value) for name, value in attributes.items() if value not in (None, False))
    if tag in _VOID:
        return Html(f"<{tag}{said}>")
    return Html(f"<{tag}{said}>{join(children)}</{tag}>")


def join(children: Iterable[Child]) -> Html:
    return Html("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if isinstance(child, Html):
        return child
    if child is None:
        return ""
    if isinstance(child, (str, int, float)):
        return text(child)
    return join(child)


def _attribute(name: str, value: object) -> str:
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(value)}"'
