"""The same failure before: how often, where, and what that says about who is to blame."""

from typing import NamedTuple

from rankpulse.core import signs
from rankpulse.core import verdict as v
from rankpulse.core.scene import Scene
from rankpulse.core.snapshot import Failure
from rankpulse.core.verdict import Cause, Seen

AGE_MAX_S = 7 * 86_400.0  # what is older says nothing about the node of today

DEVICE_SIGNS = (
    signs.CUDA,
    signs.ILLEGAL_INSTRUCTION,
    signs.ECC,
    signs.GPU_LOST,
    signs.GPU_FAILED,
    signs.XID,
    signs.CONTAINED,
    signs.NVLINK,
)


class Past(NamedTuple):
    """Earlier failures that look like this one."""

    same: tuple[Failure, ...]
    on_node: tuple[Failure, ...]  # of those, on a node that is blamed now
    elsewhere: tuple[Failure, ...]
    at_step: tuple[Failure, ...]  # of those, at the step of now

    @property
    def seen(self) -> Seen:
        nodes = tuple(sorted({node for failure in self.same for node in nodes_of(failure)}))
        return Seen(len(self.same), nodes, next((f.action for f in reversed(self.same) if f.action), ""))


def signature(cause: Cause) -> str:
    """What is the same when it happens again: neither names nor numbers."""
    return f"{cause.klass}:{cause.fault}" if cause.fault else cause.klass


def past(scene: Scene, cause: Cause) -> Past:
    same = tuple(f for f in scene.snap.history if is_same(f, cause) and (f.age_s is None or f.age_s <= AGE_MAX_S))
    steps = [rank.step for rank in scene.snap.ranks if rank.step is not None]
    step = max(steps) if steps else None
    here = tuple(f for f in same if set(nodes_of(f)) & set(cause.culprits.nodes))
    return Past(
        same,
        here,
        tuple(f for f in same if nodes_of(f) and f not in here),
        tuple(f for f in same if step is not None and f.step is not None and f.step == step),
    )


def is_same(failure: Failure, cause: Cause) -> bool:
    """By signature where there is one, else by class and words."""
    if failure.signature:
        return failure.signature == signature(cause)
    if failure.error and cause.fault:
        return alike(failure.error, cause.fault) or _of_device(failure.error, cause)
    return bool(failure.klass) and failure.klass == cause.klass


def _of_device(error: str, cause: Cause) -> bool:
    """A broken device tells the same in many words."""
    return cause.klass in (v.GPU_FAULT, v.NVLINK_DOMAIN) and signs.sign(error) in DEVICE_SIGNS


def alike(one: str, other: str) -> bool:
    """The same error, whatever numbers and paths its words carry, and however much of it was kept."""
    a, b = signs.bare(one).lower(), signs.bare(other).lower()
    told = signs.sign(one)
    return a == b or a in b or b in a or (told == signs.sign(other) and told not in (signs.NOTHING, signs.ERROR))


def nodes_of(failure: Failure) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node for node in (failure.node, *failure.nodes) if node))


def before_on(scene: Scene, nodes: tuple[str, ...], *classes: str) -> int:
    """How many earlier failures were on one of these nodes, whatever they were; of these classes, where one is told."""
    return sum(
        1
        for f in scene.snap.history
        if set(nodes_of(f)) & set(nodes)
        and (not classes or (f.klass or f.signature.partition(":")[0]) in (*classes, ""))
    )


def in_words(seen: Seen) -> str:
    """As a reason."""
    told = f"the same failure was seen {seen.times} time{'s' * (seen.times > 1)} before"
    told += f", on {', '.join(seen.nodes[:8])}" if seen.nodes else ""
    return told + (f"; the last fix ({seen.last_action}) did not hold" if seen.last_action else "")
