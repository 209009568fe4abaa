"""What an earlier failure of the same kind changes: a bad node, or a program that will only fail once more."""

import re
from typing import Final

import msgspec

from rankpulse.core import policy, signs
from rankpulse.core import verdict as v
from rankpulse.core.causes_hang import LOCK_OR_THREAD
from rankpulse.core.causes_hardware import name
from rankpulse.core.causes_monitor import is_lemon, spares
from rankpulse.core.remembered import DEVICE_SIGNS, Past, in_words, past
from rankpulse.core.scene import Scene
from rankpulse.core.verdict import Cause, Culprits, Gpu, step

OWN = (v.WORKER_DEAD, v.COLLECTIVE_HANG, v.STARTUP_FAILURE, v.OOM, v.NUMERICAL, v.COLLECTIVE_MISMATCH, v.DATA_STALL)
NEVER_A_NODE = (v.COLLECTIVE_MISMATCH, v.OOM, v.PREEMPTED)
STOPPED = "stopped"  # by a signal that no program sends to itself
OOM_AGAIN = "out of memory again: a rank keeps its share of the work, so the same node proves nothing"
# what Python raises of a program's own logic; RuntimeError and OSError may come from below
_RAISED: Final = re.compile(
    r"\b(Key|Value|Type|Index|Attribute|Name|Assertion|ZeroDivision|NotImplemented|ModuleNotFound|Import|Syntax"
    r"|UnboundLocal|UnicodeDecode|JSONDecode|Overflow)Error\b|\bAssertion\b|device-side assert"
)
OF_MACHINE = (v.GPU_FAULT, v.NODE_DEAD, v.NVLINK_DOMAIN)


def with_past(scene: Scene, cause: Cause) -> Cause:
    """The cause, as the past makes one see it."""
    before = past(scene, cause)
    if not before.same:
        return _spare(scene, _quarantined(scene, cause))
    cause = msgspec.structs.replace(cause, reasons=(*cause.reasons, in_words(before.seen)))
    if cause.choice in (policy.NONE, policy.WAIT):
        return cause  # nothing is wrong with it this time either
    if cause.klass in OF_MACHINE:
        return _spare(scene, _machine(cause, before))
    sign = signs.sign(cause.fault)
    by_program = (bool(before.at_step) and sign not in DEVICE_SIGNS) or _is_programs(cause, sign)
    if before.on_node and not before.elsewhere and not by_program and _may_be_node(scene, cause):
        return _bad_node(scene, cause, before)
    by_program = by_program or bool(before.elsewhere or before.at_step) or cause.klass == v.COLLECTIVE_MISMATCH
    if cause.klass in OWN and by_program and cause.fault != STOPPED:
        return _program(cause, before)
    if cause.choice != policy.RESTART:
        return cause
    if cause.klass == v.NETWORK_STALL and before.at_step:
        return _look_at_it(cause, "at one and the same step again: no network does that, the program may")
    alone = "the same failure again, and no other node to tell the program from the machine by"
    again = cause.klass in OWN and bool(before.on_node)
    return _look_at_it(cause, OOM_AGAIN if cause.klass == v.OOM else alone) if again else cause


def _is_programs(cause: Cause, sign: str) -> bool:
    """A lock or an exception of its own: a rank keeps its part and mostly its node, so the node proves nothing."""
    if cause.klass == v.COLLECTIVE_HANG:
        return cause.fault == "lock"
    return (
        cause.klass in (v.WORKER_DEAD, v.STARTUP_FAILURE) and sign == signs.ERROR and bool(_RAISED.search(cause.fault))
    )


def _look_at_it(cause: Cause, why: str) -> Cause:
    """Nothing says that a restart will help this time, and nothing that leaving out a node will."""
    return msgspec.structs.replace(cause, reasons=(*cause.reasons, why), action=policy.PAGE, steps=(v.TELL_USER,))


def _may_be_node(scene: Scene, cause: Cause) -> bool:
    """Whether a bad node can do this: it neither writes the program nor plans its phases, and preempts nobody."""
    restarts = cause.choice in (policy.RESTART, policy.RESTART_WITHOUT)  # else a person has to mend something first
    never = cause.klass in NEVER_A_NODE or cause.fault == LOCK_OR_THREAD
    return _has_others(scene, cause) and restarts and not never


