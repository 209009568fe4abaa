"""Which nodes and GPUs failed more often than chance explains, by what the ledger holds of a stretch."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from rankpulse.core.ledger import GPU, NETWORK, NODE, NVLINK
from rankpulse.core.lemons import Score, scores
from rankpulse.core.records import LedgerDay, LedgerEntry

OF_MACHINES: Final = (GPU, NVLINK, NODE, NETWORK)  # what a program or a person did speaks against no machine
GPUS_MAX: Final = 64  # of one node, whatever a record says


def nodes(failures: Sequence[LedgerEntry], days: Sequence[LedgerDay]) -> tuple[Score, ...]:
    """Worst first, those that failed at all. Exposure is the time in which a node was heard, in hours."""
    counts = Counter(one.node for one in failures if one.node and one.component in OF_MACHINES)
    hours: Counter[str] = Counter()
    for day in days:
        for name, share in day.nodes.items():
            hours[name] += share.node_s / 3600  # type: ignore[assignment]
    return _failed(scores({name: (counts[name], float(h)) for name, h in hours.items()}) if counts else ())


def gpus(failures: Sequence[LedgerEntry], days: Sequence[LedgerDay]) -> tuple[Score, ...]:
    """Likewise, as `node/index`. The ledger counts by node, so each GPU of a node is taken to have run as long."""
    counts = Counter((one.node, one.gpu) for one in failures if one.node and one.component == GPU and one.gpu >= 0)
    if not counts:
        return ()
    seen: dict[str, tuple[int, float]] = {}
    for node, (number, hours) in _exposed(counts, days).items():
        for gpu in range(number):
            seen[f"{node}/{gpu}"] = counts[node, gpu], hours / number
    return _failed(scores(seen))


def _exposed(counts: Mapping[tuple[str, int], int], days: Sequence[LedgerDay]) -> dict[str, tuple[int, float]]:
    """By node: how many GPUs, by the busiest day and the highest that failed; and their hours together."""
    found: dict[str, tuple[int, float]] = {}
    for day in days:
        for node, share in day.nodes.items():
            number, hours = found.get(node, (0, 0.0))
            busy = math.ceil(min(share.gpu_s / share.node_s - 0.05, GPUS_MAX)) if share.node_s > 0 else 0
            found[node] = max(number, busy), hours + share.gpu_s / 3600
    for node, gpu in counts:
        if node in found:
            number, hours = found[node]
            found[node] = max(number, min(gpu + 1, GPUS_MAX)), hours
    return found


def _failed(all_: tuple[Score, ...]) -> tuple[Score, ...]:
    return tuple(score for score in all_ if score.failures)
