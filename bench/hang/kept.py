"""Work that was done already, on disk: a run that is started again goes on, but only with the same code."""

from pathlib import Path
from typing import Final

import msgspec

from rankpulse.bench.detect.keeping import BadPlace, code
from rankpulse.bench.hang.plan import Result, Work

ROOMS: Final = ("rankpulse.core", "rankpulse.bench.hang")


class Kept:
    """The directory of a run; without one nothing is kept."""

    def __init__(self, place: Path | None) -> None:
        """Raises `BadPlace`."""
        self._place = place
        if place is None:
            return
        said = place / "code"
        try:
            place.mkdir(parents=True, exist_ok=True)
            if said.exists() and said.read_text() != code(ROOMS):
                raise BadPlace(f"{place} holds results of other code: choose another directory")
            said.write_text(code(ROOMS))
        except OSError as error:
            raise BadPlace(f"--out {place}: {error.strerror}: choose a directory that can be written") from None

    def found(self, task: Work) -> list[Result] | None:
        """None: not there, or damaged."""
        try:
            path = self._path(task)
            return msgspec.json.decode(path.read_bytes(), type=list[Result]) if path is not None else None
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def keep(self, task: Work, results: list[Result]) -> None:
        path = self._path(task)
        if path is not None:
            path.with_suffix(".tmp").write_bytes(msgspec.json.encode(results))
            path.with_suffix(".tmp").replace(path)

    def _path(self, task: Work) -> Path | None:
        name = f"{task.seed}-{task.field}-{task.kind}-{task.first}-{task.trials}.json"
        return self._place / name if self._place is not None else None
