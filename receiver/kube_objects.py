"""What JobSet, TrainJob, PyTorchJob and Node look like, and what is still to be done to start a job again. Pure.

All three kinds document the same way: while `suspend` is true their pods are ended, and when it is false again new ones
are made. An object that has completed or failed cannot be resumed. Every change carries the `resourceVersion` that the
decision rests on, so that nobody else's change is overwritten.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from rankpulse.receiver.acting import Refused
from rankpulse.receiver.deciding import Plan

DECISION, STAGE = "rankpulse/decision", "rankpulse/stage"  # annotations
TAINT: Final = "rankpulse/left-out"
SUSPENDING, DONE = "suspending", "done"
_NODE: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")


class Kind(NamedTuple):
    """Where objects of a kind are, where their `suspend` is, and which conditions mean that they have ended."""

    group: str
    version: str
    plural: str
    suspend: tuple[str, ...]
    ended: Mapping[str, str]  # condition -> in words


KINDS: Final[Mapping[str, Kind]] = {
    "JobSet": Kind(
        "jobset.x-k8s.io", "v1alpha2", "jobsets", ("spec", "suspend"), {"Completed": "completed", "Failed": "failed"}
    ),
    "TrainJob": Kind(
        "trainer.kubeflow.org", "v1alpha1", "trainjobs", ("spec", "suspend"),
        {"Complete": "completed", "Failed": "failed"},
    ),
    "PyTorchJob": Kind(
        "kubeflow.org", "v1", "pytorchjobs", ("spec", "runPolicy", "suspend"),
        {"Succeeded": "completed", "Failed": "failed"},
    ),
}  # fmt: skip


class Step(NamedTuple):
    """A merge patch, and why. Without a path: wait and look again."""

    path: str
    body: Mapping[str, Any]
    why: str


def path(plan: Plan) -> str:
    """Of the object that is to be started again."""
    kind = KINDS[plan.job.kind]
    return f"/apis/{kind.group}/{kind.version}/namespaces/{plan.job.namespace}/{kind.plural}/{plan.target}"


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{name}"


def left_out(plan: Plan, limit: int) -> tuple[str, ...]:
    """The nodes to be cordoned. Raises `Refused`."""
    bad = [name for name in plan.data.without if not _NODE.fullmatch(name)]
    if bad:
        raise Refused(f"node {bad[0][:60]!r} is no name of a node of Kubernetes")
    if len(plan.data.without) > limit:
        raise Refused(f"{len(plan.data.without)} nodes were to be cordoned, and kubernetes.cordon_max is {limit}")
    return plan.data.without


def steps(now: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]], plan: Plan) -> list[Step]:
    """What is to be done yet, in order; [] when all is done. `nodes`: those to be cordoned. Raises `Refused`."""
    kind = KINDS[plan.job.kind]
    notes = _at(now, "metadata", "annotations") or {}
    ours = notes.get(DECISION) == plan.mark
    if ours and notes.get(STAGE) == DONE:
        return []
    suspended = bool(_at(now, *kind.suspend))
    _check(now, plan, kind, ours, suspended)
    cordons = [step for node in nodes if (step := _cordon(node, plan))]
    resume = _change(now, plan, DONE, False, "resumed: new pods are made")
    if ours and not suspended:
        return [*cordons, _change(now, plan, DONE, None, "somebody has resumed it already")]
    wait = Step("", {}, "its pods are being ended")
    if ours:
        return [*cordons, *([] if _stands(now) else [wait]), resume]
    return [*cordons, _change(now, plan, SUSPENDING, True, "suspended: its pods are ended"), wait, resume]


def _check(now: Mapping[str, Any], plan: Plan, kind: Kind, ours: bool, suspended: bool) -> None:
    name = f"{plan.job.kind} {plan.job.namespace}/{plan.target}"
    for condition, word in kind.ended.items():
        if _is(now, condition):
            raise Refused(f"{name} has {word}: it cannot be resumed, create it anew")
    if _at(now, "metadata", "deletionTimestamp"):
        raise Refused(f"{name} is being deleted")
    if not ours and suspended:
        raise Refused(f"{name} is suspended by somebody else (a queue, a person), and is left alone")
    if not ours and not plan.may_begin:
        raise Refused("the decision has become too old to begin with: a person must look")


def _stands(now: Mapping[str, Any]) -> bool:
    """Whether the controller has acted on this very `suspend`."""
    seen = _at(now, "status", "observedGeneration")
    return _is(now, "Suspended") and seen in (None, _at(now, "metadata", "generation"))


def _change(now: Mapping[str, Any], plan: Plan, stage: str, suspend: bool | None, why: str) -> Step:
    """Decision and `suspend` change together or not at all."""
    body: dict[str, Any] = {
        "metadata": {
            "resourceVersion": _at(now, "metadata", "resourceVersion"),
            "annotations": {DECISION: plan.mark, STAGE: stage},
        }
    }
    if suspend is not None:
        part: Any = suspend
        for name in reversed(KINDS[plan.job.kind].suspend):
            part = {name: part}
        body.update(part)
    return Step(path(plan), body, why)


def _cordon(node: Mapping[str, Any], plan: Plan) -> Step | None:
    """None where it is done. Taints are one list: the precondition keeps those of others."""
    taints = list(_at(node, "spec", "taints") or [])
    tainted = any(isinstance(one, Mapping) and one.get("key") == TAINT for one in taints)
    if tainted and _at(node, "spec", "unschedulable"):
        return None
    mine = [] if tainted else [{"key": TAINT, "value": plan.mark, "effect": "NoSchedule"}]
    name = _at(node, "metadata", "name")
    body = {
        "metadata": {"resourceVersion": _at(node, "metadata", "resourceVersion")},
        "spec": {"unschedulable": True, "taints": [*taints, *mine]},
    }
    return Step(node_path(str(name)), body, f"node {name} takes no new pods")


def _is(now: Mapping[str, Any], condition: str) -> bool:
    found = _at(now, "status", "conditions")
    given = found if isinstance(found, list) else []
    return any(
        isinstance(one, Mapping) and (one.get("type"), one.get("status")) == (condition, "True") for one in given
    )


def _at(tree: Any, *names: str) -> Any:
    """None for what is not there."""
    for name in names:
        tree = tree.get(name) if isinstance(tree, Mapping) else None
    return tree
