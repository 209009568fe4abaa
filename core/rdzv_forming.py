"""When a round forms, and of whom: pure functions of what one agent has seen.

Every question about a member of the last round is settled at some moment: it asks for the next one, has left, is
away for too long, must stay out, or has had time enough. A round can form when all are settled and there are nodes
enough; that moment depends on records alone, so nothing has to be remembered between two looks.
"""

import math
from typing import NamedTuple

from rankpulse.core import records as r
from rankpulse.core.rdzv_types import Timing
from rankpulse.core.rdzv_view import Run, Seen, View


class Fallen(NamedTuple):
    """The newest round does not stand any more."""

    since: float
    reason: str


class Prospect(NamedTuple):
    """The next round as it would be. `forms_at`: since when, or from when on, it can form; inf: nobody can tell."""

    number: int
    chosen: tuple[r.Joiner, ...]  # by group rank
    spares: tuple[r.Joiner, ...]
    forms_at: float
    lacks: str  # what it waits for, for people


def fallen(run: Run) -> Fallen | None:
    """Whether the newest round is over for its members, by order or because one of them is out of it."""
    found: list[Fallen] = []
    order = run.orders.get(run.last)
    if order is not None:
        found.append(Fallen(order.at, order.record.reason or "restart ordered"))
    if run.waiting or run.left or len(run.joiners) < len(run.members):
        found.extend(out for place in run.members if (out := _out_of_round(run, place)) is not None)
    return min(found, default=None, key=lambda fall: fall.since)


def _out_of_round(run: Run, place: r.Place) -> Fallen | None:
    who = (place.node, place.launcher)
    joiner = run.joiners.get(who)
    if joiner is None:
        return Fallen(run.meetings[run.last].at, f"{place.node} is not known any more")
    if joiner.record.left:
        return Fallen(joiner.at, f"{place.node} has left: {joiner.record.left}")
    return Fallen(joiner.at, f"{place.node} asks for the next round") if who in run.waiting else None


def lost_at(view: View, run: Run, here: str, timing: Timing) -> float:
    """When a round, of whose members nobody is there, counts as lost; inf while one is."""
    latest = -math.inf
    for place in run.members:
        gone = view.gone_since(place.node, run.meetings[run.last].at, here)
        if gone is None:
            return math.inf
        latest = max(latest, gone + timing.lost_s)
    return latest if run.members else math.inf


def prospect(view: View, run: Run, here: str, since: float, now: float, timing: Timing) -> Prospect:
    """The next round as far as it can be seen at `now`; `since`: when the last one ceased to stand."""
    launch, number = run.launch.record, run.last + 1  # type: ignore[union-attr]
    gate = run.gates.get(number)
    out = dict.fromkeys(gate.record.without, gate.at) if gate else {}
    out.update({node: cordon.at for node, cordon in view.cordons.items()})
    settled = [_settled(view, run, place, here, since, out, timing) for place in run.members]
    ready = {
        who: joiner
        for who, joiner in run.waiting.items()
        if who[0] not in out and view.gone_since(who[0], joiner.at, here) is None
    }
    members = [(p.node, p.launcher) for p in run.members if (p.node, p.launcher) in ready]
    newcomers = sorted(ready.keys() - set(members), key=lambda who: (who[0], ready[who].modified, who))
    order = [ready[who] for who in members + newcomers]
    forms_at = max(
        [_enough_at(order, launch, first=not members), *(at for at, _ in settled)],
    )
    lacks = [name for at, name in settled if name and at > now]
    return Prospect(
        number,
        tuple(seen.record for seen in order[: launch.max_nodes]),
        tuple(seen.record for seen in order[launch.max_nodes :]),
        forms_at,
        _words(len(order), launch, lacks),
    )


def _settled(
    view: View, run: Run, place: r.Place, here: str, since: float, out: dict[str, float], timing: Timing
) -> tuple[float, str]:
    """From when on nobody has to wait for this member of the last round, and how it is called until then."""
    joiner = run.joiners.get((place.node, place.launcher))
    if joiner is None or joiner.record.left:
        return (joiner.at if joiner else since), ""
    if place.node in out:
        return out[place.node], ""
    waits = (place.node, place.launcher) in run.waiting
    gone = view.gone_since(place.node, joiner.at, here)
    if gone is not None:
        return gone + timing.absent_s, f"{place.node} (its agent is away)"
    return (joiner.at, "") if waits else (since + timing.straggler_s, f"{place.node} (still stopping its workers)")


def _enough_at(order: list[Seen[r.Joiner]], launch: r.Launch, *, first: bool) -> float:
    """When the nodes that are here are enough. Those who never were in a round together wait for a last call."""
    arrivals = sorted(seen.at for seen in order)
    if len(arrivals) < launch.min_nodes or not arrivals:
        return math.inf
    if not first:
        return arrivals[launch.min_nodes - 1]
    if len(arrivals) >= launch.max_nodes:
        return arrivals[launch.max_nodes - 1]
    return arrivals[-1] + max(min(seen.record.last_call_s, 3600.0) for seen in order)


def _words(here: int, launch: r.Launch, lacks: list[str]) -> str:
    wanted = launch.min_nodes if here < launch.min_nodes else launch.max_nodes
    text = f"{here} of {wanted} nodes here" if here < wanted else f"{here} nodes here"
    if lacks:
        return f"{text}; missing: {some(lacks)}"
    return f"{text}; last call for more" if launch.min_nodes <= here < launch.max_nodes else text


def some(names: list[str], most: int = 5) -> str:
    """The first few names, and how many more there are."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
