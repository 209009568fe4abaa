"""Slow, not broken: phases that take their time, watchdogs that bark, ranks that hold the others back."""

from collections import Counter
from statistics import median
from typing import Final

from rankpulse.core import policy, signs
from rankpulse.core import verdict as v
from rankpulse.core.causes_hang import progress_of
from rankpulse.core.ends import ends
from rankpulse.core.scene import SLOW_PHASES, Scene
from rankpulse.core.snapshot import Rank
from rankpulse.core.stacks import COMPILE, IN_WORDS, LOADER, PIPE, STORAGE, doing, ranks_in_words
from rankpulse.core.verdict import Cause, Culprits, Gpu

SLOWER: Final = 1.3  # times the median, and
NEARLY_ALL: Final = 0.8
LATE_S: Final = 0.05  # by so many seconds of a step


def of_phase(scene: Scene) -> Cause | None:
    """The whole job is in a phase that may take long, or rests because the program said so."""
    job = scene.snap.job
    if any(end.code is not None or end.signal is not None for end in ends(scene)):
        return None
    if scene.ranks and all(rank.pulse == "paused" for rank in scene.snap.ranks):
        return _resting()
    phases = {(rank.phase or job.phase).lower() for rank in scene.snap.ranks} or {job.phase.lower()}
    phases.discard("")
    if not phases or not all(SLOW_PHASES.search(phase) for phase in phases):
        return None
    progress = _any_progress(scene)
    limits = [(scene.snap.phase_limits_s.get(r.phase or job.phase), r.phase_s) for r in scene.snap.ranks]
    late = bool(limits) and all(limit is not None and age is not None and age > limit for limit, age in limits)
    name = ", ".join(sorted(phases))
    if progress is False or (late and not progress):
        return _stuck_phase(scene, name)
    return Cause(
        klass=v.PLANNED_SLOW_PHASE,
        confidence=0.9 if progress else 0.75,
        summary=f"all ranks are in phase {name}: that may take its time",
        reasons=("bytes or CPU time move",) if progress else ("nothing says that it stands still",),
        evidence=("ranks[*].phase",),
        action=policy.WAIT,
        fault=f"phase {name}",
    )


def _resting() -> Cause:
    return Cause(
        klass=v.PLANNED_SLOW_PHASE,
        confidence=0.9,
        summary="every rank has paused its pulse: the job rests on purpose",
        reasons=("a paused pulse is the program's own word",),
        evidence=("ranks[*].pulse",),
        action=policy.WAIT,
        fault="paused",
    )


def _any_progress(scene: Scene) -> bool | None:
    told = [progress_of(scene, rank) for rank in scene.snap.ranks]
    known = [one for one in told if one is not None]
    return any(known) if known else scene.snap.saving.bytes_moving


def _stuck_phase(scene: Scene, name: str) -> Cause:
    saving = any(word in name for word in ("check", "ckpt", "sav", "load", "restor"))
    return Cause(
        klass=v.STORAGE_STALL if saving else v.UNKNOWN,
        confidence=0.75 if saving else 0.5,
        summary=f"all ranks are in phase {name} and make no progress",
        reasons=("neither bytes nor CPU time move", "all ranks alike: what they share, not one of them"),
        evidence=("ranks[*].phase", "saving.bytes_moving"),
        action=policy.PAGE,
        steps=(v.DUMP_STACKS, v.TELL_USER),
        fault=f"stuck phase {name}",
    )


def of_alike(scene: Scene) -> Cause | None:
    """Nearly all ranks in one and the same place outside of collectives: what they share, not one of them."""
    does = Counter(what for rank in scene.snap.ranks if (what := doing(rank).what))
    if scene.moves is True or does.total() < 2:
        return None
    what, count = does.most_common(1)[0]
    if what == COMPILE and count >= NEARLY_ALL * does.total():
        return _compiling(scene)
    if what not in (LOADER, STORAGE, PIPE) or count < NEARLY_ALL * does.total():
        return None
    moving = [at_work for rank in scene.snap.ranks if (at_work := _at_work(rank)) is not None]
    return Cause(
        klass=v.DATA_STALL if what == LOADER and not _wait_for_a_disk(scene, moving) else v.STORAGE_STALL,
        confidence=0.8 if moving and not any(moving) else 0.7,
        summary=f"{count} of {does.total()} ranks are {IN_WORDS[what].replace('its ', 'their ')}",
        reasons=("nobody is ahead of the others: it is what they read from or write to, not one of them",),
        evidence=("ranks[*].stack",),
        action=policy.WAIT if any(moving) else policy.PAGE,
        steps=(v.WAIT,) if any(moving) else (v.DUMP_STACKS, v.TELL_USER),
        hints=("look at the storage that all nodes share",),
        fault=f"all {what}",
    )


