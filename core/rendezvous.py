"""The rendezvous as a pure state machine: what an agent sees of a run, and what should happen next.

Every torchrun keeps one `Joiner` record through its agent. Whoever sees enough of them waiting creates the `Meeting`
of the next round; the store takes the first and refuses all others, so no round has two rosters. Everything else
(rank, address, who must meet again, who has to stay out) is derived from these records.

The launch's revision is the version of its run: making a round and closing it both guard and move it, and it carries
the number of the newest round. So a closed launch gets no meeting, a round is never made twice, even when its record
was deleted long ago, and whoever closes a launch knows which round is the current one.
"""

import math

import msgspec

from rankpulse.core import records as r
from rankpulse.core.rdzv_ending import MOST_OPS, closed, leave, old_meetings, sweep
from rankpulse.core.rdzv_entry import corrupt, entry, label_name, refuse
from rankpulse.core.rdzv_forming import Fallen, Prospect, fallen, limit_of, lost_at, prospect, some
from rankpulse.core.rdzv_types import Again, Answer, Me, Met, Refused, Step, Timing, Txn, Waiting, met_of
from rankpulse.core.rdzv_view import Run, View

__all__ = [
    "Again",
    "Answer",
    "Me",
    "Met",
    "Refused",
    "Step",
    "Timing",
    "Txn",
    "View",
    "Waiting",
    "again",
    "decide",
    "label_name",
    "leave",
    "met_of",
    "sweep",
]
LONGEST_LINE = 8  # turns: more who could form a round need not be told apart


def decide(view: View, me: Me, now: float, at: float, timing: Timing, new_uid: str) -> Step:
    """The next step for a torchrun that waits. `new_uid`: the run_uid to use should it found a launch. `at`: UTC."""
    run = entry(view, me, now, at, timing, new_uid)
    if isinstance(run, Step):
        return run
    place = r.Place(me.node, me.launcher, me.join)
    if place in run.met:
        return Step(_met(run, place))
    next_key = view.keys.meeting(run.uid, run.last + 1)
    if next_key in view.unreadable:
        return corrupt(next_key, view.unreadable[next_key])
    if run.unseen:
        return _too_few(view, run, me, f"the record of round {run.unseen} has not been seen yet", math.inf, now, at)
    barred = _barred(run, me)
    if barred is not None:
        return refuse(view, run, me, "cordoned", f"{me.node} has to stay out: {barred}", at)
    fall = _fallen(view, run, me, now, timing)
    if fall is None:
        wake_at = lost_at(view, run, me.node, timing)
        nodes = some([p.node for p in run.members], len(run.members))
        waits = Waiting(me.held or f"round {run.last} goes on without this node ({nodes}): a spare until the next")
        return Step(waits, wake_at=wake_at if wake_at < math.inf else None)
    if me.node in run.lost:
        return Step(Waiting(f"round {run.last + 1} forms without this node, which was taken for lost"))
    return _next_round(view, run, me, fall, now, at, timing)


def again(view: View, run_uid: str, round_: int) -> Again | None:
    """Whether the members of this round have to meet again: ordered, or a member waits for the next or is gone."""
    run = view.runs.get(run_uid)
    if run is None or run.launch is None or run.launch.record.closed:
        return None
    if run.last > round_:
        return Again(round_, max(1, len(run.waiting)), f"round {run.last} has formed")
    fall = fallen(run) if run.last == round_ else None
    return Again(round_, max(1, len(run.waiting)), fall.reason) if fall else None


def _met(run: Run, place: r.Place) -> Met:
    return met_of(run.meetings[run.met[place]].record, place)


def _barred(run: Run, me: Me) -> str | None:
    """Why the policy's word keeps this node out of the next round, or kept it out of the one that it came too late
    for, if it did."""
    for number in (run.last + 1, run.last):
        gate = run.gates.get(number)
        missed_it = me.after == number - 1 and me.after > 0
        if gate is not None and me.node in gate.record.without and (number > run.last or missed_it):
            return gate.record.reason
    return None


