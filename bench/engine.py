"""What folding beats and judging cost the engine, at 100, 1,000 and 10,000 nodes of one job.

`rankpulse bench engine [--quick] [--json]`. All fleets are taken in turns on one core, so that a busy machine slows all
of them alike and the ratios stay. A beat is a record fresh from the decoder, whose cost is told beside it. Half of the
beats show new steps, the other half tells nothing new, as a job does whose steps take longer than a beat.
"""

import json as json_
import os
import platform
import statistics
import sys
import time
from typing import Any, Final

from rankpulse.core import codec
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.engine import Engine
from rankpulse.core.keys import Keys
from rankpulse.core.settings import Settings

FLEETS: Final = ((100, 8), (1_000, 8), (10_000, 8), (100, 1), (1_000, 1), (10_000, 1))  # nodes, ranks on each
BATCH: Final = 500  # beats per sample
LOT: Final = 10  # of them are decoded and then folded, in turns: a monitor folds each as soon as it is decoded
BLOCK: Final = 10  # batches of one fleet in a row
TURNS, QUICK_TURNS = 160, 40
TICKS_PER_S: Final = 4
UTC: Final = 1_800_000_000.0
BEGIN: Final = 1000
WARM_S: Final = 22  # by then everybody is known, deadlines are learned and the roster is written
KEYS: Final = Keys("bench")


def run(json: bool = False, quick: bool = False) -> int:
    """Measure and print, as one JSON line or as tables. Returns 0.

    Per fleet: `beats_per_s` and `us_per_beat` (median of samples), `best_per_s` and `best_us` (the sample that other
    processes disturbed least), `ratio` (of the medians, over the smallest fleet with as many ranks per node),
    `decode_us` per beat, and of ticks `typical_ms` and `worst_ms` while all is quiet (with beats arriving), while every
    node is late, and while all come back.
    """
    report = {
        "fleets": measured(FLEETS, QUICK_TURNS if quick else TURNS),
        "quick": quick,
        "cpus": os.cpu_count(),
        "load": [round(load, 1) for load in os.getloadavg()],
        "machine": platform.machine(),
        "python": sys.version.split()[0],
    }
    if json:
        print(json_.dumps(report))
    else:
        from rankpulse.bench.engine_tables import show

        show(report)
    return 0


