"""From evidence to a named cause. Pure functions of the fleet as it is known and `now`; every answer has its reasons.

The culprit is the first mover, not the loudest: ranks that lost their peers explain nothing, so a death that explains
them is looked for first. "Nobody knows" is an answer (`unknown`), and so is "not yet" (None).
"""

from typing import NamedTuple

from rankpulse.core.exits import SIGNALS, Exit, Kind
from rankpulse.core.fleet import NodeView, RoundView, RunView, process_of
from rankpulse.core.records import Member
from rankpulse.core.settings import DetectSettings

CONTROL_PLANE_DELAY = "control_plane_delay"
WORKER_DEAD = "worker_dead"
NODE_DEAD = "node_dead"
SIDECAR_DEAD = "sidecar_dead"
COLLECTIVE_HANG = "collective_hang"
UNKNOWN = "unknown"
OPERATOR_RESTART = "operator_restart"
STOPPED_BY_USER = "stopped_by_user"
FINISHED = "finished"


class Diagnosis(NamedTuple):
    """What is concluded. `since` is when the first evidence was received (observer's monotonic seconds)."""

    klass: str
    culprits: tuple[Member, ...]
    cascade: tuple[int, ...]
    nodes: tuple[str, ...]
    confidence: float
    summary: str
    reasons: tuple[str, ...]
    evidence: tuple[str, ...]
    since: float


class Ending(NamedTuple):
    """How a run ended, when nothing about it is a failure."""

    outcome: str
    reason: str


def name(member: Member) -> str:
    """A rank as people need it: with the node and the process."""
    return f"rank {member.rank} on {member.node} (pid {member.pid})"


def exits(run: RunView, round_: RoundView, now: float, settings: DetectSettings) -> Diagnosis | Ending | None:
    """What the exits of a round mean: a failure, an ending on purpose, or nothing yet."""
    ended = sorted(round_.exits.values(), key=lambda exit_: exit_.revision)
    telling = [exit_ for exit_ in ended if exit_.kind not in (Kind.CLEAN, Kind.ORDERED)]
    if not telling:
        return _finished(run, round_)
    first_stop = next((exit_ for exit_ in telling if exit_.kind is Kind.STOPPED), None)
    causes = [exit_ for exit_ in telling if exit_.kind in (Kind.KILLED, Kind.FAILED, Kind.ABORTED)]
    went_on = run.current.number > round_.number
    if first_stop is not None and not went_on:  # what dies after a stop began is its doing: its grace ends in SIGKILL
        causes = [exit_ for exit_ in causes if exit_.revision < first_stop.revision]
    if causes:
        return _crash(run, round_, causes, now, settings)
    if first_stop is not None:
        return _stop(run, round_, first_stop, now, settings)
    return _victims(run, round_, telling, now, settings)


def _finished(run: RunView, round_: RoundView) -> Ending | None:
    ended = [exit_ for exit_ in round_.exits.values() if exit_.kind is Kind.CLEAN]
    everyone = round_.complete() or run.launchers_gone()
    if ended and len(ended) == len(round_.members) and everyone:
        return Ending(FINISHED, f"all {len(ended)} ranks ended by themselves, without error")
    return None


def _crash(
    run: RunView, round_: RoundView, causes: list[Exit], now: float, settings: DetectSettings
) -> Diagnosis | None:
    strongest = max(exit_.kind for exit_ in causes)
    first = next(exit_ for exit_ in causes if exit_.kind == strongest)
    if strongest is not Kind.KILLED and not _settled(round_, first.received_at, now, settings):
        return None  # an exception may be the echo of a death that is still on its way to us
    if strongest is Kind.KILLED:
        group = [
            exit_
            for exit_ in causes
            if exit_.kind is Kind.KILLED and exit_.received_at - first.received_at <= settings.settle_s
        ]
    else:
        group = [first]
    culprits = tuple(exit_.member for exit_ in group)
    reasons = [f"{name(exit_.member)} {exit_.what}" for exit_ in group]
    echoes = [e for e in round_.exits.values() if e.member not in culprits and e.kind is not Kind.CLEAN]
    reasons += [f"then {name(exit_.member)} {exit_.what}" for exit_ in sorted(echoes, key=lambda e: e.revision)[:3]]
    return Diagnosis(
        WORKER_DEAD,
        culprits,
        _others(round_, culprits),
        tuple(sorted({member.node for member in culprits})),
        {Kind.KILLED: 0.99, Kind.FAILED: 0.9, Kind.ABORTED: 0.7}[strongest],
        f"{name(first.member)} {first.what}" + (f", and {len(group) - 1} more" if len(group) > 1 else ""),
        tuple(reasons),
        tuple(exit_.key for exit_ in sorted(round_.exits.values(), key=lambda e: e.revision))[:64],
        first.received_at,
    )


