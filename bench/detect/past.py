"""What a stretch inherits: the lateness that every node's deadline still remembers when the stretch begins.

A monitor that runs all day has learned from the last 500 beats of each node (core/arrival.py). Driving so much before
each stretch would cost ten times the time, so beats of that past are told without ticks and without ranks, and only
those of nodes that were late in it. An interval is not learned when the node was suspected and another was, too; those
are made the first of a new incarnation, which comes to the same.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rankpulse.bench.detect.senders import Beats
from rankpulse.bench.detect.trace import Day, Floats
from rankpulse.bench.detect.weather import Held

HARMLESS_S: Final = 1.5  # an interval up to this widens no deadline
WAIT_S: Final = 2.0  # a node that was punctual is suspected after this
REMEMBERED_S: Final = 510.0
SAME_MOMENT_S: Final = 0.3


class Told(NamedTuple):
    """A beat of the past. `inc`: from 1; it grows with each interval that is not learned."""

    arrived: float
    node: int
    number: int
    inc: int


@dataclass
class Past:
    """Of one day."""

    day: Day
    beats: list[Beats]
    _late: list[Floats] = field(init=False)  # by node: where in its beats an interval began that was not harmless
    _since: Floats = field(init=False)  # of all suspicions: when they began
    _until: Floats = field(init=False)
    _of: Floats = field(init=False)

    def __post_init__(self) -> None:
        asleep = Held(self.day.observer)
        self._late, rows = [], []
        for node, mine in enumerate(self.beats):
            gaps = np.diff(mine.arrived)
            self._late.append(mine.arrived[:-1][gaps > HARMLESS_S])
            for k in np.flatnonzero(gaps > WAIT_S):
                since, until = asleep.until(float(mine.arrived[k]) + WAIT_S), float(mine.arrived[k + 1])
                if since < until:  # the monitor ticked before the beat came
                    rows.append((since, until, float(node)))
        table = np.array(sorted(rows)).reshape(-1, 3)
        self._since, self._until, self._of = table[:, 0], table[:, 1], table[:, 2]

    def before(self, begin: float) -> list[Told]:
        """The beats to tell a monitor that begins then, in order of arrival."""
        found: list[Told] = []
        for node, late in enumerate(self._late):
            low, high = np.searchsorted(late, (begin - REMEMBERED_S, begin))
            if high > low:
                found += self._of_node(node, begin)
        return sorted(found)

    def _of_node(self, node: int, begin: float) -> Iterator[Told]:
        mine, inc = self.beats[node], 1
        low, high = np.searchsorted(mine.arrived, (begin - REMEMBERED_S, begin))
        last = float("-inf")
        for k in range(low, high):
            arrived = float(mine.arrived[k])
            if arrived - last > WAIT_S and k > low and self._together(node, arrived):
                inc += 1
            yield Told(arrived, node, int(mine.number[k]), inc)
            last = arrived

    def _together(self, node: int, at: float) -> bool:
        """Whether the node was suspected until then, and another at that moment."""
        high = int(np.searchsorted(self._since, at))
        near = self._until[:high] > at - SAME_MOMENT_S
        of = self._of[:high][near]
        return bool((of == node).any() and (of != node).any())
