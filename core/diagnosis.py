"""What a diagnosis is: a named cause with its culprits, its cascade, its evidence, and its reasons in plain words.

The culprit is the first mover, not the loudest: ranks that lost their peers explain nothing, so a death that explains
them is looked for first. "Nobody knows" is an answer (`unknown`), and so is "not yet" (None).
"""

from collections.abc import Iterable
from typing import NamedTuple

from rankpulse.core.records import DeviceFault, Finding, Incident, Member
from rankpulse.core.views import RoundView

CONTROL_PLANE_DELAY = "control_plane_delay"
WORKER_DEAD = "worker_dead"
NODE_DEAD = "node_dead"
SIDECAR_DEAD = "sidecar_dead"
AGENT_CUT_OFF = "agent_cut_off"
COLLECTIVE_HANG = "collective_hang"
COLLECTIVE_MISMATCH = "collective_mismatch"
DATA_STALL = "data_stall"
GPU_FAULT = "gpu_fault"
NETWORK_STALL = "network_stall"
NON_FINITE = "non_finite"
NUMERICAL = "numerical"
NVLINK_DOMAIN = "nvlink_domain"
OOM = "oom"
SILENT_CORRUPTION = "silent_corruption"
STARTUP_FAILURE = "startup_failure"
STORAGE_STALL = "storage_stall"
UNKNOWN = "unknown"
OPERATOR_RESTART = "operator_restart"
DRAIN = "drain"
BREAKER_OPEN = "breaker_open"
STOPPED_BY_USER = "stopped_by_user"
FINISHED = "finished"
FAILED = "failed"
ABANDONED = "abandoned"
DEATHS = (WORKER_DEAD, OOM, NUMERICAL, COLLECTIVE_MISMATCH, GPU_FAULT)  # what a round that lost a worker is called
RESTART_WITHOUT = "restart_without"  # an action: the policy's word, which rests on this module
STANDSTILLS = (  # and one that stands still
    COLLECTIVE_HANG,
    UNKNOWN,
    COLLECTIVE_MISMATCH,
    DATA_STALL,
    GPU_FAULT,
    NETWORK_STALL,
    NUMERICAL,
    NVLINK_DOMAIN,
    OOM,
    STARTUP_FAILURE,
    STORAGE_STALL,
)
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
    signature: str = ""  # what is the same when it happens again
    advice: str = ""  # what a verdict on evidence would do, in the words of the policy
    finding: Finding | None = None  # what the evidence came to; its incident is named when there is one
    faults: tuple[DeviceFault, ...] = ()  # of GPUs, that are the cause


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
        incident.signature,
        incident.action if incident.action == RESTART_WITHOUT else "",
        faults=incident.faults,
    )
