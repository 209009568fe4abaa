"""What a snapshot comes to: a named cause with its culprits, how sure it is, why, and what to do.

The classes are those of incidents. `kind` is the wider family that people file it under. `action` is a word of the
policy; `steps` say the same to people and to other tools, in order, with what they are about in brackets.
"""

from typing import Final

import msgspec

from rankpulse.core import diagnosis as d
from rankpulse.core import policy

WORKER_DEAD, NODE_DEAD, SIDECAR_DEAD = d.WORKER_DEAD, d.NODE_DEAD, d.SIDECAR_DEAD
CONTROL_PLANE_DELAY, COLLECTIVE_HANG, UNKNOWN = d.CONTROL_PLANE_DELAY, d.COLLECTIVE_HANG, d.UNKNOWN
STOPPED_BY_USER, FINISHED = d.STOPPED_BY_USER, d.FINISHED
PARTITION: Final = "partition"
GPU_FAULT = d.GPU_FAULT
NVLINK_DOMAIN = d.NVLINK_DOMAIN
COLLECTIVE_MISMATCH = d.COLLECTIVE_MISMATCH
NETWORK_STALL = d.NETWORK_STALL
STRAGGLER: Final = "straggler"
DATA_STALL = d.DATA_STALL
STORAGE_STALL = d.STORAGE_STALL
OOM = d.OOM
NUMERICAL = d.NUMERICAL
PLANNED_SLOW_PHASE: Final = "planned_slow_phase"
MONITOR_BLIND: Final = "monitor_blind"
PREEMPTED: Final = "preempted"
STARTUP_FAILURE = d.STARTUP_FAILURE

KINDS: Final = {  # the family of each class, where a cause does not name a closer one
    WORKER_DEAD: "app_bug",
    NODE_DEAD: "host_fault",
    SIDECAR_DEAD: "control_plane",
    PARTITION: "network",
    GPU_FAULT: "gpu_fault",
    NVLINK_DOMAIN: "nvlink_domain",
    COLLECTIVE_HANG: "app_bug",
    COLLECTIVE_MISMATCH: "desync",
    NETWORK_STALL: "network",
    STRAGGLER: "straggler",
    DATA_STALL: "data_stall",
    STORAGE_STALL: "storage",
    OOM: "app_bug",
    NUMERICAL: "app_bug",
    PLANNED_SLOW_PHASE: "planned_slow_phase",
    CONTROL_PLANE_DELAY: "control_plane",
    MONITOR_BLIND: "control_plane",
    FINISHED: "ended",
    STOPPED_BY_USER: "ended",
    PREEMPTED: "control_plane",
    STARTUP_FAILURE: "control_plane",
    UNKNOWN: "unknown",
}

ACTIONS: Final = {  # what the policy would do, where a cause does not say otherwise
    WORKER_DEAD: policy.RESTART,
    NODE_DEAD: policy.RESTART_WITHOUT,
    SIDECAR_DEAD: policy.NONE,
    PARTITION: policy.PAGE,
    GPU_FAULT: policy.RESTART_WITHOUT,
    NVLINK_DOMAIN: policy.RESTART_WITHOUT,
    COLLECTIVE_HANG: policy.RESTART,
    COLLECTIVE_MISMATCH: policy.PAGE,
    NETWORK_STALL: policy.RESTART,
    STRAGGLER: policy.NONE,
    DATA_STALL: policy.RESTART,
    STORAGE_STALL: policy.PAGE,
    OOM: policy.RESTART,
    NUMERICAL: policy.PAGE,
    PLANNED_SLOW_PHASE: policy.WAIT,
    CONTROL_PLANE_DELAY: policy.NONE,
    MONITOR_BLIND: policy.NONE,
    FINISHED: policy.NONE,
    STOPPED_BY_USER: policy.NONE,
    PREEMPTED: policy.RESTART,
    STARTUP_FAILURE: policy.PAGE,
    UNKNOWN: policy.PAGE,
}

# steps, in the words of operators
NOTHING: Final = "nothing"
WAIT: Final = "wait"
DUMP_STACKS: Final = "dump_stacks"
RESTART_JOB: Final = "restart_job"
RESTART_EXCLUDING: Final = "restart_excluding"
RESET_GPU: Final = "reset_gpu"
DRAIN_REBOOT: Final = "drain_reboot"
KILL_ORPHANS: Final = "kill_orphans"
FIX_CONFIG: Final = "fix_config"
TELL_USER: Final = "tell_user"
KILL_STEP: Final = "kill_step"
PROBE_FABRIC: Final = "probe_fabric"
DRAIN_AFTER_JOB: Final = "drain_after_job"
RESTART_AGENT: Final = "restart_agent"

STEPS: Final = {  # what an action means, where a cause does not say more
    policy.RESTART: RESTART_JOB,
    policy.RESTART_WITHOUT: RESTART_EXCLUDING,
    policy.DRAIN: DRAIN_REBOOT,
    policy.WAIT: WAIT,
    policy.NONE: NOTHING,
    policy.STOP: TELL_USER,
    policy.PAGE: TELL_USER,
}


class Gpu(msgspec.Struct, frozen=True, order=True):
    node: str
    gpu: int | None = None


class Culprits(msgspec.Struct, frozen=True):
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    gpus: tuple[Gpu, ...] = ()
    links: tuple[str, ...] = ()  # node/port
    groups: tuple[str, ...] = ()  # process groups, where it is one as a whole
    files: tuple[str, ...] = ()


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong, as a rule found it."""

    klass: str = msgspec.field(name="class")
    culprits: Culprits = Culprits()
    confidence: float
    summary: str
    reasons: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()  # where in the snapshot it stands
    kind: str = ""
    action: str = ""
    steps: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    fault: str = ""  # what makes it the same failure another time; no names, no numbers

    @property
    def family(self) -> str:
        return self.kind or KINDS[self.klass]

    @property
    def choice(self) -> str:
        return self.action or ACTIONS[self.klass]

    @property
    def todo(self) -> tuple[str, ...]:
        targets = self.culprits.nodes if self.choice in (policy.RESTART_WITHOUT, policy.DRAIN) else ()
        return self.steps or (step(STEPS[self.choice], *targets),)


class Seen(msgspec.Struct, frozen=True):
    """The same failure before."""

    times: int = 0
    nodes: tuple[str, ...] = ()
    last_action: str = ""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What is printed."""

    klass: str = msgspec.field(name="class")
    kind: str
    culprits: Culprits
    cascade: tuple[int, ...]
    action: str
    steps: tuple[str, ...]
    confidence: float
    summary: str
    reasons: tuple[str, ...]
    evidence: tuple[str, ...]
    hints: tuple[str, ...]
    signature: str
    seen: Seen
    waits: tuple[str, ...] = ()  # who waits for the culprits, in which group and operation
    machines: tuple[str, ...] = ()  # what hardware and kernels of theirs say
    stacks: tuple[str, ...]  # where ranks are, outliers first
    also: tuple[Cause, ...]  # what else is wrong, and not the cause
    unread: tuple[str, ...]


def step(verb: str, *targets: object) -> str:
    """A step and what it is about: restart_excluding(node-7)."""
    return f"{verb}({','.join(map(str, targets))})" if targets else verb
