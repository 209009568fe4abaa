"""Jobs that stand: what the ranks that everybody waits for are doing decides what it is called and what helps."""

import re
from typing import Final, NamedTuple

from rankpulse.core import policy, signs
from rankpulse.core import stacks as st
from rankpulse.core import verdict as v
from rankpulse.core.laggards import LINK, Laggards
from rankpulse.core.scene import SLOW_PHASES, Scene
from rankpulse.core.signs import bare
from rankpulse.core.snapshot import Rank
from rankpulse.core.stacks import Doing, doing, ranks_in_words
from rankpulse.core.verdict import Cause, Culprits, step

LOCK_OR_THREAD: Final = "lock or thread"  # one that the program forgot, or one that works for it: not told apart
NEVER_OF_A_LINK: Final = ("lock", "gil", "stopped", "traced", "paused")  # no port that fails makes a rank do that
_DEBUGGER: Final = re.compile(r"\b(bdb|i?pdb|debugpy|pydevd)\b|breakpointhook", re.IGNORECASE)
ASKING: Final = (1, 2, 3, 15)  # signals
_SAVING: Final = ("check", "ckpt", "sav")
_PROGRESS_WORDS: Final = {True: "makes progress", False: "makes no progress", None: "may make progress"}


class State(NamedTuple):
    """What a culprit is called, and why."""

    klass: str
    why: str
    fault: str
    action: str = ""
    kind: str = ""
    confidence: float = 0.9


def of_culprits(scene: Scene, found: Laggards) -> Cause | None:
    """The cause, by what the culprits do. They are alike, or the worst of them decides. A link does nothing."""
    if found.kind == LINK:
        return None
    mine = [scene.ranks.get(rank) or Rank(rank, dump="nothing is known of it") for rank in found.ranks]
    if not mine:
        return None
    states = [(rank, state_of(scene, rank, found)) for rank in mine]
    klass, state = max(((s.klass, s) for _, s in states), key=lambda pair: _WORST.index(pair[0]))
    same = [rank for rank, s in states if s.klass == klass]
    ranks = tuple(rank.rank for rank in same)
    nodes = scene.where(ranks)
    stuck = [s for s in scene.of(signs.STUCK_TASK) if s.node in nodes and s.node]
    return Cause(
        klass=klass,
        kind=state.kind or ("host_fault" if klass == v.COLLECTIVE_HANG and stuck else ""),
        culprits=Culprits(ranks, nodes, (), (), found.groups),
        confidence=round(state.confidence * found.confidence, 2),
        summary=f"{ranks_in_words(ranks)} {'is' if len(ranks) == 1 else 'are'} {state.why}; the others wait",
        reasons=(
            *(f"rank {r.rank} on {r.node or 'an unknown node'} is {s.why}" for r, s in states[:4]),
            *found.reasons,
            *(f"{s.node}: the kernel says {s.text}" for s in stuck[:2]),
        ),
        evidence=(*(ref for rank in same[:4] for ref in _refs(rank)), *(s.ref for s in stuck[:2])),
        action=state.action,
        steps=_steps(klass, state, nodes, same),
        hints=_hints(scene, klass, same),
        fault=state.fault,
    )


_WORST: Final = (
    v.PLANNED_SLOW_PHASE,
    v.STRAGGLER,
    v.NETWORK_STALL,
    v.COLLECTIVE_HANG,
    v.STORAGE_STALL,
    v.DATA_STALL,
    v.SIDECAR_DEAD,
    v.WORKER_DEAD,
)


def state_of(scene: Scene, rank: Rank, found: Laggards) -> State:
    """One culprit: what kernel and process say before what its stack says, that before its phase."""
    return _by_process(scene, rank) or _by_stack(scene, rank) or _by_phase(scene, rank) or _by_rest(rank, found)


def _by_process(scene: Scene, rank: Rank) -> State | None:
    if rank.exit_code == 0 or rank.signal in ASKING:
        how = "gone without an error" if rank.exit_code == 0 else f"ended by signal {rank.signal}, which asks"
        kind = "" if rank.exit_code == 0 else "unknown"
        return State(v.WORKER_DEAD, f"{how}, and nobody was told", "left early", kind=kind)
    if rank.alive is False or rank.state in ("Z", "X"):
        return State(v.WORKER_DEAD, "dead, and nobody was told", "gone")
    if rank.pulse == "paused":
        return State(v.COLLECTIVE_HANG, "paused by the program itself", "paused", policy.NONE, confidence=0.8)
    if rank.state == "t" or any(_DEBUGGER.search(frame) for frame in rank.stack[-4:]):
        return State(v.COLLECTIVE_HANG, "held by a debugger", "traced", policy.NONE)
    if rank.state == "T":
        return State(v.COLLECTIVE_HANG, "stopped by a signal (SIGSTOP)", "stopped", kind="host_fault", confidence=0.97)
    return None


