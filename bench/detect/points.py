"""Our operating points, what the engine is told in each row of the table of layers, and how jobs run together."""

from typing import Final

from rankpulse.bench.detect.drive import Knowledge, Way
from rankpulse.bench.detect.job import Manner
from rankpulse.core import diagnosis as d
from rankpulse.core.settings import preset

FAST: Final = Way("rankpulse fast", preset("fast"), 5.0)
DEFAULT: Final = Way("rankpulse default", preset("default"), 8.0)
POINTS: Final = (FAST, DEFAULT)
ALARMS: Final = (d.NODE_DEAD, d.UNKNOWN)


def _layer(name: str, knowledge: Knowledge) -> Way:
    """Without steps nobody can be sure, so any alarm about a silent node counts."""
    return FAST._replace(name=name, knowledge=knowledge, alarms=ALARMS)


LAYERS: Final = (
    _layer("arrival times alone", Knowledge(observer=False, racks=False, looks=False, progress=False)),
    _layer("+ observer and canary", Knowledge(racks=False, looks=False, progress=False)),
    _layer("+ rack cut", Knowledge(looks=False, progress=False)),
    _layer("+ direct looks", Knowledge(progress=False)),
    FAST._replace(name="+ progress alibi"),
)


def _manners() -> tuple[Way, ...]:
    found = []
    for point in POINTS:
        found += [point._replace(name=f"{point.name}, run-ahead {n}", manner=Manner(ahead=n)) for n in range(4)]
        apart = Manner(meet_every=50)
        found.append(point._replace(name=f"{point.name}, local SGD, together every 50 steps", manner=apart))
    return tuple(found)


MANNERS: Final = _manners()
