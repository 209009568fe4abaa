"""How long until a death is told: nodes and racks that die at random moments of the trace, with all its weather.

Each death has a stretch of its own: a lead-in, the death, and as long as it takes, up to a limit. Those that fall into
an outage, an election, an evaluation or a checkpoint are not spared.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from rankpulse.bench.detect import parameters as z
from rankpulse.bench.detect.drive import Drive, Way
from rankpulse.bench.detect.job import Death, Job, Timeline
from rankpulse.bench.detect.past import Past
from rankpulse.bench.detect.patrol import lead_in
from rankpulse.bench.detect.senders import Beats
from rankpulse.bench.detect.trace import Day
from rankpulse.core import records as r

LIMIT_S: Final = 240.0  # then a death counts as never told


@dataclass
class Told:
    """What came of the deaths of a day. Infinity: not told within the limit."""

    nodes_s: list[float] = field(default_factory=list)
    racks_s: list[float] = field(default_factory=list)  # until every node of the rack was named
    rack_decisions: list[int] = field(default_factory=list)  # incidents it took
    innocents: int = 0  # living nodes that were named with the dead
    before: int = 0  # something else was convicted first: no detection time
    phases: dict[str, list[float]] = field(default_factory=dict)  # of nodes, by the phase in which they died


def victims(day: Day, count: int, *, racks: bool) -> list[Death]:
    """So many deaths, at random times of the day, each in a day of its own kind."""
    rng = day.rng("deaths", racks)
    of = rng.integers(0, day.nodes // z.NODES_PER_RACK if racks else day.nodes, count)
    at = rng.uniform(min(120.0, day.seconds / 4), max(day.seconds - LIMIT_S, day.seconds / 2), count)
    nodes = [range(n * z.NODES_PER_RACK, (n + 1) * z.NODES_PER_RACK) if racks else (n,) for n in of.tolist()]
    return [Death(frozenset(who), float(when)) for who, when in zip(nodes, at.tolist(), strict=True)]


def die(
    day: Day,
    beats: list[Beats],
    line: Timeline,
    way: Way,
    deaths: list[Death],
    learned: dict[str, r.Record] | None = None,
) -> Told:
    """`learned`: what earlier stretches have left in the store."""
    told, past = Told(), Past(day, beats)
    for death in deaths:
        drive = Drive(day, beats, Job(line, way.manner, death), way, dict(learned or {}), past)
        found, decisions, foreign, innocent = _one(drive, death)
        told.innocents += innocent
        if foreign:
            told.before += 1
        elif len(death.nodes) > 1:
            told.racks_s.append(found)
            told.rack_decisions.append(decisions)
        else:
            told.nodes_s.append(found)
            told.phases.setdefault(line.phase(death.at), []).append(found)
    return told


class _Outcome(NamedTuple):
    seconds: float  # until all of the dead were named
    decisions: int  # incidents it took
    foreign: bool  # somebody else was named before
    innocents: int  # named with them


def _one(drive: Drive, death: Death) -> _Outcome:
    named: set[int] = set()
    incidents: set[str] = set()
    begin = lead_in(drive.day, death.at)
    for verdict in drive.stretch(begin, death.at + LIMIT_S):
        if verdict.klass not in drive.way.alarms or not verdict.nodes:
            continue
        if verdict.at < death.at or not death.nodes & set(verdict.nodes):
            return _Outcome(np.inf, 0, True, 0)
        named |= set(verdict.nodes)
        incidents.add(verdict.incident)
        if death.nodes <= named:
            return _Outcome(verdict.at - death.at, len(incidents), False, len(named - death.nodes))
    return _Outcome(np.inf, len(incidents), False, len(named - death.nodes))
