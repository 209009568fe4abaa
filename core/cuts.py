"""Who fell silent together: a rack or a switch is one cause, and is judged as one. Pure."""

from collections.abc import Iterable, Mapping
from typing import Final

from rankpulse.core.views import NodeView

TOGETHER_BEATS: Final = 1.5  # without racks: last beats that lie no further apart
RACK_BEATS: Final = 5.0  # within a rack
HALF: Final = 0.5  # this share of a rack's nodes, and at least two, is the rack
ALONE: Final = 2  # so many may be silent at once by chance


def rack_of(node: NodeView) -> str:
    return node.state.rack if node.state is not None else ""


def rack_sizes(nodes: Iterable[NodeView]) -> dict[str, int]:
    """How many watched nodes each rack has; "" for those without."""
    sizes: dict[str, int] = {}
    for node in nodes:
        if not node.leaving and node.arrival.watched:
            sizes[rack_of(node)] = sizes.get(rack_of(node), 0) + 1
    return sizes


def cuts(silent: list[NodeView], sizes: Mapping[str, int], beat_s: float) -> list[list[NodeView]]:
    """The silent nodes in groups that are judged as one, each in order of name; one alone is a group of one."""
    by_rack: dict[str, list[NodeView]] = {}
    for node in silent:
        by_rack.setdefault(rack_of(node), []).append(node)
    groups = []
    for rack, nodes in sorted(by_rack.items()):
        for group in by_time(nodes, (RACK_BEATS if rack else TOGETHER_BEATS) * beat_s):
            whole = not rack or len(group) >= HALF * sizes.get(rack, 0)
            groups += [group] if whole else [[node] for node in group]
    return [sorted(group, key=lambda node: node.name) for group in groups]


def by_time(nodes: list[NodeView], gap_s: float) -> list[list[NodeView]]:
    """By when they were last heard: a chain of nodes whose last beats follow each other closely is one group."""
    groups: list[list[NodeView]] = []
    for node in sorted(nodes, key=lambda node: (node.silence_began(), node.name)):
        if groups and node.silence_began() - groups[-1][-1].silence_began() <= gap_s:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def together(late: int, watched: int, share: float) -> bool:
    """Whether so many of all nodes are late that the path they share must be looked at before any of them."""
    return late >= 2 and late >= share * watched


def mass(silent: list[NodeView], sizes: Mapping[str, int]) -> bool:
    """More than two nodes, and more than one rack: the observer may be the one that is cut off."""
    if len(silent) <= ALONE:
        return False
    racks = {rack_of(node) for node in silent}
    return "" in racks or len(racks) > 1
