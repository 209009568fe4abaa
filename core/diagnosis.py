"""What a diagnosis is: a named cause with its culprits, its cascade, its evidence, and its reasons in plain words.

The culprit is the first mover, not the loudest: ranks that lost their peers explain nothing, so a death that explains
them is looked for first. "Nobody knows" is an answer (`unknown`), and so is "not yet" (None).
"""

from collections.abc import Iterable
from typing import NamedTuple

from rankpulse.core.records import Incident, Member
from rankpulse.core.views import RoundView

CONTROL_PLANE_DELAY = "control_plane_delay"
WORKER_DEAD = "worker_dead"
NODE_DEAD = "node_dead"
SIDECAR_DEAD = "sidecar_dead"
AGENT_CUT_OFF = "agent_cut_off"
COLLECTIVE_HANG = "collective_hang"
UNKNOWN = "unknown"
OPERATOR_RESTART = "operator_restart"
DRAIN = "drain"
BREAKER_OPEN = "breaker_open"
STOPPED_BY_USER = "stopped_by_user"
FINISHED = "finished"
FAILED = "failed"
ABANDONED = "abandoned"
NAMED_MAX = 64  # culprits and evidence listed one by one; beyond that a count says more, and records stay small


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
    fault: str = ""  # the program's own error, without names; "" when it is none


class Ending(NamedTuple):
    """How a run ended, when nothing about it is a failure that is not told already."""

    outcome: str
    reason: str


def name(member: Member) -> str:
    """A rank as people need it: with the node and the process."""
    return f"rank {member.rank} on {member.node} (pid {member.pid})"


def nodes_of(members: Iterable[Member]) -> tuple[str, ...]:
    return tuple(sorted({member.node for member in members}))


def others(round_: RoundView, culprits: Iterable[Member]) -> tuple[int, ...]:
    """The ranks of the round that are not culprits: its cascade."""
    guilty = {member.rank for member in culprits}
    return tuple(sorted(rank for rank in round_.members if rank not in guilty))


def again(incident: Incident, since: float) -> Diagnosis:
    """What an incident concluded, as the diagnosis it came from."""
    return Diagnosis(
        incident.klass,
        incident.culprits,
        incident.cascade,
        incident.nodes,
        incident.confidence,
        incident.summary,
        incident.reasons,
        incident.evidence,
        since,
        incident.fault,
    )