def _settled(round_: RoundView, since: float, now: float, settings: DetectSettings) -> bool:
    return now - since >= settings.settle_s or not round_.alive()


def _stop(
    run: RunView, round_: RoundView, first: Exit, now: float, settings: DetectSettings
) -> Diagnosis | Ending | None:
    """Workers were asked to end: by torchelastic, which goes on, or by a person or scheduler. The launcher tells."""
    here_ended = not run.launcher_alive(first.member.node) if run.elastic else not round_.alive()
    went_on = run.current.number > round_.number
    waited = now - first.received_at >= settings.stop_settle_s
    if went_on and (here_ended or _membership(run.current) != _membership(round_)):
        return None  # a node left on purpose, or another joined: torchelastic met anew, nothing failed
    if not went_on and here_ended and (waited or not run.elastic or run.launchers_gone()):
        signal = SIGNALS.get(first.signal or 0, "a request to stop")
        return Ending(STOPPED_BY_USER, f"{signal} ended the workers, and their launcher ended with them")
    if not went_on and not waited:
        return None
    after = "the job went on without a stop" if went_on else "its launcher neither ended nor went on"
    return Diagnosis(
        WORKER_DEAD,
        (first.member,),
        _others(round_, (first.member,)),
        (first.member.node,),
        0.6,
        f"{name(first.member)} {first.what}, and {after}",
        (f"{name(first.member)} {first.what} before any other rank ended", after),
        (first.key,),
        first.received_at,
    )


def _membership(round_: RoundView) -> tuple[int, frozenset[str]]:
    return round_.world_size, frozenset(member.node for member in round_.members.values())


def _victims(
    run: RunView, round_: RoundView, telling: list[Exit], now: float, settings: DetectSettings
) -> Diagnosis | None:
    first = telling[0]
    if now - first.received_at < settings.settle_s:
        return None
    ranks = tuple(sorted(exit_.member.rank for exit_ in telling))
    unwatched = round_.world_size - len(round_.members)
    why = [f"{name(exit_.member)} {exit_.what}" for exit_ in telling[:3]]
    why.append("every exit seen is that of a rank that lost its peers; none of them went first")
    if unwatched:
        why.append(
            f"{unwatched} of {round_.world_size} ranks are not watched by any agent: one of those may be the cause"
        )
    return Diagnosis(
        UNKNOWN,
        (),
        ranks,
        tuple(sorted({exit_.member.node for exit_ in telling})),
        0.3,
        f"{len(ranks)} ranks lost their peers and nobody was seen to go first",
        tuple(why),
        tuple(exit_.key for exit_ in telling)[:64],
        first.received_at,
    )


def _others(round_: RoundView, culprits: tuple[Member, ...]) -> tuple[int, ...]:
    guilty = {member.rank for member in culprits}
    return tuple(sorted(rank for rank in round_.members if rank not in guilty))


def hang(run: RunView, fresh: set[str], now: float) -> Diagnosis | None:
    """A round in which nothing moves although all of it is seen. `fresh`: nodes whose beats are on time."""
    round_ = run.current
    if round_.exits or not round_.complete() or len(round_.progress) < round_.world_size:
        return None
    if any(p.resting() or p.stale_s() <= run.clocks.deadline_s(p.phase) for p in round_.progress.values()):
        return None
    watched = [(round_.members[rank], progress) for rank, progress in round_.progress.items()]
    if any(member.node not in fresh for member, _ in watched):
        return None
    still = min(progress.stale_s() for _, progress in watched)
    stopped = tuple(member for member, progress in watched if progress.state == "T")
    steps = {member.rank: progress.step for member, progress in watched}
    behind = tuple(member for member, progress in watched if progress.step < max(steps.values()))
    culprits = stopped or (behind if 0 < len(behind) * 2 < len(watched) else ())
    reasons = [f"no rank has moved for {still:.1f} s, all beats are on time; steps {_spread(steps)}"]
    if stopped:
        reasons += [
            f"{name(member)} is stopped (state T): nobody can wait for it in vain but its peers" for member in stopped
        ]
    elif culprits:
        reasons += [f"{name(member)} is behind, at step {steps[member.rank]}" for member in culprits]
    else:
        reasons.append("no laggard: no rank differs from the others by what is known here")
    return Diagnosis(
        COLLECTIVE_HANG if culprits else UNKNOWN,
        culprits,
        _others(round_, culprits) if culprits else tuple(sorted(round_.members)),
        tuple(sorted({member.node for member in culprits})),
        0.95 if stopped else 0.6 if culprits else 0.3,
        f"the job stands still: {', '.join(name(m) for m in culprits[:3]) or 'no laggard'}",
        tuple(reasons),
        (),
        now - still,
    )


