"""Which launch a torchrun belongs to: it joins one, stays where it is, founds a new one, or is told why not."""

import hashlib
import math
import re

import msgspec

from rankpulse.core import records as r
from rankpulse.core.rdzv_ending import MOST_OPS, closed
from rankpulse.core.rdzv_types import Me, Refused, Step, Timing, Txn, Waiting
from rankpulse.core.rdzv_view import Run, View

_REFUSED = re.compile(r"refused \((\w+)\): (.*)", re.DOTALL)


def label_name(label: str, owner: int) -> str:
    """The key name of a user's label: readable, unique per label and owner."""
    readable = re.sub(r"[^A-Za-z0-9._-]", "-", label)[:60]
    digest = hashlib.sha256(f"{owner}\0{label}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"u{owner}.{readable}.{digest}"


def entry(view: View, me: Me, now: float, at: float, timing: Timing, new_uid: str) -> Run | Step:
    """The run in which this torchrun has asked for this round, or what comes before that."""
    if not 1 <= me.min_nodes <= me.max_nodes:
        return Step(Refused("mismatch", f"--nnodes {me.min_nodes}:{me.max_nodes} is no range of node counts"))
    run, trouble = _candidate(view, me)
    if trouble is not None:
        return trouble
    cordon = view.cordons.get(me.node)
    if cordon is not None:
        why = f"{me.node} is cordoned by {cordon.record.author}: {cordon.record.reason}"
        return refuse(view, run, me, "cordoned", why, at)
    if run is None or run.launch is None:
        return _found(view, me, run, at, new_uid)
    told = _told_before(run, me)
    if told is not None:
        return Step(told)
    mine = run.joiners.get((me.node, me.launcher))
    inside = bool(mine and not mine.record.left) or _bound(me)
    if run.launch.record.closed:
        ended = _bound(me) or (inside and run.launch.record.outcome != "abandoned")
        return _closed(view, run, me, at) if ended else _found(view, me, run, at, new_uid)
    if not inside:
        alone_at = _nobody_at(view, run, me, timing)
        if alone_at <= now:
            return _found(view, me, run, at, new_uid)
        if alone_at < math.inf:
            return Step(Waiting("looking whether the last launch of this label still lives"), None, alone_at)
    return _join(view, run, me, now, at, timing)


def refuse(view: View, run: Run | None, me: Me, kind: str, reason: str, at: float) -> Step:
    """Refused; a torchrun that is told so takes no part any more, so that nobody counts on it."""
    answer, who = Refused(kind, reason), (me.node, me.launcher)
    mine = run.joiners.get(who) if run else None
    if run is None or mine is None or mine.record.left:
        return Step(answer)
    outcome = "finished" if kind == "finished" else "gone"
    key = view.keys.joiner(run.uid, *who)
    out = msgspec.structs.replace(mine.record, left=f"refused ({kind}): {reason}", outcome=outcome, at=at)
    return Step(answer, Txn(view.guards(key, view.keys.launch(run.uid)), ((key, out),), why=f"{kind}: {reason}"))


def corrupt(key: str, reason: str) -> Step:
    return Step(Refused("corrupt", f"{key} cannot be used: {reason}; if nothing of value uses it, delete that key"))


def _bound(me: Me) -> bool:
    return bool(me.run_uid) and me.after > 0


def _candidate(view: View, me: Me) -> tuple[Run | None, Step | None]:
    """The run this torchrun is in, or that its label stands for; or why that cannot be told."""
    home = _home(view, me)
    if _bound(me) or home is not None:
        return _readable(view, home.uid if home and not _bound(me) else me.run_uid, me)
    label_key = view.keys.label(label_name(me.label, me.owner))
    label = view.labels.get(label_key)
    if label_key in view.unreadable:
        return None, corrupt(label_key, view.unreadable[label_key])
    if label is None:
        return None, None
    if (label.record.label, label.record.owner) != (me.label, me.owner):
        return None, corrupt(label_key, "it holds another label than its key says")
    return _readable(view, label.record.run_uid, me)


def _readable(view: View, uid: str, me: Me) -> tuple[Run | None, Step | None]:
    """The run, if its launch is sound and the torchrun's own."""
    run = view.runs.get(uid)
    for key in (view.keys.launch(uid), view.keys.joiner(uid, me.node, me.launcher)):
        if key in view.unreadable:
            return None, corrupt(key, view.unreadable[key])
    if run is None or run.launch is None:
        gone = Step(Refused("closed", f"run {uid} is over: its records are gone")) if _bound(me) else None
        return run, gone
    if (run.launch.record.label, run.launch.record.owner) != (me.label, me.owner):
        return None, Step(Refused("mismatch", f"run {uid} was launched under another label or by another user"))
    return run, None


def _home(view: View, me: Me) -> Run | None:
    """The run that this torchrun has joined and not left. One that was given up binds nobody."""
    for run in view.runs_of((me.node, me.launcher)):
        launch = run.launch.record if run.launch else None
        if launch is None or (launch.label, launch.owner) != (me.label, me.owner) or launch.outcome == "abandoned":
            continue
        if not run.joiners[me.node, me.launcher].record.left:
            return run
    return None


def _told_before(run: Run, me: Me) -> Refused | None:
    """The answer that this very request got before, or that a process cannot ask so."""
    mine = run.joiners.get((me.node, me.launcher))
    if mine is None or me.join > mine.record.join:
        return None
    refused = _REFUSED.fullmatch(mine.record.left)
    if refused and mine.at >= me.asked_at:
        return Refused(refused[1], refused[2])
    used = r.Place(me.node, me.launcher, me.join) in run.met
    over = bool(run.launch and run.launch.record.closed)
    if not over and (me.join < mine.record.join or (mine.record.left and used)):
        return Refused(
            "closed", f"this process has asked this run before (join {mine.record.join}): start a new torchrun"
        )
    return None


def _closed(view: View, run: Run, me: Me, at: float) -> Step:
    launch = run.launch.record  # type: ignore[union-attr]
    member = any((p.node, p.launcher) == (me.node, me.launcher) for p in run.members)
    kind = "finished" if launch.outcome == "finished" and not member else "closed"
    return refuse(view, run, me, kind, f"the run is closed ({launch.outcome}): {launch.closed}", at)


def _nobody_at(view: View, run: Run, me: Me, timing: Timing) -> float:
    """From when on nobody of the launch takes part: -inf when all have left, inf while somebody is there."""
    if run.unseen:
        return math.inf  # its newest round will be seen
    latest = -math.inf
    if run.launch is not None and not run.joiners:
        latest = run.launch.at + timing.absent_s  # somebody founded it, and has not been seen yet
    for (node, launcher), known_at in run.taking_part.items():
        if (node, launcher) == (me.node, me.launcher):
            continue
        gone = view.gone_since(node, known_at, me.node)
        if gone is None:
            return math.inf
        latest = max(latest, gone + timing.absent_s)
    return latest


def _join(view: View, run: Run, me: Me, now: float, at: float, timing: Timing) -> Run | Step:
    launch, mine = run.launch.record, run.joiners.get((me.node, me.launcher))  # type: ignore[union-attr]
    if mine is not None and not mine.record.left and mine.record.join == me.join:
        used = r.Place(me.node, me.launcher, me.join) in run.met
        if used or _says_the_same(mine.record, me):
            return run
    if (launch.min_nodes, launch.max_nodes) != (me.min_nodes, me.max_nodes):
        return _mismatch(view, run, me, now, at, timing)
    keys = [view.keys.joiner(run.uid, me.node, me.launcher), view.keys.launch(run.uid)]
    if not _bound(me):
        keys.append(view.keys.label(label_name(me.label, me.owner)))
    moved = _moved(view, me, run.uid, at)
    guards = view.guards(*keys, *(key for key, _ in moved))
    txn = Txn(guards, ((keys[0], _joiner(me, run.uid, at)), *moved), why=f"{me.node} joins run {run.uid}")
    return Step(Waiting(me.held or "joining"), txn)


def _says_the_same(mine: r.Joiner, me: Me) -> bool:
    there, wanted = (mine.address, mine.port), (me.address, me.port)
    return there == wanted and (mine.checking, mine.refused) == (me.checking, me.refused)


def _mismatch(view: View, run: Run, me: Me, now: float, at: float, timing: Timing) -> Step:
    """Said only after a while: the other torchruns may have died a moment ago and not be known to have."""
    launch = run.launch.record  # type: ignore[union-attr]
    why = (
        f"this label's launch goes on with --nnodes {launch.min_nodes}:{launch.max_nodes}, "
        f"this torchrun asks for {me.min_nodes}:{me.max_nodes}"
    )
    patience = me.asked_at + timing.absent_s
    return Step(Waiting(why), None, patience) if now < patience else refuse(view, run, me, "mismatch", why, at)


def _found(view: View, me: Me, old: Run | None, at: float, new_uid: str) -> Step:
    """A new launch takes the label over. An old one that was open is closed with it, and must still be deserted."""
    keys = view.keys
    label_key, launch_key = keys.label(label_name(me.label, me.owner)), keys.launch(new_uid)
    launch = r.Launch(
        run_uid=new_uid, label=me.label, owner=me.owner, min_nodes=me.min_nodes, max_nodes=me.max_nodes, at=at
    )
    puts: list[tuple[str, r.Record]] = [
        (label_key, r.Label(label=me.label, owner=me.owner, run_uid=new_uid, at=at)),
        (launch_key, launch),
        (keys.joiner(new_uid, me.node, me.launcher), _joiner(me, new_uid, at)),
    ]
    guarded = [key for key, _ in puts]
    label = view.labels.get(label_key)
    if label is not None and (old is None or old.uid != label.record.run_uid):
        guarded.append(keys.launch(label.record.run_uid))  # not seen: it must not be there
    elif old is not None:
        guarded.append(keys.launch(old.uid))
        guarded += [keys.presence(node) for node in sorted(_deserted(old, me))][:MOST_OPS]
        if old.launch is not None and not old.launch.record.closed:
            puts.append((guarded[3], closed(old.launch.record, "abandoned", f"run {new_uid} has taken its label over")))
    moved = _moved(view, me, new_uid, at)
    guards = view.guards(*guarded, *(key for key, _ in moved))
    founds = Txn(guards, (*puts, *moved), why=f"{me.node} founds run {new_uid}")
    return Step(Waiting(me.held or "joining"), founds)


def _deserted(old: Run, me: Me) -> set[str]:
    """Nodes of torchruns that have not left: their agents must be away still when the label is taken over."""
    if old.launch is None or old.launch.record.closed:
        return set()
    return {node for node, _ in old.taking_part if node != me.node}


def _moved(view: View, me: Me, to: str, at: float) -> tuple[tuple[str, r.Record], ...]:
    """This torchrun's joiners in launches that were given up: it takes part in one run only."""
    return tuple(
        (
            view.keys.joiner(run.uid, me.node, me.launcher),
            msgspec.structs.replace(seen.record, left=f"went on to run {to}", outcome="gone", at=at),
        )
        for run in view.runs_of((me.node, me.launcher))
        if run.uid != to and not (seen := run.joiners[me.node, me.launcher]).record.left
    )[:10]


def _joiner(me: Me, run_uid: str, at: float) -> r.Joiner:
    return r.Joiner(
        run_uid=run_uid, node=me.node, launcher=me.launcher, join=me.join, after=me.after, address=me.address,
        port=me.port, at=at, last_call_s=me.last_call_s, checking=me.checking, refused=me.refused,
    )  # fmt: skip