def _has_others(scene: Scene, cause: Cause) -> bool:
    """Blame of a node says something only where there are others, and it is not all of them."""
    return bool(cause.culprits.nodes) and len(cause.culprits.nodes) < len(scene.node_names)


def _quarantined(scene: Scene, cause: Cause) -> Cause:
    """Another failure on a node that had several of other kinds: bad luck is less likely than a bad node."""
    nodes = cause.culprits.nodes
    if cause.klass not in (*OWN, v.NETWORK_STALL) or len(nodes) != 1 or not _may_be_node(scene, cause):
        return cause
    if _is_programs(cause, signs.sign(cause.fault)) or not is_lemon(scene, nodes[0]):
        return cause
    return msgspec.structs.replace(
        cause,
        action=policy.RESTART_WITHOUT,
        steps=(step(v.RESTART_EXCLUDING, *nodes), step(v.DRAIN_REBOOT, *nodes)),
        reasons=(*cause.reasons, f"{nodes[0]} failed again and again, with other failures"),
        hints=(*cause.hints, "keep it in quarantine until it has passed a burn-in"),
    )


def _machine(cause: Cause, before: Past) -> Cause:
    if not before.on_node or cause.action == policy.DRAIN:
        return cause
    hint = "stop the restarts on it: reset, test, and replace it if it comes again"
    return msgspec.structs.replace(cause, confidence=max(cause.confidence, 0.95), hints=(*cause.hints, hint))


def _bad_node(scene: Scene, cause: Cause, before: Past) -> Cause:
    """Twice the same on one node and never elsewhere: the node, not the program."""
    nodes = tuple(n for n in cause.culprits.nodes if any(n in (f.node, *f.nodes) for f in before.on_node))
    device = signs.sign(cause.fault) in DEVICE_SIGNS or cause.klass == v.GPU_FAULT
    gpus = cause.culprits.gpus or tuple(
        Gpu(scene.ranks[r].node, scene.ranks[r].gpu) for r in cause.culprits.ranks if device and r in scene.ranks
    )
    klass = v.GPU_FAULT if device else cause.klass
    why = "the same failure on the same node and nowhere else: it is the node, not the program"
    repair = step(v.RESET_GPU, *map(name, gpus)) if device else step(v.DRAIN_REBOOT, *nodes)
    return msgspec.structs.replace(
        cause,
        klass=klass,
        kind="gpu_fault" if device else "host_fault",
        culprits=msgspec.structs.replace(cause.culprits, nodes=nodes, gpus=gpus if device else cause.culprits.gpus),
        confidence=max(cause.confidence, 0.9),
        reasons=(*cause.reasons, why),
        action=policy.RESTART_WITHOUT,
        steps=(step(v.RESTART_EXCLUDING, *nodes), repair),
        hints=(*cause.hints, "run the vendor's diagnostics before it comes back"),
    )


def _program(cause: Cause, before: Past) -> Cause:
    """The same on other nodes, or at the same step: it will only fail once more."""
    where = "at the same step" if before.at_step else "on other nodes too" if before.elsewhere else "again"
    return msgspec.structs.replace(
        cause,
        kind=cause.kind
        if cause.kind in ("desync", "orphan_process")
        else ""
        if cause.klass in (v.COLLECTIVE_MISMATCH, v.DATA_STALL)
        else "app_bug",
        confidence=max(cause.confidence, 0.9),
        reasons=(*cause.reasons, f"the same failure {where}: it is the program's own, and will only come once more"),
        action=policy.PAGE if cause.kind == "orphan_process" else policy.STOP,
        steps=cause.todo if cause.kind == "orphan_process" else (v.TELL_USER,),
    )


def _spare(scene: Scene, cause: Cause) -> Cause:
    """Whether there will be a machine for the next failure."""
    few = spares(scene)
    return msgspec.structs.replace(cause, hints=(*cause.hints, *few)) if few and cause.culprits != Culprits() else cause
