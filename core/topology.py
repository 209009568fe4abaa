"""Where machines stand: a file's word on the rack, switch and NVLink domain of each node. Pure; the shell reads it.

    ["n[000-031]"]          a node, or several: ranges in brackets, kept as wide as they are written
    rack = "r1"
    switch = "leaf-1"
    domain = "nvl-1"        the NVLink domain

Tables may overlap where each says something else; two words on one thing of one node are refused.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, Final

import msgspec

from rankpulse.core.keys import BadName, check_name, check_node
from rankpulse.core.records import NodeState
from rankpulse.core.snapshot_nodes import Place

NODES_MAX: Final = 65_536
SPELLED_MAX: Final = 4 * NODES_MAX  # names over all tables, for they may overlap
PATTERN_MAX: Final = 4_096  # characters
BRACKETS_MAX: Final = 4
FIELDS: Final = Place.__struct_fields__
_PART = re.compile(r"\[([^\[\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")
_OUTSIDE = re.compile(r",(?![^\[]*\])")  # a comma that stands in no brackets


class BadTopology(ValueError):
    """Everything that is wrong with the file, one line each, in `problems`."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


class Topology(msgspec.Struct, frozen=True):
    """By node. What the file says goes before what an agent says of itself; of the rest the agent's word stands."""

    places: dict[str, Place] = {}

    def of(self, node: str) -> Place:
        return self.places.get(node, Place())

    def told(self, state: NodeState) -> NodeState:
        """What an agent says of its machine, with the rack by which it is judged: the file's, its own, the switch."""
        place = self.of(state.node)
        rack = place.rack or state.rack or place.switch
        return msgspec.structs.replace(state, rack=rack) if rack != state.rack else state


def parse(tree: Mapping[str, Any]) -> Topology:
    """From a TOML file. Raises `BadTopology` with every problem."""
    places: dict[str, dict[str, str]] = {}
    problems: list[str] = []
    spelled = 0
    for pattern, said in tree.items():
        try:
            named = nodes(pattern)
            spelled += len(named)
            _add(places, named, _said(pattern, said))
        except BadTopology as error:
            problems += error.problems
        if len(places) > NODES_MAX or spelled > SPELLED_MAX:
            problems.append(f"more than {NODES_MAX} nodes")
            break
    if problems:
        raise BadTopology(problems)
    return Topology({node: Place(**fields) for node, fields in places.items()})


def _add(places: dict[str, dict[str, str]], named: tuple[str, ...], said: Mapping[str, str]) -> None:
    for node in named:
        known = places.setdefault(node, {})
        for field, name in said.items():
            if known.setdefault(field, name) != name:
                raise BadTopology([f"{node}: {field} is {known[field]!r} in one table and {name!r} in another"])


def _said(pattern: str, said: Any) -> dict[str, str]:
    where = f"[{pattern[:100]!r}]"
    if not isinstance(said, Mapping):
        raise BadTopology([f'{pattern[:100]!r}: must be a table, ["{pattern[:100]}"], with {_either()}'])
    problems = [f"{where} {key[:100]}: unknown; known are {_either()}" for key in said.keys() - set(FIELDS)]
    for field, name in said.items():
        if field in FIELDS:
            problems += [f"{where} {why}" for why in _bad_name(field, name)]
    if problems or not said:
        raise BadTopology(sorted(problems) or [f"{where} says nothing: give it {_either()}"])
    return dict(said)


def _either() -> str:
    return ", ".join(FIELDS)


def _bad_name(field: str, name: Any) -> list[str]:
    if not isinstance(name, str):
        return [f"{field}: must be a string"]
    try:
        check_name(name, field)
    except BadName as error:
        return [str(error)]
    return []


def nodes(pattern: str) -> tuple[str, ...]:
    """The nodes that a pattern names: n[00-03,07],login. Raises `BadTopology`."""
    if len(pattern) > PATTERN_MAX:
        raise BadTopology([f"{pattern[:100]!r}: more than {PATTERN_MAX} characters"])
    found: dict[str, None] = {}
    for one in _OUTSIDE.split(pattern):
        for name in _spelled(pattern, one.strip()):
            if len(found) >= NODES_MAX:
                raise BadTopology([f"{pattern[:100]!r}: more than {NODES_MAX} nodes"])
            found[_checked(pattern, name)] = None
    return tuple(found)


def _checked(pattern: str, name: str) -> str:
    try:
        return check_node(name)
    except BadName as error:
        raise BadTopology([f"{pattern[:100]!r}: {error}"]) from None


def _spelled(pattern: str, one: str) -> Iterator[str]:
    parts: list[list[str]] = []
    for found in _PART.finditer(one):
        ranges, text = found.groups()
        parts.append([text] if text else _numbers(pattern, ranges))
    if "".join(found.group() for found in _PART.finditer(one)) != one:
        raise BadTopology([f"{pattern[:100]!r}: brackets do not match"])
    if one.count("[") > BRACKETS_MAX:
        raise BadTopology([f"{pattern[:100]!r}: more than {BRACKETS_MAX} pairs of brackets"])
    for choice in product(*parts):  # lazily: whoever counts stops it
        yield "".join(choice)


def _numbers(pattern: str, ranges: str) -> list[str]:
    """What a pair of brackets stands for, as wide as the lower end is written."""
    found: list[str] = []
    for part in ranges.split(","):
        told = _RANGE.fullmatch(part.strip())
        if told is None:
            raise BadTopology([f"{pattern[:100]!r}: {part[:40]!r} is no number and no range such as 00-31"])
        low, high = told.group(1), told.group(2) or told.group(1)
        if not int(low) <= int(high) < int(low) + NODES_MAX:
            raise BadTopology([f"{pattern[:100]!r}: the range {part[:40]} goes backwards, or is too long"])
        found += [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
        if len(found) > NODES_MAX:
            raise BadTopology([f"{pattern[:100]!r}: more than {NODES_MAX} nodes"])
    return found
