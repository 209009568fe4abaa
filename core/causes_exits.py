"""Ranks that ended: killed, out of memory, by an exception of their own, with numbers that are none."""

import re
from typing import Final

from rankpulse.core import policy, signs
from rankpulse.core import verdict as v
from rankpulse.core.causes_hardware import work_lost
from rankpulse.core.causes_memory import host_memory, orphans, out_of_memory
from rankpulse.core.ends import End, Weight, ends, first_movers
from rankpulse.core.scene import Said, Scene
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.verdict import Cause, Culprits, Gpu, step

_SKIPPED: Final = re.compile(r"skip|overflow|scal(e|ing)|\b(grad\w*|norm)\b.{0,30}\binf", re.IGNORECASE)
_BAD_LOSS: Final = ("nan", "inf", "-inf", "+inf", "infinity", "-infinity")
_OF_DEVICE: Final = (signs.ILLEGAL_INSTRUCTION, signs.CUDA, signs.XID)
MANY: Final = 0.5  # of all ranks failing alike: the program


def of_exits(scene: Scene) -> Cause | None:
    """The end of a rank that explains the others, None when all were victims."""
    found = ends(scene)
    movers = first_movers(found)
    if not movers:
        return None
    return out_of_memory(scene, movers) or numerical(scene) or _by_itself(scene, movers, found)


def numerical(scene: Scene) -> Cause | None:
    """Numbers that are none, as the trainer reports them."""
    bad = [rank for rank in scene.snap.ranks if str(rank.loss).strip().lower() in _BAD_LOSS]
    told = [one for one in scene.of(signs.NUMERICAL) if (one.rank is not None or not bad) and not _is_skipped(one)]
    ranks = tuple(sorted({r.rank for r in bad} | {one.rank for one in told if one.rank is not None}))
    if not bad and not told:
        return None
    good = [rank for rank in scene.snap.ranks if rank.loss != "" and rank not in bad]
    alone = len(ranks) == 1 and len(good) >= 2
    hints = ("one rank alone: it may be silent data corruption of its GPU; test it",) if alone else ()
    return Cause(
        klass=v.NUMERICAL,
        culprits=Culprits(ranks, scene.where(ranks) if alone else ()),
        confidence=0.95 if bad else 0.85,
        summary=f"NaN or Inf reported by {ranks_in_words(ranks) if ranks else 'the trainer'}",
        reasons=("the program goes on with numbers that are none: a restart from the same state brings them again",),
        evidence=tuple(f"ranks[{r.rank}].loss" for r in bad[:8]) or tuple(one.ref for one in told[:8]),
        action=policy.PAGE,
        steps=(v.TELL_USER,),
        hints=(*hints, "go back to a checkpoint before it began, skip the data of these steps or lower the rate"),
        fault="nan",
    )


def _is_skipped(said: Said) -> bool:
    """A line about a step that a loss scaler leaves out: gradients that overflow are its daily work."""
    return ".log" in said.ref and bool(_SKIPPED.search(said.text))


def _by_itself(scene: Scene, movers: list[End], found: list[End]) -> Cause:
    ranks = tuple(end.rank for end in movers)
    lead = movers[0]
    many = len(movers) > 1 and len(movers) >= MANY * max(len(scene.ranks), scene.snap.job.world_size or 0)
    code = lead.sign in (signs.ERROR, signs.NOTHING) or many
    start = scene.starting and lead.weight == Weight.FAILED and lead.sign not in _OF_DEVICE
    nodes = scene.where(ranks)
    set_up = start and _are_nodes(scene, movers, nodes)
    booted = _booted(scene, nodes)
    return Cause(
        klass=v.STARTUP_FAILURE if start else v.WORKER_DEAD,
        kind="host_fault" if set_up or booted else _kind(lead, code=code),
        culprits=Culprits(ranks, nodes, _gpus(scene, ranks) if lead.sign in _OF_DEVICE else ()),
        confidence=_confidence(movers, many=many),
        summary=f"{ranks_in_words(ranks)}: {lead.words}",
        reasons=(*_reasons(scene, movers, found, many=many), *((SET_UP,) if set_up else ()), *booted),
        evidence=tuple(end.ref for end in movers[:8]),
        action=policy.PAGE if (many and start) or set_up else policy.RESTART,
        steps=(step(v.FIX_CONFIG, *nodes), v.RESTART_JOB)
        if set_up
        else _steps(scene, lead, nodes, many=many, start=start),
        hints=(*_hints(scene, lead), *work_lost(scene)),
        fault=signs.bare(lead.text) or SIGNAL_WORDS.get(lead.signal or 0, "exit"),
    )


