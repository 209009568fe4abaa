"""Which nodes a person should know of, and what is to be said of each: silent, broken, or taken out on purpose."""

from typing import Final

from rankpulse.cli import show
from rankpulse.cli.top_state import Node, State

_REFUSED: Final = "refused, because "


def notable(state: State) -> list[tuple[str, ...]]:
    """Mark, name, silence, words; the worst first."""
    told = [(name, *_told(name, node, state), node) for name, node in state.nodes.items()]
    gone = [(name, *_told(name, None, state), None) for name in _asked_for(state) if name not in state.nodes]
    found = sorted((one for one in (*told, *gone) if one[2]), key=lambda one: ("!?-".index(one[1]), one[0]))
    return [(mark, name, _silence(node), words) for name, mark, words, node in found]


def _asked_for(state: State) -> list[str]:
    return sorted(state.cordons.keys() | state.maintenance.keys())


def _told(name: str, node: Node | None, state: State) -> tuple[str, str]:
    """Its mark and what is said of it; "" where there is nothing to say."""
    mark, words = _standing(node) if node is not None else ("-", "")
    parts = [words] if words else []
    for what, held in (("cordoned", state.cordons.get(name)), ("in maintenance", state.maintenance.get(name))):
        if held is not None:
            parts.append(f"{what} by {held.author}: {held.reason}")
    return mark, "; ".join(parts)


def _standing(node: Node) -> tuple[str, str]:
    if node.suspect:
        thought = node.suspicion.state if node.suspicion is not None else ""
        look = f", looked at directly: {node.look.answer}" if node.look is not None and node.look.answer else ""
        return ("!", f"CONVICTED{look}") if thought == "convicted" else ("?", f"{_thought(thought)}{look}")
    why = node.state.capabilities.get("preflight", "") if node.state is not None else ""
    if why.startswith(_REFUSED):
        return "!", f"in no round: {why.removeprefix(_REFUSED)}"
    return "-", "left: its agent said goodbye" if node.leaving else ""


def _thought(state: str) -> str:
    return "SUSPECT" if state in ("", "trusted") else state.upper()


def _silence(node: Node | None) -> str:
    return show.span(node.silence_s) if node is not None and node.silence_s is not None else "-"
