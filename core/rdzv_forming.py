"""When a round forms, and of whom: pure functions of what one agent has seen.

Every question about a member of the last round is settled at some moment: it asks for the next one, has left, is
away for too long, must stay out, or has had time enough. A round can form when all are settled and there are nodes
enough; that moment depends on records alone, so nothing has to be remembered between two looks.
"""

import math
from collections.abc import Mapping, Set
from typing import NamedTuple

from rankpulse.core import records as r
from rankpulse.core.rdzv_types import Timing
from rankpulse.core.rdzv_view import Run, Seen, Torchrun, View

MOST_NAMED = 5


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


class Limit(NamedTuple):
    """A person's word on what the next round resumes from: checkpoints of `step` and beyond that lay there in `round`
    are set aside. Step -1: none."""

    step: int
    round: int


def limit_of(run: Run) -> Limit:
    """The limit for the round after the newest one.

    The order that ended that one knows best, then the monitor, which also knows when a limit was obeyed. Without their
    word the last round's is handed on: to obey it once more changes nothing.
    """
    order, gate, last = run.orders.get(run.last), run.gates.get(run.last + 1), run.meetings.get(run.last)
    if order is not None and order.record.resume_before_step >= 0:
        return Limit(order.record.resume_before_step, order.record.round)
    if gate is not None:
        return Limit(gate.record.resume_before_step, gate.record.resume_before_round)
    return Limit(last.record.resume_before_step, last.record.resume_before_round) if last else Limit(-1, 0)


def fallen(run: Run) -> Fallen | None:
    """Whether the newest round is over for its members, by order or because one of them is out of it."""
    order, since = run.orders.get(run.last), min(run.broken.values(), default=math.inf)
    if order is not None and order.at <= since:
        return Fallen(order.at, order.record.reason or "restart ordered")
    first = min((who for who, at in run.broken.items() if at == since), default=None)
    return Fallen(since, _out_of_round(run, first)) if first else None


def _out_of_round(run: Run, who: Torchrun) -> str:
    joiner = run.joiners.get(who)
    if joiner is None:
        return f"{who[0]} is not known any more"
    return f"{who[0]} has left: {joiner.record.left}" if joiner.record.left else f"{who[0]} asks for the next round"


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
    lost = run.lost
    ready = _ready(view, run, here, out.keys() | lost.keys())
    members = [who for p in run.members if (who := (p.node, p.launcher)) in ready]
    newcomers = sorted(ready.keys() - set(members), key=lambda who: (who[0], ready[who].modified, who))
    order = [ready[who] for who in members + newcomers]
    short = len(order) < launch.min_nodes
    missing = [p for p in run.members if (p.node, p.launcher) not in ready]
    settled = [
        _settled(view, run, place, here, since, out, lost, timing)
        for place in (missing[:MOST_NAMED] if short else missing)
    ]
    lacks = [name for at, name in settled if short or at > now]
    lacks += [""] * (len(missing) - len(settled))
    lacks += _refused(run) if short else []
    arrived = max((ready[who].at for who in members), default=-math.inf)
    return Prospect(
        number,
        tuple(seen.record for seen in order[: launch.max_nodes]),
        tuple(seen.record for seen in order[launch.max_nodes :]),
        max([_enough_at(order, launch, first=not members), arrived, *(at for at, _ in settled)]),
        _words([seen.record.node for seen in order[: MOST_NAMED + 1]], len(order), launch, lacks),
    )


def _ready(view: View, run: Run, here: str, out: Set[str]) -> dict[Torchrun, Seen[r.Joiner]]:
    """Those who wait, whose agent is there and who may take part."""
    return {
        who: joiner
        for who, joiner in run.waiting.items()
        if who[0] not in out
        and not (joiner.record.checking or joiner.record.refused)
        and (who[0] in view.present or view.gone_since(who[0], joiner.at, here) is None)
    }


def _settled(
    view: View,
    run: Run,
    place: r.Place,
    here: str,
    since: float,
    out: Mapping[str, float],
    lost: Mapping[str, float],
    timing: Timing,
) -> tuple[float, str]:
    """From when on nobody has to wait for this member of the last round that is not ready, and what is with it."""
    joiner = run.joiners.get((place.node, place.launcher))
    if joiner is None or joiner.record.left:
        left = joiner.record.left if joiner else "its record is gone"
        return (joiner.at if joiner else since), f"{place.node} (has left: {left})"
    if place.node in out:
        return out[place.node], f"{place.node} (has to stay out)"
    if place.node in lost:
        return lost[place.node], f"{place.node} (is lost: another must take its place)"
    gone = view.gone_since(place.node, joiner.at, here)
    if gone is not None:
        return gone + timing.absent_s, f"{place.node} (its agent is away)"
    if joiner.record.refused:
        return joiner.at, f"{place.node} ({joiner.record.refused})"
    if joiner.record.checking:
        return since + timing.straggler_s, f"{place.node} (is looked at before it joins)"
    return since + timing.straggler_s, f"{place.node} (still stopping its workers)"


def _refused(run: Run) -> list[str]:
    """Newcomers whose node may be in no round at present. (Members are told of where they are missing.)"""
    members = {(place.node, place.launcher) for place in run.members}
    return [
        f"{who[0]} ({s.record.refused})" for who, s in run.waiting.items() if s.record.refused and who not in members
    ]


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


def _words(names: list[str], here: int, launch: r.Launch, lacks: list[str]) -> str:
    wanted = launch.min_nodes if here < launch.min_nodes else launch.max_nodes
    text = f"{here} of {wanted} nodes here" if here < wanted else f"{here} nodes here"
    text += f" ({some(names, here)})" if here else ""
    if lacks:
        return f"{text}; missing: {some(lacks, len(lacks))}"
    return f"{text}; last call for more" if launch.min_nodes <= here < launch.max_nodes else text


def some(names: list[str], count: int) -> str:
    """The first few names, and how many more there are."""
    more = count - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
