"""How a torchrun leaves, how a launch is closed, and what is deleted when nobody needs it any more."""

from collections.abc import Iterator

import msgspec

from rankpulse.core import records as r
from rankpulse.core.rdzv_types import Txn
from rankpulse.core.rdzv_view import Run, Seen, Torchrun, View

KEPT_ROUNDS = 3
MOST_OPS = 100  # of a transaction; etcd takes 128


def leave(view: View, run_uid: str, node: str, launcher: str, outcome: str, reason: str, at: float) -> Txn | None:
    """What to write when a torchrun takes no part any more; None when there is nothing to write.

    `outcome`: finished | failed | gone (died, or was asked to end). A member of the current round that finished or
    failed closes the launch for everybody; a spare, a late node or one that is merely gone closes nothing, unless it
    was the last that took part.
    """
    run = view.runs.get(run_uid)
    joiner = run.joiners.get((node, launcher)) if run else None
    if run is None or joiner is None or joiner.record.left:
        return None
    key = view.keys.joiner(run_uid, node, launcher)
    gone = msgspec.structs.replace(joiner.record, left=reason or outcome, outcome=outcome, at=at)
    puts: list[tuple[str, r.Record]] = [(key, gone)]
    guarded = [key]
    if run.launch is not None and not run.launch.record.closed:
        closing = _closing(view, run, run.launch.record, (node, launcher), outcome, reason or outcome)
        if closing is not None or run.unseen:
            guarded += [view.keys.launch(run_uid), view.keys.meeting(run_uid, max(run.last, run.unseen, 1))]
        puts += [(view.keys.launch(run_uid), closing)] if closing is not None else []
    return Txn(view.guards(*guarded), tuple(puts), why=f"{node} leaves: {reason or outcome}")


def _closing(view: View, run: Run, launch: r.Launch, who: Torchrun, outcome: str, reason: str) -> r.Launch | None:
    """The launch as this torchrun leaves it, if that ends it. (Was the newest meeting not seen, its guard fails.)"""
    member = any((p.node, p.launcher) == who for p in run.members)
    counts = who[0] not in view.cordons and who[0] not in run.lost  # the others go on without it
    if member and counts and outcome in ("finished", "failed"):
        return closed(launch, outcome, f"{who[0]}: {reason}")
    if run.taking_part.keys() == {who}:
        return closed(launch, "abandoned", f"the last to leave was {who[0]}: {reason}")
    return None


def closed(launch: r.Launch, outcome: str, reason: str) -> r.Launch:
    return msgspec.structs.replace(launch, closed=reason, outcome=outcome)


def sweep(view: View, node: str, living: frozenset[str], at: float) -> list[Txn]:
    """At the start of an agent, and now and then: joiners of this node whose launcher is not `living` are gone, and
    keys that no round needs any more (old meetings, all of a closed run that everybody left) are deleted."""
    txns: list[Txn] = []
    for run in list(view.runs.values()):
        for here, launcher in list(run.joiners):
            if here == node and launcher not in living:
                gone = leave(view, run.uid, here, launcher, "gone", "its torchrun has ended", at)
                txns.extend([gone] if gone else [])
        if _is_deserted(run) and _is_sweeper(view, run, node):
            txns.extend(_delete(view, run))
    return txns


def _is_deserted(run: Run) -> bool:
    """Whether everybody has left. An open launch without any joiner has not been seen whole."""
    if run.launch is None or run.launch.record.closed:
        return len(run.left) == len(run.joiners)
    return bool(run.joiners) and not run.unseen and not run.taking_part


def _is_sweeper(view: View, run: Run, node: str) -> bool:
    """The last to leave clears up; when that node is away, whoever was in the run; when all are, whoever looks."""
    by_time = sorted(run.joiners.values(), key=lambda seen: -seen.modified)
    there = [s.record.node for s in by_time if view.gone_since(s.record.node, s.at, node) is None]
    return not there or there[0] == node


def _delete(view: View, run: Run) -> Iterator[Txn]:
    launch_key = view.keys.launch(run.uid)
    if launch_key in view.unreadable:
        return
    if run.launch is not None and not run.launch.record.closed:
        last = max(run.left.values(), key=lambda seen: seen.modified, default=None)
        reason = f"everybody has left, {last.record.node} last: {last.record.left}" if last else "everybody has left"
        ended = closed(run.launch.record, "abandoned", reason)
        yield Txn(view.guards(launch_key), ((launch_key, ended),), why="everybody has left")
        return
    keys = [view.keys.joiner(run.uid, *who) for who in run.joiners]
    keys += [view.keys.meeting(run.uid, number) for number in run.meetings]
    why = f"run {run.uid} is over"
    for first in range(0, len(keys), MOST_OPS):
        yield Txn(view.guards(launch_key), (), tuple(keys[first : first + MOST_OPS]), why)
    if run.launch is not None:
        yield _delete_launch(view, run.launch, launch_key, why)


def _delete_launch(view: View, launch: Seen[r.Launch], key: str, why: str) -> Txn:
    """With its label, if that still stands for this launch."""
    for label_key, label in view.labels.items():
        if label.record.run_uid == launch.record.run_uid:
            return Txn(view.guards(key, label_key), (), (key, label_key), why)
    return Txn(view.guards(key), (), (key,), why)


def old_meetings(view: View, run: Run) -> tuple[str, ...]:
    """Meetings that may go when the next is written. One that somebody's last join is listed in stays: without it
    that torchrun, should it come back, would seem to wait."""
    needed = {run.met.get(r.Place(*who, seen.record.join)) for who, seen in run.joiners.items() if not seen.record.left}
    old = [n for n in sorted(run.meetings) if n <= run.last - KEPT_ROUNDS + 1 and n not in needed]
    return tuple(view.keys.meeting(run.uid, n) for n in old[:20])
