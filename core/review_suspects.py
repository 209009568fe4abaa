"""Which nodes and GPUs failed more often than chance explains, by what the ledger holds of a stretch."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from rankpulse.core.ledger import GPU, NETWORK, NODE, NVLINK
from rankpulse.core.lemons import Quiet, Score, scores
from rankpulse.core.records import LedgerDay, LedgerEntry

OF_MACHINES: Final = (GPU, NVLINK, NODE, NETWORK)  # what a program or a person did speaks against no machine
GPUS_MAX: Final = 64  # of one node, whatever a record says


@dataclass(slots=True)
class Part:
    """What one node was exposed to. gpus: how many it has, by its busiest day."""

    node_s: float = 0.0
    gpu_s: float = 0.0
    gpus: int = 0


@dataclass(slots=True)
class Exposed:
    """The exposure of every node over some days: added day by day, and taken off again when a day changes or goes."""

    nodes: dict[str, Part] = field(default_factory=dict)

    def add(self, day: LedgerDay) -> None:
        for name, share in day.nodes.items():
            part = self.nodes.get(name)
            if part is None:
                part = self.nodes[name] = Part()
            part.node_s += share.node_s
            part.gpu_s += share.gpu_s
            if share.node_s > 0:
                part.gpus = max(part.gpus, math.ceil(min(share.gpu_s / share.node_s - 0.05, GPUS_MAX)))

    def take_off(self, day: LedgerDay) -> None:
        """A day that was added. How many GPUs a node has, once seen, is not forgotten."""
        for name, share in day.nodes.items():
            part = self.nodes[name]
            part.node_s, part.gpu_s = max(part.node_s - share.node_s, 0.0), max(part.gpu_s - share.gpu_s, 0.0)


def nodes(failures: Sequence[LedgerEntry], exposed: Exposed) -> tuple[Score, ...]:
    """Worst first, those that failed at all. Exposure is the time in which a node was heard, in hours."""
    counts = Counter(one.node for one in failures if one.node and one.component in OF_MACHINES)
    seen = {name: (count, exposed.nodes[name].node_s / 3600) for name, count in counts.items() if name in exposed.nodes}
    return scores(seen, quiet=_quiet(part.node_s for name, part in exposed.nodes.items() if name not in seen))


def gpus(failures: Sequence[LedgerEntry], exposed: Exposed) -> tuple[Score, ...]:
    """Likewise, as `node/index`. The ledger counts by node, so each GPU of a node is taken to have run as long."""
    counts = Counter((one.node, one.gpu) for one in failures if one.node in exposed.nodes and _whose(one))
    highest, failed = dict[str, int](), Counter(node for node, _ in counts)
    for node, gpu in counts:
        highest[node] = max(highest.get(node, 0), gpu + 1)
    number = {node: max(exposed.nodes[node].gpus, top) for node, top in highest.items()}
    hours = {node: exposed.nodes[node].gpu_s / 3600 / number[node] for node in number}
    quiet_h = [(number[node] - failed[node], hours[node]) for node in number if hours[node] > 0]
    others = [part for name, part in exposed.nodes.items() if name not in number and part.gpus and part.gpu_s > 0]
    quiet = Quiet(
        sum(count for count, _ in quiet_h) + sum(part.gpus for part in others),
        sum(count * h for count, h in quiet_h) + sum(part.gpu_s for part in others) / 3600,
    )
    return scores({f"{node}/{gpu}": (count, hours[node]) for (node, gpu), count in counts.items()}, quiet=quiet)


def _whose(one: LedgerEntry) -> bool:
    return one.component == GPU and 0 <= one.gpu < GPUS_MAX


def _quiet(seconds: Iterable[float]) -> Quiet:
    heard = [s for s in seconds if s > 0]
    return Quiet(len(heard), sum(heard) / 3600)
