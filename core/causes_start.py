"""Jobs that do not come to their first step: who has not arrived, who left first, whose round is an old one."""

from rankpulse.core import policy, signs
from rankpulse.core import verdict as v
from rankpulse.core.ends import ends, first_movers
from rankpulse.core.scene import Scene
from rankpulse.core.snapshot_nodes import Node
from rankpulse.core.verdict import Cause, Culprits, step


def of_start(scene: Scene) -> Cause | None:
    return _left_first(scene) or _old_round(scene) or _missing(scene) or _given_up(scene)


def port_taken(scene: Scene) -> Cause | None:
    """Somebody else listens where the job's store should: it comes again until that one is gone or the port changed."""
    told = scene.of(signs.PORT_TAKEN)
    movers = first_movers(ends(scene))
    if not told or scene.moves is True or (movers and movers[0].sign != signs.PORT_TAKEN):
        return None
    ranks = tuple(sorted({s.rank for s in told if s.rank is not None}))
    nodes = tuple(sorted({s.node for s in told if s.node}))
    return Cause(
        klass=v.STARTUP_FAILURE,
        kind="control_plane",
        culprits=Culprits(ranks, nodes),
        confidence=0.9,
        summary=f"the port of the job's store is taken{f' on {nodes[0]}' if nodes else ''}",
        reasons=(told[0].text, "who could not connect to that store only follows from it"),
        evidence=tuple(s.ref for s in told[:4]),
        action=policy.PAGE,
        steps=(step(v.FIX_CONFIG, *nodes), v.TELL_USER),
        hints=("look who listens there: another job on the node, or what an ended one left; or take a free port",),
        fault="port taken",
    )


def _left_first(scene: Scene) -> Cause | None:
    """A closed rendezvous is the echo of somebody's leaving: the first who left is the cause."""
    closed = scene.of(signs.RDZV_CLOSED)
    if not closed:
        return None
    printing = {s.node for s in closed if s.node}
    left = [
        n for n in scene.snap.nodes if n.launcher_exit is not None or n.launcher_signal or n.launcher_at is not None
    ]
    quiet = [n for n in left if n.node not in printing] or [
        n for n in left if n.launcher_exit == 0 or n.launcher_signal
    ]
    timed = sorted((n for n in quiet or left if n.launcher_at is not None), key=_left_at)
    first = timed[:1] or quiet
    names = tuple(n.node for n in first) or _spoke_before(scene, printing)
    return Cause(
        klass=v.STARTUP_FAILURE,
        kind="control_plane",
        culprits=Culprits((), names),
        confidence=0.85 if len(names) == 1 else 0.5,
        summary=f"the rendezvous was closed when {', '.join(names) or 'somebody'} left",
        reasons=(*(f"{n.node} left first{_how(n)}" for n in first),
                 f"{len(printing)} nodes print that it is closed: none of them is at fault"),
        evidence=(*(f"nodes[{name}].launcher_exit" for name in names), *(s.ref for s in closed[:3])),
        action=policy.RESTART,
        steps=(v.RESTART_JOB,),
        hints=("with a new run id: a closed rendezvous stays closed",),
        fault="rendezvous closed",
    )  # fmt: skip


def _spoke_before(scene: Scene, printing: set[str]) -> tuple[str, ...]:
    """Whoever told anything before the first of those who print that it is closed, and is none of them."""
    closed = min((s.at for s in scene.of(signs.RDZV_CLOSED) if s.at is not None), default=None)
    before = [s for s in scene.said if s.at is not None and closed is not None and s.at <= closed and s.node]
    return tuple(s.node for s in before if s.node not in printing)[:1]


def _left_at(node: Node) -> float:
    return (node.launcher_at or 0.0) - node.clock_offset_s


def _how(node: Node) -> str:
    if node.launcher_signal:
        return f", by signal {node.launcher_signal}"
    return f", with exit code {node.launcher_exit}" if node.launcher_exit is not None else ""


def _old_round(scene: Scene) -> Cause | None:
    """Nodes that believe to be in different rounds wait for each other for ever."""
    rounds = {n.node: n.round for n in scene.snap.nodes if n.round is not None}
    if len(set(rounds.values())) < 2 or scene.moves is True:
        return None
    newest = max(rounds.values())
    behind = tuple(sorted(node for node, number in rounds.items() if number < newest))
    return Cause(
        klass=v.STARTUP_FAILURE,
        kind="control_plane",
        culprits=Culprits((), behind),
        confidence=0.9,
        summary=f"{len(behind)} of {len(rounds)} nodes are in an older round of the rendezvous",
        reasons=(f"rounds differ: {', '.join(map(str, sorted(set(rounds.values()))))}; they wait for each other",),
        evidence=tuple(f"nodes[{node}].round" for node in behind[:8]),
        action=policy.RESTART,
        steps=(v.RESTART_JOB,),
        hints=("with a new run id, so that nothing of the old rendezvous is found",),
        fault="rounds differ",
    )