def measured(fleets: tuple[tuple[int, int], ...], turns: int) -> list[dict[str, Any]]:
    """One row per fleet, see `run`."""
    lots = [Lot(nodes, ranks) for nodes, ranks in fleets]
    for _ in range(turns // BLOCK):
        for lot in lots:
            lot.turn()
            lot.beats.pop()  # the others' memory was in the processor's caches: a monitor has them for itself
            for _ in range(BLOCK):
                lot.turn()
    for lot in lots:
        lot.outage()
    least = {lot.ranks: statistics.median(lot.beats) for lot in reversed(lots)}
    return [lot.row(least[lot.ranks]) for lot in lots]


class Lot:
    """A fleet in one job on a virtual clock, and the engine that watches it. All figures in seconds of one core."""

    def __init__(self, nodes: int, ranks: int) -> None:
        self.nodes, self.ranks = nodes, ranks
        self.now, self._revision, self._next = float(BEGIN), 1, 0
        self.beats: list[float] = []  # per beat, one for each batch
        self._ticks: dict[str, list[float]] = {"quiet": [], "late": [], "back": []}
        self._runs = (r.RunRow("bench", "meeting", "1.1", nodes * ranks, True),)
        self.engine = Engine(Settings(), KEYS)
        for event in (ev.Relisted(1, self.now), ev.SightBack(self.now), ev.TookOffice(1, self.now)):
            self.engine.step(event)
        for _ in range(WARM_S):
            self._beat(range(nodes), 1.0)
            self._tick()

    def turn(self) -> None:
        """A batch of beats, and the ticks that fall into their time."""
        first, until = self._next, min(self._next + BATCH, self.nodes)
        ticks = until * TICKS_PER_S // self.nodes - first * TICKS_PER_S // self.nodes
        self.beats.append(self._beat(range(first, until), (until - first) / self.nodes))
        self._next = until % self.nodes
        for _ in range(ticks):
            self._ticks["quiet"].append(self._tick())

    def outage(self) -> None:
        """Every node falls silent for ten seconds, and all are heard again within one."""
        for _ in range(10 * TICKS_PER_S):
            self.now += 1 / TICKS_PER_S
            self._ticks["late"].append(self._tick())
        for part in range(TICKS_PER_S):
            self._beat(range(part, self.nodes, TICKS_PER_S), 1 / TICKS_PER_S)
            self._ticks["back"].append(self._tick())

    def tell(self, key: str, record: r.Record) -> None:
        """A record that somebody else writes."""
        self._revision += 1
        self.engine.step(ev.Seen(key, record, self._revision, self.now))

    def snapshot(self) -> dict[str, Any]:
        """What the engine believes."""
        return self.engine.snapshot(self.now)

    def row(self, least: float) -> dict[str, Any]:
        typical = statistics.median(self.beats)
        return {
            "nodes": self.nodes,
            "ranks": self.ranks,
            "beats_per_s": round(1 / typical),
            "us_per_beat": round(typical * 1e6, 2),
            "best_per_s": round(1 / min(self.beats)),
            "best_us": round(min(self.beats) * 1e6, 2),
            "ratio": round(typical / least, 2),
            "decode_us": round(self._decoding() * 1e6, 2),
            "ticks": {
                name: {
                    "typical_ms": round(statistics.median(taken) * 1e3, 3),
                    "worst_ms": round(max(taken) * 1e3, 3),
                }
                for name, taken in self._ticks.items()
                if taken
            },
        }

    def _made(self, node: int) -> r.Beat:
        """The next beat of a node: even ones show steps in even seconds, odd ones in odd seconds."""
        second = round(self.now * 1000) // 1000
        step = 100 + 3 * ((second + node % 2) // 2)
        ranks = tuple(
            r.RankRow(0, node * self.ranks + local, local, 4000 + local, 77_000 + node, "S", 0, step, 1)
            for local in range(self.ranks)
        )
        return r.Beat(
            node=f"n{node}", inc=1, seq=second, at=UTC + self.now, runs=self._runs, phases=("train",), ranks=ranks
        )

    def _beat(self, nodes: range, lasting_s: float) -> float:
        """Fold one beat of each; the clock moves on. Returns what one took."""
        began, taken = self.now, 0.0
        for first in range(0, len(nodes), LOT):
            lot = nodes[first : first + LOT]
            events = [self._told(node, began + lasting_s * (first + n) / len(nodes)) for n, node in enumerate(lot)]
            step, start = self.engine.step, time.process_time()
            for event in events:
                step(event)
            taken += time.process_time() - start
        self.now = began + lasting_s
        return taken / len(nodes)

    def _told(self, node: int, at: float) -> ev.Seen:
        """Its next beat, fresh from the decoder: no value in it is one that is known already."""
        self._revision += 1
        return ev.Seen(KEYS.beat(f"n{node}"), codec.decode(r.Beat, codec.encode(self._made(node))), self._revision, at)

    def _tick(self) -> float:
        self.engine.step(ev.CanarySeen(self.now))
        start = time.process_time()
        actions = self.engine.tick(self.now, UTC + self.now)
        taken = time.process_time() - start
        for action in actions:
            if isinstance(action, ev.Write | ev.Create):
                self._revision += 1
                self.engine.step(ev.Seen(action.key, action.record, self._revision, self.now))
        return taken

    def _decoding(self) -> float:
        """From the bytes of a beat to the record, per beat."""
        made = [(KEYS.beat(f"n{node}"), codec.encode(self._made(node))) for node in range(min(self.nodes, BATCH))]
        taken = []
        for _ in range(5):
            start = time.process_time()
            for key, data in made:
                parsed = KEYS.parse(key)
                assert parsed is not None
                codec.decode_at(parsed, data)
            taken.append((time.process_time() - start) / len(made))
        return statistics.median(taken)