def _wait_for_a_disk(scene: Scene, moving: list[bool]) -> bool:
    """Nearly all in the kernel, and no byte passes: no loader of a program does that to all ranks at once."""
    asleep = sum(rank.state == "D" for rank in scene.snap.ranks)
    return asleep >= NEARLY_ALL * len(scene.ranks) and bool(moving) and not any(moving)


def _compiling(scene: Scene) -> Cause | None:
    """Everybody compiles, and announced no phase for it."""
    moving = [rank.cpu_moving for rank in scene.snap.ranks if rank.cpu_moving is not None]
    if moving and not any(moving):
        return None
    return Cause(
        klass=v.PLANNED_SLOW_PHASE,
        confidence=0.85 if moving else 0.6,
        summary=f"{len(scene.ranks)} ranks are compiling: that may take its time",
        reasons=("CPU time moves",) if moving else ("nothing says that it stands still",),
        evidence=("ranks[*].stack",),
        action=policy.WAIT,
        hints=("announce a phase for it, so that its usual length is learned",),
        fault="phase compile",
    )


def _at_work(rank: Rank) -> bool | None:
    """Whether its bytes move, or its data loader's workers are busy."""
    loaders = rank.loaders.busy if rank.loaders is not None else None
    return loaders if rank.io_moving is None else rank.io_moving or bool(loaders)


def of_watchdog(scene: Scene) -> Cause | None:
    """A library's own watchdog says that something is stuck. That alone is no second signal."""
    told = scene.of(signs.WATCHDOG_STUCK)
    if not told:
        return None
    ranks = tuple(sorted({s.rank for s in told if s.rank is not None}))
    mine = [scene.ranks[rank] for rank in ranks if rank in scene.ranks]
    if any(rank.state in ("T", "D") or (rank.gil_held and not rank.cpu_moving) for rank in mine):
        return None
    why = _why_alive(scene, mine)
    if not why and scene.moves is False and any(rank.cpu_moving is False for rank in mine):
        return None
    return Cause(
        klass=v.PLANNED_SLOW_PHASE,
        kind="false_alarm",
        culprits=Culprits(ranks, scene.where(ranks)),
        confidence=0.85 if why else 0.55,
        summary=f"a watchdog of {ranks_in_words(ranks) if ranks else 'the job'} was not served: no failure by itself",
        reasons=(*why, "a heartbeat monitor's word without a second signal is no hang"),
        evidence=tuple(s.ref for s in told[:4]),
        action=policy.WAIT,
        steps=(v.WAIT,) if why else (v.DUMP_STACKS, v.WAIT),
        hints=("raise TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC where such phases are long",),
        fault="watchdog",
    )


def _why_alive(scene: Scene, mine: list[Rank]) -> tuple[str, ...]:
    told = ["steps go on"] if scene.moves is True else []
    told += [f"rank {r.rank} is at work on the CPU" for r in mine if r.cpu_moving]
    told += [f"rank {r.rank} is in phase {r.phase}" for r in mine if r.phase and SLOW_PHASES.search(r.phase)]
    return tuple(told[:4])


def straggler(scene: Scene) -> Cause | None:
    """Who is slower than its peers outside of collectives: inside of them everybody waits for the slowest."""
    if scene.moves is False:
        return None
    times = {rank.rank: t for rank in scene.snap.ranks if (t := rank.compute_s) is not None}
    own = bool(times)
    times = times or {rank.rank: t for rank in scene.snap.ranks if (t := rank.step_s) is not None}
    if len(times) < 3:
        return None
    usual = median(times.values())
    slow = tuple(sorted(rank for rank, t in times.items() if t > SLOWER * usual and t - usual > LATE_S))
    if not slow or len(slow) > len(times) / 3:
        return None
    worst = max(slow, key=lambda rank: times[rank])
    throttled = [d for d in scene.snap.devices if d.throttled and _rank(scene, scene.owner(d)) in slow]
    held = tuple(f"{scene.owner(d)[0]}/GPU{scene.owner(d)[1]} is held down: {d.throttled}" for d in throttled[:4])
    return Cause(
        klass=v.STRAGGLER,
        culprits=Culprits(slow, scene.where(slow), tuple(sorted(Gpu(*scene.owner(d)) for d in throttled))),
        confidence=0.85 if own else 0.65,
        summary=f"{ranks_in_words(slow)}: slower than the others, {times[worst] / usual:.1f} times the median",
        reasons=(f"rank {worst} needs {times[worst]:.3g} s per step{' outside of collectives' if own else ''}, "
                 f"the median is {usual:.3g} s", *held, "slow is not hung: nothing is restarted for it"),
        evidence=tuple(f"ranks[{rank}].{'compute_s' if own else 'step_s'}" for rank in slow[:8]),
        action=policy.NONE,
        steps=(v.TELL_USER,),
        fault="slow",
    )  # fmt: skip


def _rank(scene: Scene, where: tuple[str, int | None]) -> int | None:
    return scene.rank_of(*where)
