"""Whether leaving out quiet time changes anything: a part of the worst days, once whole and once in stretches.

Both operating points convict seldom, so a way without steps, which convicts often, is compared as well.

The same convictions are demanded, of the same nodes, within a tick of each other: their ticks do not fall together.
"""

import json as json_
import sys
from typing import Any, Final

import msgspec

from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.drive import Way
from rankpulse.bench.detect.job import Timeline
from rankpulse.bench.detect.patrol import Found, node_day, patrol
from rankpulse.bench.detect.points import LAYERS, POINTS
from rankpulse.bench.detect.trace import Day, make_day
from rankpulse.core import diagnosis as d

RANK_DAYS: Final = 200.0
SCALE: Final = 5.0


def _unsure() -> Way:
    """No steps are told, and that this is a standstill is not judged: it would be one in a whole day only."""
    layer = next(layer for layer in LAYERS if not layer.knowledge.progress and layer.knowledge.looks)
    detect = msgspec.structs.replace(layer.settings.detect, hang_prior_s=z.DAY_S, phase_ceiling_s=z.DAY_S)
    return layer._replace(settings=msgspec.structs.replace(layer.settings, detect=detect), alarms=(d.NODE_DEAD,))


UNSURE: Final = _unsure()


def compare(seed: int, json: bool, rank_days: float = RANK_DAYS) -> int:
    """Run both and print. Returns 0 when they decided the same, else 1."""
    day = make_day(seed, 0, SCALE, seconds=rank_days / z.RANKS * z.DAY_S)
    rows = [both(day, way) for way in (*POINTS, UNSURE)]
    if json:
        print(json_.dumps({"seed": seed, "scale": SCALE, "rank_days": rank_days, "points": rows}))
    for row in rows:
        same = "the same" if row["same"] else "NOT THE SAME"
        count = len(row["straight"])
        told = f"{count} convictions" if count else "nobody was convicted either way, which tells little"
        text = f"{row['name']}: {same}, {told}: {row['straight']} straight, {row['stretches']} in stretches"
        print(f"{text} ({row['driven_s']:.0f} of {day.seconds:.0f} s driven)", file=sys.stderr)
    return 0 if all(row["same"] for row in rows) else 1


def both(day: Day, way: Way) -> dict[str, Any]:
    """One operating point, both ways: what was convicted, as (second, nodes)."""
    beats, line = node_day(day), Timeline(day)
    whole, parts = (patrol(day, beats, line, way, straight=straight) for straight in (True, False))
    return {
        "name": way.name,
        "same": _same(whole, parts, way.settings.monitor.tick_interval_s),
        "straight": [(round(v.at, 2), v.nodes) for v in whole.convicted],
        "stretches": [(round(v.at, 2), v.nodes) for v in parts.convicted],
        "driven_s": parts.driven_s,
    }


def _same(whole: Found, parts: Found, tick_s: float) -> bool:
    pairs = list(zip(whole.convicted, parts.convicted, strict=False))
    return len(whole.convicted) == len(parts.convicted) == len(pairs) and all(
        a.nodes == b.nodes and abs(a.at - b.at) <= tick_s for a, b in pairs
    )