def _are_nodes(scene: Scene, movers: list[End], nodes: tuple[str, ...]) -> bool:
    """Whether all ranks of these nodes failed alike, several on each, and of the other nodes none."""
    failed = {end.rank for end in movers}
    alike = len({(end.sign, signs.bare(end.text)) for end in movers}) == 1 and bool(movers[0].text)
    whole = all(len(scene.on([node])) > 1 and failed.issuperset(scene.on([node])) for node in nodes)
    return alike and whole and 0 < len(nodes) <= MANY * len(scene.node_names)


def _booted(scene: Scene, nodes: tuple[str, ...]) -> tuple[str, ...]:
    """Which of these nodes came up after the job had stopped: their ranks did not end by themselves."""
    still_s = scene.snap.job.still_s
    ages = {name: scene.nodes[name].uptime_s for name in nodes if name in scene.nodes}
    return tuple(
        f"{name} came up {age:g} s ago, after the job had stopped: the machine was restarted, or fell"
        for name, age in ages.items()
        if still_s is not None and age is not None and age < still_s
    )


SET_UP: Final = "all ranks there and none elsewhere: what is set up on that machine, not the program"
SIGNAL_WORDS: Final = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV"}


def _kind(lead: End, *, code: bool) -> str:
    if lead.sign == signs.BUS_ERROR or lead.signal == 7:
        return "host_fault"
    if lead.sign in _OF_DEVICE and not code:
        return "unknown"  # one rank of a program that all run: not clear yet
    if lead.sign in (signs.STORAGE, signs.LOADER):
        return "storage" if lead.sign == signs.STORAGE else "data_stall"
    return "unknown" if lead.weight == Weight.KILLED and lead.signal in (9, None) else "app_bug"


def _confidence(movers: list[End], *, many: bool) -> float:
    if movers[0].weight == Weight.ABORTED:
        return 0.7
    return 0.9 if len(movers) == 1 or many else 0.8


def _gpus(scene: Scene, ranks: tuple[int, ...]) -> tuple[Gpu, ...]:
    return tuple(
        Gpu(scene.ranks[r].node, scene.ranks[r].gpu) for r in ranks if r in scene.ranks and scene.ranks[r].node
    )


def _reasons(scene: Scene, movers: list[End], found: list[End], *, many: bool) -> tuple[str, ...]:
    lead, told = movers[0], [f"rank {end.rank}: {end.words}" for end in movers[:3]]
    if lead.signal == 9:
        told.append(f"killed by signal 9; {host_memory(scene, scene.where([lead.rank]))}")
    if lead.sign in _OF_DEVICE:
        told.append("many ranks alike: it is the program" if many else
                    "all run the same program and only this one failed: perhaps not the program's fault")  # fmt: skip
    victims = [end.rank for end in found if end.weight in (Weight.VICTIM, Weight.STOPPED)]
    if victims:
        told.append(f"{ranks_in_words(victims)} lost their peers or were stopped afterwards")
    waiting = len(scene.ranks) - len(found)
    if waiting > 0:
        told.append(f"{waiting} other ranks live on and wait for it")
    if lead.weight == Weight.CLEAN or (lead.code == 0):
        told.append("it ended without an error while others still worked")
    return tuple(told)


def _steps(scene: Scene, lead: End, nodes: tuple[str, ...], *, many: bool, start: bool) -> tuple[str, ...]:
    if many or start:
        return (v.TELL_USER,) if many and start else (v.TELL_USER, v.RESTART_JOB)
    stuck = tuple(sorted({r.node for r in scene.snap.ranks if r.state == "D" and r.rank != lead.rank and r.node}))
    ends_step = (step(v.KILL_STEP, "SIGTERM", "then SIGKILL"),) if len(scene.ranks) > 1 else ()
    return (*ends_step, *((step(v.DRAIN_REBOOT, *stuck),) if stuck else ()), v.RESTART_JOB)


def _hints(scene: Scene, lead: End) -> tuple[str, ...]:
    hints = []
    if len(scene.ranks) > 1:
        hints.append(
            "survivors wait in collectives for ever: have the scheduler end the step (--kill-on-bad-exit=1 --wait)"
        )
    if lead.sign == signs.BUS_ERROR or lead.signal == 7:
        hints.append("bus error: look at free space of /dev/shm and at files that are mapped into memory")
    if lead.sign in _OF_DEVICE:
        hints.append("remember this node and GPU: the same there again makes it the GPU's fault")
    if orphans(scene):
        hints.append("processes of an ended job still hold GPU memory")
    return tuple(hints)
