"""Days that were measured already, on disk: a run that is started again goes on, but only with the same detector."""

import hashlib
from collections.abc import Iterable
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from rankpulse.bench.detect.plan import Plan
from rankpulse.bench.detect.shift import Shift
from rankpulse.core.records import FleetLearned

ROOMS: Final = ("rankpulse.core", "rankpulse.bench.detect")
SHOWN: Final = frozenset(f"{name}.py" for name in ("page", "plot", "prose", "screen", "tables"))  # figures as they are
DAY: Final = "day-{:05d}.json"
T = TypeVar("T")


class BadPlace(Exception):
    """Nothing can be kept there, or what lies there was measured otherwise. The message says what to do."""


class Kind(msgspec.Struct, frozen=True):
    """What days must have in common to be added up."""

    plan: Plan  # without its numbers of days
    code: str


def code(rooms: Iterable[str] = ROOMS) -> str:
    """A fingerprint of the detector and of a benchmark: results of other code are results of something else."""
    found = hashlib.sha256()
    for room in rooms:
        for name, text in sorted(_sources(resources.files(room), "")):
            if name not in SHOWN:
                found.update(f"{room}/{name}\0{len(text)}\0".encode() + text)
    return found.hexdigest()[:12]


def _sources(folder: Traversable, above: str) -> list[tuple[str, bytes]]:
    found: list[tuple[str, bytes]] = []
    for one in folder.iterdir():
        if one.is_dir():
            found += _sources(one, f"{above}{one.name}/")
        elif one.name.endswith(".py"):
            found.append((above + one.name, one.read_bytes()))
    return found


class Keeper:
    """The directory of a run."""

    def __init__(self, place: Path, plan: Plan) -> None:
        """Raises `BadPlace`."""
        self._place, self._plan = place, plan
        kind, said = Kind(msgspec.structs.replace(plan, days=0, more_days=0), code()), place / "plan.json"
        try:
            place.mkdir(parents=True, exist_ok=True)
            if said.exists() and _read(said, Kind) != kind:
                raise BadPlace(f"{place} holds days of another plan or of other code: choose another directory")
            said.write_bytes(msgspec.json.format(msgspec.json.encode(kind)))
        except OSError as error:
            raise BadPlace(f"--out {place}: {error.strerror}: choose a directory that can be written") from None

    def days(self) -> dict[int, Shift]:
        """What an earlier run has left; the number of days may have grown. What cannot be read is measured again."""
        found = {}
        for number in range(self._plan.all_days):
            shift = _read(self._place / DAY.format(number), Shift)
            if shift is not None and shift.whole == (number < self._plan.days):
                found[number] = shift
        return found

    def keep(self, shift: Shift) -> None:
        self._write(DAY.format(shift.day), shift)

    def experience(self) -> FleetLearned | None:
        return _read(self._place / "experience.json", FleetLearned)

    def keep_experience(self, record: FleetLearned) -> None:
        self._write("experience.json", record)

    def _write(self, name: str, value: Shift | FleetLearned) -> None:
        path = self._place / name
        path.with_suffix(".tmp").write_bytes(msgspec.json.encode(value))
        path.with_suffix(".tmp").replace(path)


def _read(path: Path, kind: type[T]) -> T | None:
    """None: not there, or damaged."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
        return None