def _by_stack(scene: Scene, rank: Rank) -> State | None:
    does = doing(rank)
    if does.what == st.LOADER or _loader_broken(rank):
        return _in_loader(scene, rank, does)
    if does.what == st.PIPE:
        return State(v.STORAGE_STALL, "writing to a pipe that nobody reads", "pipe", policy.RESTART)
    if does.what == st.STORAGE or (rank.state == "D" and _of_files(rank)):
        return _in_storage(scene, rank, does)
    if rank.state == "D":
        why = f"in uninterruptible sleep in the kernel{f' ({rank.wchan})' if rank.wchan else ''}"
        return State(v.COLLECTIVE_HANG, why, "uninterruptible", policy.RESTART_WITHOUT, "host_fault")
    if does.what == st.COMPILE and rank.cpu_moving is not False and _in_time(scene, rank) is not False:
        return State(v.PLANNED_SLOW_PHASE, "compiling", "compile", confidence=0.85)
    if does.what == st.EVALUATION and rank.cpu_moving and not rank.gil_held and _in_time(scene, rank) is not False:
        return State(v.PLANNED_SLOW_PHASE, f"{st.IN_WORDS[st.EVALUATION]}, at work", "evaluation", confidence=0.75)
    return None


def _loader_broken(rank: Rank) -> bool:
    return rank.loaders is not None and bool(rank.loaders.dead) and doing(rank).what in (st.UNSEEN, st.USER, st.LOCK)


def _in_loader(scene: Scene, rank: Rank, does: Doing) -> State:
    loaders = rank.loaders
    if loaders and loaders.dead:
        return State(
            v.DATA_STALL, f"waiting for its data loader, {loaders.dead} of whose workers are dead", "loader dead"
        )
    if loaders and loaders.state == "D":
        return State(v.DATA_STALL, "waiting for its data loader, whose worker waits for storage", "loader storage")
    busy = (loaders and loaders.busy) or rank.io_moving
    if busy and _in_time(scene, rank) is not False:
        return State(v.DATA_STALL, "waiting for its data loader, which is at work", "loader slow", policy.WAIT, "", 0.8)
    idle = ", whose workers are idle" if loaders and loaders.busy is False else ""
    return State(v.DATA_STALL, f"waiting for its data loader{idle} ({does.frame})", "loader")


def _of_files(rank: Rank) -> bool:
    return doing(rank).what == st.STORAGE or any(word in rank.phase.lower() for word in _SAVING)


def _in_storage(scene: Scene, rank: Rank, does: Doing) -> State:
    progress, slow = progress_of(scene, rank), bool(SLOW_PHASES.search(_phase(scene, rank)))
    if progress is True and _in_time(scene, rank) is not None and not slow:
        return State(v.STORAGE_STALL, "reading or writing files, slowly", "storage slow", policy.WAIT, confidence=0.8)
    if progress is True or (progress is None and _in_time(scene, rank) is True and rank.state != "D"):
        return State(
            v.PLANNED_SLOW_PHASE,
            f"{_slow_words(scene, rank)}: bytes move",
            "storage",
            confidence=0.9 if progress else 0.7,
        )
    if progress is None and slow and rank.state != "D" and _in_time(scene, rank) is None:
        return State(
            v.PLANNED_SLOW_PHASE,
            f"{_slow_words(scene, rank)}, whether bytes move is not known",
            "storage",
            confidence=0.6,
        )
    return State(
        v.STORAGE_STALL, f"in storage I/O that does not move ({does.frame or rank.wchan})", "storage", policy.RESTART
    )


def _slow_words(scene: Scene, rank: Rank) -> str:
    phase = _phase(scene, rank)
    return f"in phase {phase}" if phase else "reading or writing files"


def _phase(scene: Scene, rank: Rank) -> str:
    return rank.phase or scene.snap.job.phase


def progress_of(scene: Scene, rank: Rank) -> bool | None:
    """Whether what it does in a slow phase moves: bytes before CPU time."""
    saving = any(word in _phase(scene, rank).lower() for word in _SAVING)
    moving = scene.snap.saving.bytes_moving if saving else None
    if moving is not None or rank.io_moving is not None:
        return bool(moving) or bool(rank.io_moving)
    return rank.cpu_moving


def _in_time(scene: Scene, rank: Rank) -> bool | None:
    """Whether its phase lasts no longer than such phases do; None when that is not known."""
    limit = scene.snap.phase_limits_s.get(_phase(scene, rank))
    return rank.phase_s <= limit if limit is not None and rank.phase_s is not None else None


