"""Checkpoints that are not whole, and what a restart resumed from."""

import re
from typing import Final

from rankpulse.core import policy, signs
from rankpulse.core import verdict as v
from rankpulse.core.ends import End, Weight, ends, first_movers
from rankpulse.core.scene import Scene
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.verdict import Cause, Culprits

_FULL: Final = re.compile(r"no space left|disk quota|quota exceeded|ENOSPC|EDQUOT", re.IGNORECASE)


def of_checkpoints(scene: Scene) -> Cause | None:
    """A load that fails on what an interrupted save left."""
    broken = scene.snap.saving.broken
    loading = [e for e in ends(scene) if e.sign == signs.STORAGE and e.weight == Weight.FAILED]
    phases = {(scene.ranks[e.rank].phase or scene.snap.job.phase).lower() for e in loading}
    at_load = scene.starting or any("load" in p or "restor" in p or "resum" in p for p in phases)
    if not broken and not (loading and at_load):
        return None
    if broken and scene.moves is True and not loading:
        return None
    last = scene.snap.saving.last_complete_step
    return Cause(
        klass=v.STORAGE_STALL,
        kind="storage",
        culprits=Culprits(files=broken),
        confidence=0.9 if broken else 0.75,
        summary=f"the newest checkpoint is not whole: {', '.join(broken[:3]) or loading[0].text}",
        reasons=(*(f"not whole: {name}" for name in broken[:4]), *(f"rank {e.rank}: {e.words}" for e in loading[:2]),
                 "an interrupted save left it; the ranks that fail on it are not to blame"),
        evidence=("saving.broken",) if broken else tuple(e.ref for e in loading[:4]),
        action=policy.RESTART,
        steps=(v.RESTART_JOB, v.TELL_USER),
        hints=(f"resume from the newest complete checkpoint{f' (step {last})' if last is not None else ''}: sizes and "
               "checksums of all shards, no left-over temporary files",),
        fault="checkpoint broken",
    )  # fmt: skip


def of_full(scene: Scene) -> Cause | None:
    """Somebody could not write because nothing is free: started again it only comes to the same place."""
    full = [e for e in first_movers(ends(scene)) if e.weight == Weight.FAILED and _is_full(scene, e)]
    if not full:
        return None
    ranks = tuple(sorted(e.rank for e in full))
    nodes = scene.where(ranks)
    return Cause(
        klass=v.STORAGE_STALL,
        kind="storage",
        culprits=Culprits(ranks, nodes),
        confidence=0.9,
        summary=f"{ranks_in_words(ranks)} could not write: nothing is free ({full[0].text})",
        reasons=(*(f"rank {e.rank}: {e.words}" for e in full[:3]), "until there is room it will only come once more"),
        evidence=tuple(e.ref for e in full[:4]),
        action=policy.PAGE,
        steps=(v.TELL_USER, v.RESTART_JOB),
        hints=("make room, or raise the quota; what was being written is no checkpoint: resume from the one before",),
        fault="nothing free",
    )


def _is_full(scene: Scene, end: End) -> bool:
    """By its words, or by a failed write on a node whose disk is full."""
    node = scene.nodes.get(scene.ranks[end.rank].node) if end.rank in scene.ranks else None
    empty = node is not None and node.disk_free_gib is not None and node.disk_free_gib <= 0
    return end.sign == signs.STORAGE and (bool(_FULL.search(end.text)) or (empty and "writ" in end.text.lower()))


def of_regression(scene: Scene) -> Cause | None:
    """The job resumed from far before what it had announced as saved: work is lost, or data comes twice."""
    saving = scene.snap.saving
    if saving.announced_step is None:
        return None
    steps = [rank.step for rank in scene.snap.ranks if rank.step is not None]
    now = saving.resumed_step if saving.resumed_step is not None else min(steps, default=None)
    if now is None or now >= saving.announced_step:
        return None
    lost, every = saving.announced_step - now, _interval_steps(scene)
    if every is not None and lost <= every:
        return None
    return Cause(
        klass=v.STORAGE_STALL,
        kind="storage",
        confidence=0.8,
        summary=f"resumed at step {now}, though step {saving.announced_step} was announced as saved: {lost} steps lost",
        reasons=("the step counter went back by more than one interval of checkpoints",),
        evidence=("saving.resumed_step", "saving.announced_step"),
        action=policy.PAGE,
        steps=(v.TELL_USER,),
        hints=("look why the newer checkpoint was not taken, and whether data is read twice",),
        fault="resumed too early",
    )


def _interval_steps(scene: Scene) -> float | None:
    every, step_s = scene.snap.saving.interval_s, scene.snap.job.step_s
    return every / step_s if every and step_s else None
