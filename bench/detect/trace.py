"""One day of trace Z, drawn from a seed: what is paused, frozen, lossy and when. The truth that detectors do not see.

Every disturbance has its own substream, so that changing one changes no other, and days are independent of each other.
"""

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rankpulse.bench.detect import parameters as z

Floats = npt.NDArray[np.float64]


def stream(seed: int, *names: object) -> np.random.Generator:
    """Random numbers of their own for whatever is named."""
    words = [zlib.crc32(repr(name).encode()) for name in names]
    return np.random.Generator(np.random.SFC64(np.random.SeedSequence([seed & 0xFFFFFFFFFFFF, *words])))


def draw(rng: np.random.Generator, size: z.Size, count: int) -> Floats:
    """Lengths in seconds."""
    if isinstance(size, z.Lognormal):
        return np.asarray(size.median_s * np.exp(size.sigma * rng.standard_normal(count)))
    if isinstance(size, z.Uniform):
        return np.asarray(rng.uniform(size.low_s, size.high_s, count))
    return np.asarray(np.minimum(rng.exponential(size.mean_s, count), size.most_s))


@dataclass(frozen=True)
class Spans:
    """Intervals of the day in seconds, in order of their beginning; they may overlap. `of`: the node or rack."""

    start: Floats
    end: Floats
    of: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.start)

    def at(self, which: int) -> "Spans":
        """Those of one node or rack."""
        mine = self.of == which
        return Spans(self.start[mine], self.end[mine], self.of[mine])

    def where(self, mask: npt.NDArray[np.bool_]) -> "Spans":
        return Spans(self.start[mask], self.end[mask], self.of[mask])

    def pairs(self) -> list[tuple[float, float]]:
        return [(float(start), float(end)) for start, end in zip(self.start, self.end, strict=True)]


def spans(start: Floats, length: Floats, of: npt.NDArray[np.int64] | None = None) -> Spans:
    order = np.argsort(start, kind="stable")
    of = np.zeros(len(start), dtype=np.int64) if of is None else of
    return Spans(start[order], (start + length)[order], of[order])


def union(*several: Spans) -> Spans:
    """All of them, with those that touch made one."""
    start, end = np.concatenate([s.start for s in several]), np.concatenate([s.end for s in several])
    order = np.argsort(start, kind="stable")
    found: list[list[float]] = []
    for a, b in zip(start[order], end[order], strict=True):
        if found and a <= found[-1][1]:
            found[-1][1] = max(found[-1][1], float(b))
        else:
            found.append([float(a), float(b)])
    table = np.array(found).reshape(-1, 2)
    return Spans(table[:, 0], table[:, 1], np.zeros(len(table), dtype=np.int64))


@dataclass(frozen=True)
class Day:
    """The truth of one day."""

    seed: int
    number: int
    scale: float
    nodes: int
    seconds: float
    observer: Spans  # the monitor does not run
    store: Spans  # no write is taken: elections, fsync stalls, outages together
    outages: Spans
    regimes: Spans  # every beat gets a delay of its own
    racks: Spans
    fabric: npt.NDArray[np.bool_]  # of the rack pauses: stalls the job too
    freezes: Spans
    bursts: Spans
    checkpoints: Spans
    evaluations: Spans

    def rng(self, *names: object) -> np.random.Generator:
        return stream(self.seed, self.number, *names)

    def stalls_job(self) -> Spans:
        """When no step can end, because some node is frozen or cut off from the fabric."""
        return union(self.freezes, self.racks.where(self.fabric))


def make_day(seed: int, number: int, scale: float = 1.0, *, nodes: int = z.NODES, seconds: float = z.DAY_S) -> Day:
    """The day of this number. `nodes`: a multiple of four."""
    counts = {"sender": 0, "node": nodes, "rack": nodes // z.NODES_PER_RACK, "job": 1}

    def events(name: str, length_s: float | None = None) -> Spans:
        row, rng = z.TRACE_Z[name], stream(seed, number, name)
        population = counts[row.per]
        count = int(rng.poisson(row.rate * scale * population * seconds / z.DAY_S))
        start, of = rng.uniform(0.0, seconds, count), rng.integers(0, population, count)
        size = draw(rng, row.size, count) if length_s is None else np.full(count, length_s)
        return spans(start, size, of)

    racks = events("rack_pause")
    outages = events("outage")
    return Day(
        seed,
        number,
        scale,
        nodes,
        seconds,
        union(events("observer_pause")),
        union(events("election"), events("fsync_stall"), outages),
        outages,
        union(events("jitter_regime", z.REGIME_S)),
        racks,
        stream(seed, number, "fabric").random(len(racks)) < z.FABRIC_SHARE,
        events("freeze"),
        events("nic_burst"),
        _timetable(stream(seed, number, "checkpoint"), z.CHECKPOINT_EVERY_S, 0.0, z.CHECKPOINT, seconds),
        _timetable(
            stream(seed, number, "evaluation"), z.EVALUATION_EVERY_S, z.EVALUATION_AFTER_S, z.EVALUATION, seconds
        ),
    )


def _timetable(rng: np.random.Generator, every_s: float, after_s: float, size: z.Size, seconds: float) -> Spans:
    start = np.arange(after_s or every_s, seconds, every_s)
    return spans(start, draw(rng, size, len(start)))
