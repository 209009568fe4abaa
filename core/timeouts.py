"""The whole hierarchy of timeouts around one job, and whether each lies inside the next one out. Values only.

Three layers can end a job that does not move: rankpulse, torch's process group, and the scheduler. rankpulse means to
be the first, because it alone knows the culprit and keeps the rest of the job; torch's own timeout stands behind it,
and the scheduler behind both. Each layer must also leave the one inside it time to finish what it has begun.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from rankpulse.core import cost_rule
from rankpulse.core.settings import Settings

OURS, TORCH, SCHEDULER = "rankpulse", "torch", "scheduler"
OK, WARN = "ok", "warn"
PROCESS_GROUP_S: Final = 600.0  # torch's default for NCCL; gloo: 1800
TORCHRUN_GRACE_S: Final = 30.0  # of torchelastic, from SIGTERM to SIGKILL; it takes no other
JOIN_S: Final = 600.0  # join_timeout of our --rdzv-conf
HOLD_S: Final = 15.0  # RANKPULSE_HOLD_S
TRAINER_GRACE_S: Final = 5.0  # RANKPULSE_GRACE_S


@dataclass(frozen=True, slots=True)
class Around:
    """What is set beside our settings file, in seconds; None: not known. `scheduler`: its name, "" for none.

    process_group_s: the `timeout` of init_process_group. watchdog_s: TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC. hold_s, grace_s:
    of the holder. join_s: of the rendezvous. kill_wait_s: the scheduler's time between SIGTERM and SIGKILL.
    node_down_s: after which it gives up a node that is silent, and the job on it.
    """

    process_group_s: float | None = None
    watchdog_s: float | None = None
    hold_s: float = HOLD_S
    grace_s: float = TRAINER_GRACE_S
    join_s: float = JOIN_S
    scheduler: str = ""
    kill_wait_s: float | None = None
    node_down_s: float | None = None


class Limit(NamedTuple):
    """One timeout: what it ends, of which layer, and where it is set."""

    what: str
    seconds: float
    layer: str
    source: str


class Pair(NamedTuple):
    """Whether `inner` lies inside `outer`. `remedy` is "" where it does."""

    inner: Limit
    outer: Limit
    level: str
    text: str
    remedy: str = ""


def limits(settings: Settings, around: Around) -> dict[str, Limit]:
    """All that are known, by a short name."""
    detect, policy = settings.detect, settings.policy
    act_s = detect.hang_floor_s + policy.hang_act_s
    stop_s = policy.grace_s + policy.answer_s
    node_s = cost_rule.times(detect, None).node_s  # of a fleet that has shown nothing yet
    node_from = "detect.node_dead_after_s" if detect.node_dead_after_s else "the cost rule"
    group_s = PROCESS_GROUP_S if around.process_group_s is None else around.process_group_s
    given = "torch's default for NCCL" if around.process_group_s is None else "as given"
    known = {
        "hang": Limit(
            "a hang in training is acted on, at the earliest", act_s, OURS, "detect.hang_floor_s + policy.hang_act_s"
        ),
        "first": Limit(
            "a phase of unknown length is taken for a hang", detect.hang_prior_s, OURS, "detect.hang_prior_s"
        ),
        "stop": Limit("workers are ended after an order", stop_s, OURS, "policy.grace_s + policy.answer_s"),
        "round": Limit(
            "no next round: the ladder goes on outside", policy.round_s, OURS, "policy.round_s"
        ),
        "webhook": Limit("no job after the webhook: a person", policy.webhook_s, OURS, "policy.webhook_s"),
        "node": Limit("a silent node is given up, its job ended", node_s + stop_s, OURS, f"{node_from} + order"),
        "lease": Limit(
            "another monitor leads", settings.monitor.lease_ttl_s, OURS, "monitor.lease_ttl_s"
        ),
        "hold": Limit("a holder without word from its agent lets go", around.hold_s, OURS, "RANKPULSE_HOLD_S"),
        "grace": Limit("a trainer has ended after SIGTERM", around.grace_s, OURS, "RANKPULSE_GRACE_S"),
        "group": Limit("a collective that does not end", group_s, TORCH, f"init_process_group(timeout), {given}"),
        "torchrun": Limit("torchrun kills its workers after SIGTERM", TORCHRUN_GRACE_S, TORCH, "fixed in torchelastic"),
        "join": Limit("torchrun gives up a rendezvous", around.join_s, TORCH, "--rdzv-conf join_timeout"),
    }  # fmt: skip
    optional = {
        "watchdog": ("NCCL's watchdog, stuck itself", around.watchdog_s, TORCH, "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"),
        "kill_wait": ("SIGKILL after SIGTERM", around.kill_wait_s, SCHEDULER, around.scheduler),
        "node_down": ("a silent node's jobs are ended", around.node_down_s, SCHEDULER, around.scheduler),
    }  # fmt: skip
    known |= {
        name: Limit(what, seconds, layer, source)
        for name, (what, seconds, layer, source) in optional.items()
        if seconds is not None
    }
    return known


_RULES: Final[tuple[tuple[str, str, str, str], ...]] = (  # inner, outer, what happens otherwise, remedy
    (
        "hang",
        "group",
        "torch ends a hung job before rankpulse does: you see a crash on many ranks, not who hangs",
        "raise the timeout of init_process_group, or lower policy.hang_act_s",
    ),
    (
        "hang",
        "watchdog",
        "NCCL's monitor thread aborts the job before rankpulse has acted on a hang",
        "raise TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC, or lower policy.hang_act_s",
    ),
    (
        "lease",
        "hold",
        "holders let go before another monitor leads: a crash while the leader dies burns one of torchrun's restarts",
        "raise RANKPULSE_HOLD_S above monitor.lease_ttl_s, with some seconds to spare",
    ),
    (
        "grace",
        "torchrun",
        "torchrun kills the holder while the trainer still ends: what the trainer does at SIGTERM is cut off",
        "lower RANKPULSE_GRACE_S below 30",
    ),
    (
        "stop",
        "round",
        "the webhook is told before the workers of the old round have been killed",
        "raise policy.round_s, or lower policy.grace_s and policy.answer_s",
    ),
    (
        "round",
        "join",
        "torchrun gives up its rendezvous while the monitor still waits for the next round",
        "raise --rdzv-conf join_timeout, or lower policy.round_s",
    ),
    (
        "grace",
        "kill_wait",
        "the scheduler kills trainers that still end after its SIGTERM: a last checkpoint would be cut off",
        "raise the scheduler's time (KillWait of Slurm, terminationGracePeriodSeconds), or lower RANKPULSE_GRACE_S",
    ),
    (
        "node",
        "node_down",
        "the scheduler ends the whole job for a lost node before rankpulse goes on without it",
        "raise the scheduler's time (Slurm: SlurmdTimeout), or lower detect.node_dead_after_s",
    ),
)


def judged(known: Mapping[str, Limit]) -> list[Pair]:
    """Every pair of which both are known, in the order of the rules."""
    found = []
    for inner, outer, otherwise, remedy in _RULES:
        if inner in known and outer in known:
            found.append(_pair(known[inner], known[outer], otherwise, remedy))
    return found


def _pair(inner: Limit, outer: Limit, otherwise: str, remedy: str) -> Pair:
    figures = f"{inner.source} = {inner.seconds:g} s, {outer.source} = {outer.seconds:g} s"
    if inner.seconds < outer.seconds:
        return Pair(inner, outer, OK, figures)
    return Pair(inner, outer, WARN, f"{otherwise} ({figures})", remedy)
