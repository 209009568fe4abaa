"""Whether last words are written, of which step and by whom: from what ranks have announced. Values only."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rankpulse.trainer.checkpoint.lastwords.layouts import Layouts
from rankpulse.trainer.checkpoint.lastwords.words import Announcement, Plan
from rankpulse.trainer.checkpoint.state import differing
from rankpulse.trainer.checkpoint.surviving import decided, ranks_were

EXTRA: Final = "extra."
UNKNOWN: Final = "what others have got of it is not known"


@dataclass(frozen=True, slots=True)
class Known:
    """What a rank knows when it judges. gone: ranks not to be waited for; torn: those that were in the middle of an
    update when they went. settled: nobody else is waited for who has not announced; over: it is decided now, or
    never."""

    said: Mapping[int, Announcement]
    gone: Collection[int] = ()
    torn: Collection[int] = ()
    settled: bool = False
    over: bool = False


def judged(layouts: Layouts, known: Known) -> Plan | None:
    """The plan (without a `save_id`), or None while there is something to wait for."""
    top = max((one.step for one in known.said.values()), default=-1)
    if known.torn:
        return _refused(top, f"{ranks_were(known.torn)} in the middle of an update when it ended: {UNKNOWN}")
    able = {rank: one for rank, one in known.said.items() if not one.unable}
    moving = sorted(rank for rank, one in able.items() if not one.clean)
    missing = set(range(layouts.world)) - known.said.keys() - set(known.gone)
    together = not moving and len({one.step for one in able.values()}) <= 1
    if not (known.settled or known.over) and (missing or not together):
        return None
    if moving:
        if not known.over:
            return None
        return _refused(top, f"{ranks_were(moving)} in the middle of an update: what is held there is of no step")
    found = _best(layouts, able, top, known)
    return found if found.may or known.over or (together and not missing) else None


def _best(layouts: Layouts, able: Mapping[int, Announcement], top: int, known: Known) -> Plan:
    """Of the highest step of which the state is there as a whole."""
    why = ""
    for step in sorted({one.step for one in able.values()}, reverse=True):
        clean = {rank: one for rank, one in able.items() if one.step == step}
        found = _of_step(layouts, clean, top)
        if found.may:
            return found
        why = why or found.reason
    unable = [f"rank {rank}: {one.unable}" for rank, one in sorted(known.said.items()) if one.unable]
    return _refused(top, "; ".join(filter(None, (why, *unable[:2]))) or "no rank that is left can say where it stands")


def _of_step(layouts: Layouts, clean: Mapping[int, Announcement], top: int) -> Plan:
    step = next(iter(clean.values())).step
    other = [rank for rank, one in sorted(clean.items()) if one.layout != layouts.marks[rank]]
    if other:
        return _refused(top, f"{ranks_were(other)} holding other tensors than when all ranks agreed on their state")
    found = decided([layouts.items(rank) for rank in range(layouts.world)], clean.keys())
    if not found.may:
        return _refused(top, found.reason)
    told = [one for _, one in sorted(clean.items())]
    own = tuple(dict.fromkeys([*layouts.own, *differing([one.compared for one in told])]))
    lonely = [name for name in own if name.startswith(EXTRA)]
    if lonely and found.absent:
        return _refused(top, f"{lonely[0]} was another on each rank, and {ranks_were(found.absent)} gone with its own")
    return Plan(
        may=True,
        top=top,
        step=step,
        writers=tuple(sorted(clean)),
        absent=found.absent,
        own=own,
        buffers_differ=len({one.buffers for one in told}) > 1,
        first_only=_drifted(told),
        told=len({one.values for one in told}) > 1,
    )


def _drifted(told: Sequence[Announcement]) -> bool:
    """Whether ranks that hold the same tensors hold other values in them."""
    seen: dict[str, str] = {}
    return any(seen.setdefault(one.layout, one.samples) != one.samples for one in told)


def heirs(layouts: Layouts, plan: Plan) -> dict[int, tuple[int, bool]]:
    """By absent rank: the writer that writes its file, and whether that one's random numbers are the absent one's, too:
    they were the same when all ranks agreed. Else they are derived."""
    found = {}
    for rank in plan.absent:
        like = next((one for one in plan.writers if layouts.generators[one] == layouts.generators[rank]), None)
        found[rank] = (plan.writers[0], False) if like is None else (like, True)
    return found


def _refused(top: int, reason: str) -> Plan:
    return Plan(may=False, top=top, reason=reason)