def _by_phase(scene: Scene, rank: Rank) -> State | None:
    """A phase that may be slow is no hang while it moves or is in its time."""
    phase = _phase(scene, rank)
    if not SLOW_PHASES.search(phase) or doing(rank).what in (st.LOCK, st.PIPE):
        return None
    progress, in_time = progress_of(scene, rank), _in_time(scene, rank)
    if rank.gil_held and progress is not True:
        return None
    if progress is True or (progress is None and in_time is True):
        return State(
            v.PLANNED_SLOW_PHASE, f"in phase {phase}, which {_PROGRESS_WORDS[progress]}", "phase", confidence=0.85
        )
    if progress is False and any(word in phase.lower() for word in _SAVING):
        return State(v.STORAGE_STALL, f"in phase {phase} and {_PROGRESS_WORDS[False]}", "storage", policy.RESTART)
    if progress is None and in_time is None:
        return State(v.PLANNED_SLOW_PHASE, f"in phase {phase}, whether it moves is not known", "phase", confidence=0.5)
    return None


def _by_rest(rank: Rank, found: Laggards) -> State:
    does = doing(rank)
    if rank.gil_held:
        return State(v.COLLECTIVE_HANG, "holding Python's lock (GIL) in native code", "gil")
    if does.what == st.LOCK:
        return State(v.COLLECTIVE_HANG, f"waiting for a lock in the program ({does.frame})", "lock")
    if does.what == st.USER and _waits_for_thread(rank):
        return State(v.COLLECTIVE_HANG, f"waiting for a lock or another thread ({does.frame})", LOCK_OR_THREAD)
    if does.what in (st.DEVICE, st.COLLECTIVE) and found.host_ahead:
        return State(v.COLLECTIVE_HANG, "waiting for its GPU, which does not begin what the host called", "gpu stuck",
                     kind="gpu_fault", confidence=0.8)  # fmt: skip
    if rank.dump and found.silent:
        return State(v.COLLECTIVE_HANG, f"not answering ({rank.dump})", "silent", kind="unknown", confidence=0.7)
    if rank.cpu_moving and not rank.positions and does.what == st.UNSEEN:
        return State(v.COLLECTIVE_HANG, "at work outside of the collective", "at work", confidence=0.7)
    frame = f" ({does.frame})" if does.frame else ""
    where = {st.UNSEEN: "outside of the collective", st.USER: "outside of the collective, in the program"}
    at_work = ", at work on the CPU" if rank.cpu_moving else ""
    why = f"{where.get(does.what, st.IN_WORDS[does.what])}{frame}{at_work}"
    return State(v.COLLECTIVE_HANG, why, f"compute {bare(does.frame)}")


def _waits_for_thread(rank: Rank) -> bool:
    """Asleep until a thread wakes it. A lock of Python has no frame of its own; what torch waits for is none."""
    own = bool(rank.stack) and "torch" not in rank.stack[-1]
    return own and "futex" in rank.wchan and rank.state in ("", "S") and rank.cpu_moving is False


def _steps(klass: str, state: State, nodes: tuple[str, ...], ranks: list[Rank]) -> tuple[str, ...]:
    if state.action in (policy.WAIT, policy.NONE) or klass == v.PLANNED_SLOW_PHASE:
        return (v.WAIT,)
    dump = () if all(rank.stack for rank in ranks) else (step(v.DUMP_STACKS, *(rank.rank for rank in ranks)),)
    if state.action == policy.RESTART_WITHOUT:
        return (*dump, step(v.RESTART_EXCLUDING, *nodes), step(v.DRAIN_REBOOT, *nodes))
    return (*dump, v.RESTART_JOB)


def _refs(rank: Rank) -> list[str]:
    told = [name for name in ("stack", "state", "wchan", "loaders", "dump") if getattr(rank, name)]
    return [f"ranks[{rank.rank}].{name}" for name in (told or ["positions"])]


def _hints(scene: Scene, klass: str, ranks: list[Rank]) -> tuple[str, ...]:
    phases = {_phase(scene, rank).lower() for rank in ranks}
    if any(rank.exit_code == 0 for rank in ranks):
        return ("ranks with less data than the others end early: give all the same number of steps, or join them",)
    if klass == v.DATA_STALL:
        evaluating = any("eval" in phase or "valid" in phase for phase in phases)
        more = ("num_workers=0 for evaluation ends it",) if evaluating else ()
        return ("a loader worker forked while a lock was held never delivers: use spawn, or no workers", *more)
    if klass == v.PLANNED_SLOW_PHASE:
        return ("if the timeout of the process groups ends it before it is done, raise that limit",)
    if klass == v.STORAGE_STALL:
        return ("resume from the previous complete checkpoint; what was being written is not one",)
    return ()