def _missing(scene: Scene) -> Cause | None:
    """Nodes that have not arrived, and what keeps them."""
    job = scene.snap.job
    short = job.expected_nodes is not None and job.arrived_nodes is not None and job.arrived_nodes < job.expected_nodes
    unresolved = {s.node for s in scene.of(signs.UNRESOLVED) if s.node}
    unresolved |= {n.node for n in scene.snap.nodes if n.resolves is False}
    apart = {n.node for n in scene.snap.nodes if n.connects is False} | {
        s.node for s in scene.of(signs.STORE) if s.node
    }
    absent = {n.node for n in scene.snap.nodes if n.registered is False}
    arrived = {n.node for n in scene.snap.nodes if n.registered is True}
    if scene.moves is True or not (short or unresolved or absent or (apart and scene.starting)):
        return None
    if not scene.starting and not short and not absent and not unresolved:
        return None
    nodes = tuple(sorted(unresolved - arrived or (absent & apart) or absent or apart - arrived))
    if job.arrivals_growing and not unresolved:
        return _growing(scene, nodes)
    return Cause(
        klass=v.STARTUP_FAILURE,
        kind="control_plane",
        culprits=Culprits(scene.on(nodes), nodes),
        confidence=0.9 if unresolved else 0.8 if nodes else 0.6,
        summary=f"the job cannot start: {', '.join(nodes[:8]) or 'some nodes'} did not arrive",
        reasons=_why(scene, nodes, unresolved, apart),
        evidence=tuple(f"nodes[{node}]" for node in nodes[:8]) or ("job.arrived_nodes",),
        action=policy.WAIT if job.arrivals_growing else policy.PAGE,
        steps=(step(v.FIX_CONFIG, *nodes), v.WAIT) if nodes else (v.WAIT, v.TELL_USER),
        hints=("while the number of nodes that have arrived grows, wait",),
        fault="cannot resolve the store" if unresolved else "nodes did not arrive",
    )


def _given_up(scene: Scene) -> Cause | None:
    """Ranks ended before the first step, all of them victims: they waited for somebody who is not seen."""
    gone = [end for end in ends(scene) if end.code or end.signal is not None]
    if not scene.starting or not gone:
        return None
    absent = tuple(sorted(set(range(scene.snap.job.world_size or 0)) - scene.ranks.keys()))
    return Cause(
        klass=v.STARTUP_FAILURE,
        kind="control_plane",
        culprits=Culprits(absent[:64]),
        confidence=0.7 if absent else 0.55,
        summary=f"the job did not come to its first step: {gone[0].words}",
        reasons=("all that ended were waiting for others",
                 *((f"{len(absent)} ranks were never seen",) if absent else ())),
        evidence=tuple(end.ref for end in gone[:4]),
        action=policy.PAGE,
        steps=(v.TELL_USER,),
        hints=("look which node did not join: its name resolution, its network, its launcher",),
        fault="given up",
    )  # fmt: skip


def _why(scene: Scene, nodes: tuple[str, ...], unresolved: set[str], apart: set[str]) -> tuple[str, ...]:
    job = scene.snap.job
    told = [f"{node} cannot resolve the name of the store" for node in nodes if node in unresolved]
    told += [f"{node} does not reach the store" for node in nodes if node in apart and node not in unresolved]
    told += [f"{node} has not registered" for node in nodes if node not in apart | unresolved]
    if job.expected_nodes is not None and job.arrived_nodes is not None:
        told.append(f"{job.arrived_nodes} of {job.expected_nodes} nodes have arrived")
    return tuple(told[:8])


def _growing(scene: Scene, nodes: tuple[str, ...]) -> Cause:
    return Cause(
        klass=v.CONTROL_PLANE_DELAY,
        culprits=Culprits((), nodes),
        confidence=0.8,
        summary="the job is still gathering: more nodes arrive",
        reasons=(*_why(scene, nodes, set(), set(nodes)), "the number of those that have arrived grows"),
        evidence=("job.arrivals_growing",),
        action=policy.WAIT,
        steps=(v.WAIT,),
        fault="gathering",
    )
