"""From the bytes of a signed body to an event, once and with limits: who has a key may still be wrong. Pure."""

import json
from typing import Annotated, Any, Final

import msgspec

DEPTH_MAX: Final = 8
DIGITS_MAX: Final = 20
NODES_MAX: Final = 20_000

Name = Annotated[str, msgspec.Meta(max_length=256)]
Text = Annotated[str, msgspec.Meta(max_length=4000)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e11)]
Nodes = Annotated[tuple[Name, ...], msgspec.Meta(max_length=NODES_MAX)]


class Unreadable(ValueError):
    """No event of ours; the text says why."""


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """What is acted by. Fields may be added to events, and are not read here."""

    event: Name
    decision: Name
    cluster: Name
    at: Seconds  # UTC, of the decision
    opened_at: Seconds
    incident: Name = ""
    run_uid: Name = ""
    run_id: Text = ""
    round: Annotated[int, msgspec.Meta(ge=-1, le=1_000_000_000)] = -1
    nodes: Nodes = ()  # concerned
    without: Nodes = ()  # to be left out
    summary: Text = ""


class Event(msgspec.Struct, frozen=True, kw_only=True):
    specversion: Name
    id: Name
    source: Name
    type: Name
    data: Data


def event(body: bytes, id_: str) -> Event:
    """The event in `body`, whose id is the signed one. Raises `Unreadable`."""
    try:
        tree = json.loads(
            body.decode(), object_pairs_hook=_each_once, parse_constant=_no_constant, parse_int=_short_int
        )
        if _depth(tree) > DEPTH_MAX:
            raise ValueError(f"nested deeper than {DEPTH_MAX}")
        found = msgspec.convert(tree, Event)
    except (ValueError, RecursionError) as error:  # also what is no UTF-8
        raise Unreadable(f"the body is no event: {str(error)[:200]}") from None
    if found.specversion != "1.0" or found.id != id_:
        raise Unreadable("the body is no CloudEvent 1.0 with the id that was signed")
    if found.type != f"rankpulse.{found.data.event}" or found.source != f"/rankpulse/{found.data.cluster}":
        raise Unreadable("type and source of the event are not those of its data")
    return found


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a key twice")
    return made


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _short_int(digits: str) -> int:
    if len(digits) > DIGITS_MAX:
        raise ValueError("a number of too many digits")
    return int(digits)


def _depth(tree: Any) -> int:
    """How deep it is nested, counted level by level."""
    level, depth = [tree], 0
    while level := [part for one in level if isinstance(one, dict | list) for part in _parts(one)]:
        depth += 1
    return depth


def _parts(one: Any) -> Any:
    return one.values() if isinstance(one, dict) else one