def _fallen(view: View, run: Run, me: Me, now: float, timing: Timing) -> Fallen | None:
    """Why and since when the next round may begin; None while the last one stands."""
    if not run.last:
        return Fallen(-math.inf, "")
    fall = fallen(run)
    if fall is None and (lost := lost_at(view, run, me.node, timing)) <= now:
        fall = Fallen(lost, f"all nodes of round {run.last} are away")
    return fall


def _next_round(view: View, run: Run, me: Me, fall: Fallen, now: float, at: float, timing: Timing) -> Step:
    gate = run.gates.get(run.last + 1)
    plan = prospect(view, run, me.node, fall.since, now, timing)
    if gate is not None and not gate.record.go:
        return _in_turn(plan, me, gate.at, now, timing, _close(view, run, gate.record))
    if me.held:
        return _too_few(view, run, me, me.held, math.inf, now, at, fall.since)
    if plan.forms_at > now:
        return _too_few(view, run, me, plan.lacks, plan.forms_at, now, at, fall.since)
    heard_at = plan.forms_at + timing.gate_s if gate is None else max(plan.forms_at, gate.at)
    return _in_turn(plan, me, heard_at, now, timing, _meet(view, run, plan, fall, at))


def _in_turn(plan: Prospect, me: Me, since: float, now: float, timing: Timing, txn: Txn) -> Step:
    """The first in line writes at once; should it be dead, the others step in one after the other."""
    line = [(j.node, j.launcher) for j in plan.chosen + plan.spares]
    who = (me.node, me.launcher)
    turn = min(line.index(who) if who in line else LONGEST_LINE, LONGEST_LINE)
    turn_at = since + turn * timing.turn_s
    if now < turn_at:
        return Step(Waiting(f"{plan.lacks}: the round is about to form"), None, turn_at)
    return Step(Waiting(f"{plan.lacks}: the round is about to form"), txn, now + timing.turn_s)


def _too_few(
    view: View, run: Run, me: Me, lacks: str, forms_at: float, now: float, at: float, since: float = -math.inf
) -> Step:
    gives_up_at = max(me.asked_at, since) + me.timeout_s
    if now >= gives_up_at:
        return refuse(view, run, me, "timeout", f"no round in {me.timeout_s:g} s: {lacks}", at)
    return Step(Waiting(lacks), None, min(forms_at, gives_up_at))


def _close(view: View, run: Run, gate: r.Gate) -> Txn:
    key, launch = view.keys.launch(run.uid), run.launch.record  # type: ignore[union-attr]
    gate_key = view.keys.gate(run.uid, gate.round)
    return Txn(
        view.guards(key, gate_key), ((key, closed(launch, "failed", gate.reason or "stopped")),), why=gate.reason
    )


def _meet(view: View, run: Run, plan: Prospect, fall: Fallen, at: float) -> Txn:
    """The meeting, if nothing of what it rests on has changed.

    An order for the last round is among that: its limit for what is resumed from is in the meeting, or the order came
    too late for it.
    """
    keys, first, limit = view.keys, plan.chosen[0], limit_of(run)
    reason = fall.reason or f"{len(plan.chosen)} nodes have come"
    key, launch_key = keys.meeting(run.uid, plan.number), keys.launch(run.uid)
    meeting = r.Meeting(
        run_uid=run.uid,
        round=plan.number,
        places=tuple(r.Place(j.node, j.launcher, j.join) for j in plan.chosen),
        address=first.address,
        port=first.port,
        at=at,
        reason=reason,
        resume_before_step=limit.step,
        resume_before_round=limit.round,
    )
    launch = msgspec.structs.replace(run.launch.record, round=plan.number)  # type: ignore[union-attr]
    joiners = [keys.joiner(run.uid, j.node, j.launcher) for j in plan.chosen[:MOST_OPS]]
    return Txn(
        view.guards(key, launch_key, keys.gate(run.uid, plan.number), *_order_keys(view, run), *joiners),
        ((key, meeting), (launch_key, launch)),
        old_meetings(view, run),
        f"round {plan.number}: {reason}",
    )


def _order_keys(view: View, run: Run) -> tuple[str, ...]:
    return (view.keys.order(run.uid, run.last, "restart"),) if run.last else ()
