"""A recorded trace through every detector. Short and of one machine: it shows that real beats do what is expected.

Our engine gets the recorded beats, echoes and ticks at the moments at which the watcher had them. Direct looks were not
recorded, so it does without: a node that is silent while its job stands still is convicted all the same.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from rankpulse.bench.detect import counting, nvrx
from rankpulse.bench.detect.baselines import BASELINES
from rankpulse.bench.detect.drive import CLOCK_S, CLUSTER, UTC_S
from rankpulse.bench.detect.job import TRAIN, Place
from rankpulse.bench.detect.points import POINTS
from rankpulse.bench.detect.record import Head, Row, read
from rankpulse.bench.detect.senders import Beats
from rankpulse.bench.detect.told import Teller, node_name, node_number
from rankpulse.core import diagnosis as d
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.engine import Engine
from rankpulse.core.settings import Settings

SAMPLE: Final = Path(__file__).with_name("recorded.jsonl.gz")


def replay(path: Path) -> list[dict[str, Any]]:
    """One row per detector: how long until the dead were suspected, and the mistakes made about the living."""
    head, rows = read(path)
    beats = _beats(head, rows)
    found = [_ours(point.name, point.settings, head, rows) for point in POINTS]
    for one in BASELINES:
        deadlines = [one.deadlines(mine) for mine in beats]
        starts, wrong_s, waited = [], 0.0, []
        for node, (mine, deadline) in enumerate(zip(beats, deadlines, strict=True)):
            wrong = counting.mistakes(mine, deadline)
            starts += wrong.start.tolist()
            wrong_s += float(wrong.length.sum())
            if node in head.dead:
                waited.append(max(float(deadline[-1]) - head.dead_at, 0.0))
        found.append(_row(one.name, waited, len(starts), wrong_s, counting.restarts(starts, 0.0)))
    return [*found, _nvrx(head, beats)]


def _row(name: str, waited: list[float], mistakes: int, wrong_s: float, alarms: int) -> dict[str, Any]:
    return {
        "name": name,
        "detection_s": round(max(waited), 2) if waited else None,
        "mistakes": mistakes,
        "mistaken_s": round(wrong_s, 1),
        "alarms": alarms,
    }


def _beats(head: Head, rows: list[Row]) -> list[Beats]:
    """By node. Numbers are places in the schedule, as the detectors want them: agents leave out what they missed."""
    found = []
    for node in range(head.nodes):
        mine = np.array([(row[4], row[1]) for row in rows if row[0] == "h" and row[2] == node])
        number = np.round((mine[:, 0] - mine[0, 0]) / head.interval_s)
        found.append(Beats(number, mine[:, 0], np.maximum.accumulate(mine[:, 1]), 0.0))
    return found


def _nvrx(head: Head, beats: list[Beats]) -> dict[str, Any]:
    """Its timeout stays at the hour it begins with: nothing so short has a checkpoint."""
    seen = nvrx.LongestSeen(head.seconds)
    for mine in beats:
        seen.add(mine)
    waited = [seen.suspected_at(float(beats[node].arrived[-1]), seen.timeouts()) - head.dead_at for node in head.dead]
    return _row(nvrx.NAME, waited, len(seen.mistakes()), 0.0, len(seen.mistakes()))


def _ours(name: str, settings: Settings, head: Head, rows: list[Row]) -> dict[str, Any]:
    wrong, named, told = set[tuple[str, str]](), set[int](), None
    for at, incident in _incidents(settings, head, rows):
        if incident.klass not in (d.NODE_DEAD, d.UNKNOWN) or incident.state != "open":
            continue
        nodes = {node_number(node) for node in incident.nodes}
        right = nodes & set(head.dead) if at >= head.dead_at else set[int]()
        named |= right
        wrong |= {(incident.id, node_name(node)) for node in nodes - right}
        if named >= set(head.dead) and told is None:
            told = at - head.dead_at
    return _row(name, [told] if told is not None else [], len(wrong), 0.0, len({id_ for id_, _ in wrong}))


def _incidents(settings: Settings, head: Head, rows: list[Row]) -> Iterator[tuple[float, r.Incident]]:
    """What the engine writes about incidents, and when."""
    engine, revision = Engine(settings, CLUSTER), 1000
    where: dict[int, int] = {}
    teller = Teller(head.nodes, lambda node, _: Place(where[node], TRAIN))
    for event in (ev.SightBack(CLOCK_S), ev.Relisted(revision, CLOCK_S), ev.TookOffice(1, CLOCK_S)):
        engine.step(event)
    for node in range(head.nodes):
        state = teller.state(node, racks=True, looks=False)
        engine.step(ev.Seen(CLUSTER.state(state.node), state, revision, CLOCK_S))
    for row in rows:
        kind, at = row[0], row[1]
        now, revision = CLOCK_S + at, revision + 1
        if kind == "h":
            where[row[2]] = row[5]
            beat = teller.beat(row[2], row[4], row[3])
            engine.step(ev.Seen(CLUSTER.beat(beat.node), beat, revision, now))
        elif kind == "c":
            engine.step(ev.CanarySeen(now))
        elif kind == "l":
            engine.step(ev.SightLost("the watch was lost", now))
        elif kind == "b":
            engine.step(ev.SightBack(now))
        else:
            for action in engine.tick(now, UTC_S + at):
                if isinstance(action, ev.Write | ev.Create):
                    engine.step(ev.Seen(action.key, action.record, revision, now))
                    if isinstance(action.record, r.Incident):
                        yield at, action.record


def table(rows: list[dict[str, Any]]) -> str:
    """As Markdown."""
    lines = ["| detector | the dead rack told after, s | mistakes | alarms |", "|---|---|---|---|"]
    for row in rows:
        told = "-" if row["detection_s"] is None else f"{row['detection_s']:.2f}"
        lines.append(f"| {row['name']} | {told} | {row['mistakes']} | {row['alarms']} |")
    return "\n".join(lines)
