"""Pauses of the monitor and of the store, up to 45 s, however they fall between beats: nobody may be convicted.

In days on which nothing else happens, so that whatever is convicted was convicted because of a pause.
"""

import dataclasses
from typing import Final

import numpy as np

from rankpulse.bench.detect.drive import Way
from rankpulse.bench.detect.job import Timeline
from rankpulse.bench.detect.patrol import node_day, patrol
from rankpulse.bench.detect.trace import Day, Spans, make_day, stream

KINDS: Final = {"observer": "the monitor is paused", "store": "the store takes no writes"}
LONGEST_S: Final = 45.0
APART_S: Final = 120.0
NODES: Final = 16
CALM: Final = 1e-9  # of the rates of everything else


def paused(seed: int, number: int, kind: str, count: int) -> Day:
    """A day with so many pauses of this kind, and nothing else."""
    rng = stream(seed, number, "pauses", kind)
    day = make_day(seed, number, CALM, nodes=NODES, seconds=APART_S * (count + 1))
    start = APART_S * np.arange(1, count + 1) + rng.uniform(0.0, APART_S - 1.5 * LONGEST_S, count)
    spans = Spans(start, start + rng.uniform(0.3, LONGEST_S, count), np.zeros(count, dtype=np.int64))
    return dataclasses.replace(day, **{kind: spans})  # type: ignore[arg-type]


def convicted(day: Day, way: Way) -> int:
    """How many convictions the pauses of this day led to."""
    return len(patrol(day, node_day(day), Timeline(day), way, straight=True).convicted)
