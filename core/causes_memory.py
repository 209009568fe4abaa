"""Out of memory: of the host by the kernel's word, of a GPU by the program's, and whose processes hold it."""

import re
from typing import Final

from rankpulse.core import policy, signs
from rankpulse.core import verdict as v
from rankpulse.core.ends import End, Weight
from rankpulse.core.scene import Said, Scene
from rankpulse.core.snapshot import Rank
from rankpulse.core.snapshot_nodes import Process
from rankpulse.core.stacks import ranks_in_words
from rankpulse.core.verdict import Cause, Culprits, Gpu, step

HELD_GIB: Final = 1.0  # less than that fails nobody
_PID = re.compile(r"process (\d+)", re.IGNORECASE)


def out_of_memory(scene: Scene, movers: list[End]) -> Cause | None:
    """Memory ran out, by the words of those who ended first or by the kernel of their node."""
    gpu = [end for end in movers if end.sign == signs.OOM_GPU]
    if gpu:
        return of_orphans(scene, gpu) or _of_gpu(scene, gpu)
    host = [end for end in movers if end.sign == signs.OOM_HOST or _by_kernel(scene, end)]
    return _of_host(scene, host) if host else None


def _by_kernel(scene: Scene, end: End) -> Said | None:
    """The kernel's line that says so of this rank: of its node, and of no other process."""
    rank = scene.ranks.get(end.rank) or Rank(end.rank)
    loader = end.sign == signs.LOADER
    if end.weight != Weight.KILLED and not loader:
        return None
    for said in scene.of(signs.OOM_HOST):
        pid = _PID.search(said.text)
        other = pid is not None and rank.pid is not None and int(pid.group(1)) != rank.pid and not loader
        if said.node == rank.node and end.signal in (9, None) and not other:
            return said
    return None


def host_memory(scene: Scene, nodes: tuple[str, ...]) -> str:
    """What is known of memory on the node of somebody killed by signal 9."""
    readable = {scene.nodes[n].kernel_readable if n in scene.nodes else None for n in nodes}
    seen = any(scene.nodes[n].kernel for n in nodes if n in scene.nodes)
    word = "yes" if readable == {True} or seen else "no" if readable == {False} else "not known"
    return f"no OOM record of it seen (log readable: {word})"


def _of_gpu(scene: Scene, ended: list[End]) -> Cause:
    ranks = tuple(end.rank for end in ended)
    again = sum(1 for f in scene.snap.history if signs.sign(f.error) == signs.OOM_GPU or f.klass == v.OOM)
    others = [p for n in scene.snap.nodes for p in n.processes if p.job_alive and p.gpu_memory_gib >= HELD_GIB]
    look: tuple[str, ...] = (
        ("look for processes of ended jobs that hold GPU memory",) if scene.starting or again else ()
    )
    if others:
        look = ("another living job holds memory of these GPUs: its processes must not be ended; use other devices",)
    return Cause(
        klass=v.OOM,
        culprits=Culprits(ranks, scene.where(ranks), _gpus(scene, ranks)),
        confidence=0.9,
        summary=f"out of GPU memory: {ranks_in_words(ranks)}",
        reasons=tuple(f"rank {end.rank}: {end.words}" for end in ended[:3]),
        evidence=tuple(end.ref for end in ended[:8]),
        action=policy.PAGE if again else policy.RESTART,
        steps=(v.TELL_USER,) if again else (v.RESTART_JOB, v.TELL_USER),
        hints=(*look, "the program wants more than the device has: a smaller batch, or fewer fragments"),
        fault=signs.bare(ended[0].text),
    )


def _of_host(scene: Scene, ended: list[End]) -> Cause:
    ranks = tuple(end.rank for end in ended)
    lines = [said for end in ended if (said := _by_kernel(scene, end))]
    return Cause(
        klass=v.OOM,
        kind="host_fault",
        culprits=Culprits(ranks, scene.where(ranks)),
        confidence=0.95 if lines else 0.85,
        summary=f"out of host memory: {ranks_in_words(ranks)}",
        reasons=(*(f"the kernel of {line.node} says: {line.text}" for line in lines[:2]),
                 *(f"rank {end.rank}: {end.words}" for end in ended[:2])),
        evidence=tuple(dict.fromkeys(line.ref for line in lines)) or tuple(end.ref for end in ended[:8]),
        action=policy.RESTART,
        steps=(v.RESTART_JOB, v.TELL_USER),
        hints=("memory of the host: fewer loader workers, less pinned memory, or a leak",),
        fault="host out of memory",
    )  # fmt: skip


def _gpus(scene: Scene, ranks: tuple[int, ...]) -> tuple[Gpu, ...]:
    rows = [scene.ranks[rank] for rank in ranks if rank in scene.ranks]
    return tuple(sorted(Gpu(row.node, row.gpu) for row in rows if row.node and row.gpu is not None))


def orphans(scene: Scene) -> list[tuple[str, Process]]:
    """Processes that hold GPU memory and belong to nobody who lives; never those of another living job."""
    ours = {(rank.node, rank.pid) for rank in scene.snap.ranks if rank.alive is not False and rank.exit_code is None}
    return [
        (node.node, process)
        for node in scene.snap.nodes
        for process in node.processes
        if process.gpu_memory_gib >= HELD_GIB and (node.node, process.pid) not in ours and _is_orphan(process)
    ]


def _is_orphan(process: Process) -> bool:
    if process.job_alive is not None:
        return not process.job_alive
    return process.parent == 1 or process.state in ("Z", "X")


def of_orphans(scene: Scene, ended: list[End]) -> Cause | None:
    """The memory is held by what an ended job left behind."""
    left = orphans(scene)
    nodes = set(scene.where(end.rank for end in ended))
    left = [(node, p) for node, p in left if not nodes or node in nodes]
    if not left:
        return None
    held = sum(p.gpu_memory_gib for _, p in left)
    ranks = tuple(end.rank for end in ended)
    return Cause(
        klass=v.OOM,
        kind="orphan_process",
        culprits=Culprits(
            (),
            tuple(sorted({node for node, _ in left})),
            tuple(sorted({Gpu(node, p.gpu) for node, p in left if p.gpu is not None})),
        ),
        confidence=0.95 if all(p.job_alive is False for _, p in left) else 0.8,
        summary=f"{held:.0f} GiB of GPU memory are held by {len(left)} process{'es' * (len(left) > 1)} of an ended job",
        reasons=(*(f"{node}: pid {p.pid} {p.name} (parent {p.parent}) holds {p.gpu_memory_gib:.0f} GiB, its job "
                   f"{'has ended' if p.job_alive is False else 'is not known'}" for node, p in left[:6]),
                 *((f"{ranks_in_words(ranks)}: {ended[0].words}",) if ended else ())),
        evidence=tuple(f"nodes[{node}].processes" for node in sorted({node for node, _ in left})),
        action=policy.PAGE,
        steps=(*(step(v.KILL_ORPHANS, f"{node}:{p.pid}") for node, p in left[:16]), v.RESTART_JOB),
        hints=("end only these processes, after a look that they are still those of the ended job",),
        fault=signs.bare(ended[0].text) if ended else "orphans",
    )  # fmt: skip