def _spread(steps: dict[int, int]) -> str:
    low, high = min(steps.values()), max(steps.values())
    return f"all at {low}" if low == high else f"{low} to {high}"


def shared_delay(late: list[NodeView], watched: int, now: float, settings: DetectSettings) -> Diagnosis | None:
    """Many unrelated nodes late together: their common path is late, not they."""
    if len(late) < 2 or len(late) < settings.shared_late_fraction * watched:
        return None
    since = min(node.silent_since for node in late if node.silent_since is not None)
    if now - since < settings.settle_s:
        return None
    silence = max(now - (node.arrival.last or now) for node in late)
    names = tuple(sorted(node.name for node in late))
    return Diagnosis(
        CONTROL_PLANE_DELAY,
        (),
        (),
        names,
        0.9,
        f"control plane late: {len(late)} of {watched} nodes silent together",
        (
            f"{len(late)} of {watched} nodes missed their deadline together, the longest silent for {silence:.1f} s: "
            "unrelated nodes do not die in the same second, the path they share is late",
            "this monitor's own writes came back meanwhile: its sight of the store is good",
        ),
        (),
        since,
    )


def alibi(node: NodeView, runs: list[RunView], fresh: set[str]) -> str | None:
    """Proof that a silent node's ranks took part: a peer finished a step that needed them. None: no such proof."""
    for run in runs:
        round_ = run.current
        mine = [r for r, member in round_.members.items() if member.node == node.name and r in round_.progress]
        peers = [r for r, m in round_.members.items() if m.node in fresh and r in round_.progress]
        if not mine or not peers or not run.ahead.synchronous():
            continue
        suspect = min(round_.progress[rank].step for rank in mine)
        best = max(peers, key=lambda rank: round_.progress[rank].step)
        if round_.progress[best].step > suspect + run.ahead.limit():
            return (
                f"rank {best} finished step {round_.progress[best].step}, which needed the ranks of {node.name} "
                f"(last seen at step {suspect}, run-ahead at most {run.ahead.limit()})"
            )
    return None


def one_silent(
    node: NodeView, runs: list[RunView], fresh: set[str], now: float, settings: DetectSettings
) -> Diagnosis | None:
    """One node silent: its agent, its path, or the node itself."""
    last = node.arrival.last
    if node.silent_since is None or last is None:
        return None
    silence = now - last
    mine = [run for run in runs if any(m.node == node.name for m in run.current.alive())]
    proof = alibi(node, mine, fresh)
    if proof or not mine:
        if silence < settings.sidecar_dead_after_s:
            return None
        why = proof or f"no job runs on {node.name}"
        return _silent(
            SIDECAR_DEAD, node, (), 0.8, f"the agent on {node.name} is silent, no job suffers",
            (f"{node.name} has been silent for {silence:.1f} s", why), node.silent_since,
        )  # fmt: skip
    if silence < settings.node_dead_after_s:
        return None
    stalled = [run for run in mine if _peers_stalled(run, node.name, fresh, node.silent_since)]
    if not stalled:
        return _silent(
            UNKNOWN, node, (), 0.3, f"{node.name} is silent; whether it lives cannot be told from here",
            (f"{node.name} has been silent for {silence:.1f} s", "no other node shares its job and could vouch for it"),
            node.silent_since,
        )  # fmt: skip
    culprits = tuple(m for run in stalled for m in run.current.alive() if m.node == node.name)
    return _silent(
        NODE_DEAD, node, culprits, 0.7, f"{node.name} is silent and its job stands still",
        (
            f"{node.name} has been silent for {silence:.1f} s",
            "its peers are on time and have not finished a step since",
        ),
        node.silent_since,
        tuple(sorted({r for run in stalled for r, m in run.current.members.items() if m.node != node.name})),
    )  # fmt: skip


def _silent(
    klass: str, node: NodeView, culprits: tuple[Member, ...], confidence: float, summary: str,
    reasons: tuple[str, ...], since: float, cascade: tuple[int, ...] = (),
) -> Diagnosis:  # fmt: skip
    return Diagnosis(klass, culprits, cascade, (node.name,), confidence, summary, reasons, (), since)


def _peers_stalled(run: RunView, node: str, fresh: set[str], since: float) -> bool:
    """Other nodes of the run are seen, and none of their ranks moved after the silence began (and some grace)."""
    round_ = run.current
    peers = [round_.progress[r] for r, m in round_.members.items() if m.node in fresh and r in round_.progress]
    return bool(peers) and all(progress.moved_at <= since + 5.0 for progress in peers)


def alive_in(round_: RoundView, node: str) -> list[Member]:
    """Members of the round on `node` whose exit has not been reported."""
    return [m for m in round_.members.values() if m.node == node and process_of(m) not in round_.exits]
