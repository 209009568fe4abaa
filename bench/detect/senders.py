"""What one sender's beats look like to the monitor on a day of the trace: when each was made and when it arrived.

A sender writes one beat after the other (etcd takes them in order), so a beat that is held up holds up those behind it.
"""

from dataclasses import dataclass

import numpy as np

from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.trace import Day, Floats, Spans, draw, union


@dataclass(frozen=True)
class Beats:
    """The beats of one sender that arrived, in order. Seconds of the day."""

    number: Floats  # how many intervals after the first
    made: Floats  # when what it says was true
    arrived: Floats  # when the monitor had it in hand
    offset: float  # when beat 0 was due

    def __len__(self) -> int:
        return len(self.arrived)

    def until(self, dead_at: float) -> "Beats":
        """Without those that a sender which dies then does not send any more."""
        count = int(np.searchsorted(self.made, dead_at))
        return Beats(self.number[:count], self.made[:count], self.arrived[:count], self.offset)


def rank_beats(day: Day, rank: int) -> Beats:
    """One sender per rank, as in the study."""
    return _beats(day, rank // z.RANKS_PER_NODE, ("rank", rank))


def node_beats(day: Day, node: int) -> Beats:
    """One sender per node, as rankpulse has it: fewer senders, so fewer of their stalls."""
    return _beats(day, node, ("node", node))


def _beats(day: Day, node: int, name: tuple[str, int]) -> Beats:
    rng = day.rng("sender", *name)
    offset = float(rng.uniform(0.0, z.INTERVAL_S))
    number = np.arange(int(day.seconds / z.INTERVAL_S), dtype=np.float64)
    made = number * z.INTERVAL_S + offset + z.JITTER_S * rng.standard_normal(len(number))
    made = np.maximum.accumulate(made)
    _hold(made, union(stalls(day, *name), day.freezes.at(node)))
    wire = made + draw(rng, z.NETWORK, len(number))
    _hold(wire, union(day.racks.at(node // z.NODES_PER_RACK)))
    for start, end in day.regimes.pairs():
        low, high = np.searchsorted(made, (start, end))
        wire[low:high] += draw(rng, z.TRACE_Z["jitter_regime"].size, high - low)
    lost = rng.random(len(number)) < z.LOSS
    for start, end in day.bursts.at(node).pairs():
        low, high = np.searchsorted(made, (start, end))
        lost[low:high] |= rng.random(high - low) < z.BURST_LOSS
    number, made, wire = number[~lost], made[~lost], np.maximum.accumulate(wire[~lost])
    _hold(wire, day.store)
    arrived = np.maximum.accumulate(wire + draw(rng, z.PUT, len(wire)))
    _hold(arrived, day.observer)
    return Beats(number, made, arrived, offset)


def stalls(day: Day, kind: str, which: int) -> Spans:
    """When this one sender does nothing: by itself, and at checkpoints."""
    rng = day.rng("stalls", kind, which)
    row = z.TRACE_Z["sender_stall"]
    count = int(rng.poisson(row.rate * day.scale * day.seconds / z.DAY_S))
    start, length = rng.uniform(0.0, day.seconds, count), draw(rng, row.size, count)
    hit = rng.random(len(day.checkpoints)) < min(1.0, z.CHECKPOINT_STALLS * day.scale)
    begin, end = day.checkpoints.start[hit], day.checkpoints.end[hit]
    late = begin + (end - begin) * rng.random(len(begin))
    start = np.concatenate([start, late])
    length = np.concatenate([length, draw(rng, z.CHECKPOINT_STALL, len(begin))])
    order = np.argsort(start, kind="stable")
    return Spans(start[order], (start + length)[order], np.zeros(len(start), dtype=np.int64))


def _hold(times: Floats, spans: Spans) -> None:
    """Whatever falls into one of the spans (apart from each other) happens at its end. `times` is sorted."""
    for start, end in spans.pairs():
        low, high = np.searchsorted(times, (start, end))
        times[low:high] = end
