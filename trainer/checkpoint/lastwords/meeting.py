"""Where the ranks of one life meet: a folder in the directory of checkpoints, which all nodes share.

The folder is made when all ranks agree, and never again: it is the life's leave to write last words. The next life
removes it before it looks for something to load, and every attempt with it; a participant that was stopped in between
finds nothing to go on with. Names tell most, so that a look is one listing:

    rank-<rank>-<attempt>-<mark>.json   where a rank stands
    plan-<attempt>.json                 what was decided, by whoever was first
    row-<attempt>-<rank>.json           a writer's part is on the disk
    over-<attempt>.json                 why there will be no checkpoint
"""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from rankpulse.trainer.checkpoint import rotation
from rankpulse.trainer.checkpoint.files import Files
from rankpulse.trainer.checkpoint.lastwords.words import Announcement, Plan, Row
from rankpulse.trainer.checkpoint.manifest import MANIFEST
from rankpulse.trainer.checkpoint.reader import attempts, name_of
from rankpulse.trainer.checkpoint.strictjson import Unfit

PREFIX: Final = ".last-words-"
FILE_MAX: Final = 256 << 20  # bytes: a row of a rank with very many boxes
GONE: Final = ".gone"
_FOLDER: Final = re.compile(r"\.last-words-[0-9a-f]{8,32}(?:\.gone)?")
_OURS: Final = re.compile(r"\.?(?:rank|plan|row|over)-[0-9-]+\.json(?:\.[0-9]+\.tmp)?")
_STANDS: Final = re.compile(r"rank-([0-9]{5,7})-([0-9]{3})-([0-9]+)\.json")
_PLAN: Final = re.compile(r"plan-([0-9]{3})\.json")
_ROW: Final = re.compile(r"row-([0-9]{3})-([0-9]{5,7})\.json")
ATTEMPT_MAX: Final = 999
T = TypeVar("T")


@dataclass(frozen=True)
class Seen:
    """What the names say. marks: of an attempt, by rank, how far it has come; plans: attempts that are decided; rows:
    of an attempt, whose rows are there; over: attempts of which it was said that they are given up."""

    marks: Mapping[int, Mapping[int, int]] = field(default_factory=dict)
    plans: tuple[int, ...] = ()
    rows: Mapping[int, frozenset[int]] = field(default_factory=dict)
    over: frozenset[int] = frozenset()


class Meeting:
    """One life's, as one rank uses it. Every method raises OSError."""

    def __init__(self, files: Files, directory: str, life: str, rank: int) -> None:
        self.files, self.directory, self._rank = files, directory, rank
        self.path = os.path.join(directory, PREFIX + life)

    def found(self) -> None:
        """Make the folder; once in a life, by one rank. That files can be linked there is tried now, not when it is
        needed: some network file systems cannot."""
        self.files.mkdir(self.path)
        self.decide(ATTEMPT_MAX, Plan(may=False, top=-1))
        self.files.unlink(os.path.join(self.path, f"plan-{ATTEMPT_MAX:03d}.json"))
        self.files.sync_dir(self.directory)

    def look(self) -> Seen:
        marks: dict[int, dict[int, int]] = {}
        rows: dict[int, set[int]] = {}
        plans, over = set[int](), set[int]()
        for name in os.listdir(self.path):
            if said := _STANDS.fullmatch(name):
                of = marks.setdefault(int(said[2]), {})
                of[int(said[1])] = max(int(said[3]) - 2, of.get(int(said[1]), -2))
            elif said := _PLAN.fullmatch(name):
                plans.add(int(said[1]))
            elif said := _ROW.fullmatch(name):
                rows.setdefault(int(said[1]), set()).add(int(said[2]))
            elif name.startswith("over-"):
                over.add(int(name[5:8]))
        return Seen(marks, tuple(sorted(plans)), {at: frozenset(of) for at, of in rows.items()}, frozenset(over))

    def announce(self, attempt: int, said: Announcement) -> None:
        self._put(_stands(attempt, said.rank, said.mark), said.encoded())

    def announced(self, attempt: int, rank: int, mark: int) -> Announcement | None:
        """None: it is not there, or not to be understood."""
        return self._read(_stands(attempt, rank, mark), Announcement.understood)

    def decide(self, attempt: int, plan: Plan) -> bool:
        """Whether this plan is the one: the first stands."""
        name = f"plan-{attempt:03d}.json"
        temporary = self._written(name, plan.encoded())
        try:
            self.files.link(temporary, os.path.join(self.path, name))
        except FileExistsError:
            return False
        finally:
            with suppress(OSError):
                self.files.unlink(temporary)
        return True

    def plan(self, attempt: int) -> Plan | None:
        return self._read(f"plan-{attempt:03d}.json", Plan.understood)

    def told(self, attempt: int, row: Row) -> None:
        self._put(f"row-{attempt:03d}-{row.rank:05d}.json", row.encoded())

    def row(self, attempt: int, rank: int) -> Row | None:
        return self._read(f"row-{attempt:03d}-{rank:05d}.json", Row.understood)

    def give_up(self, attempt: int, reason: str) -> None:
        """Those who wait for a checkpoint need not wait longer."""
        self._put(f"over-{attempt:03d}.json", Plan(may=False, top=-1, reason=reason).encoded())

    def given_up(self, attempt: int) -> str:
        said = self._read(f"over-{attempt:03d}.json", Plan.understood)
        return said.reason if said is not None else "the reason cannot be read"

    def remove(self) -> None:
        """This life needs no last words any more."""
        _remove(self.files, self.path)

    def _put(self, name: str, data: bytes) -> None:
        self.files.rename(self._written(name, data), os.path.join(self.path, name))

    def _written(self, name: str, data: bytes) -> str:
        """A file that only this process writes. It need not outlive a power cut: nothing of last words does."""
        temporary = os.path.join(self.path, f".{name}.{os.getpid()}{self._rank:07d}.tmp")
        with suppress(FileNotFoundError):
            self.files.unlink(temporary)
        fd = self.files.create(temporary)
        try:
            left = memoryview(data)
            while left:
                left = left[self.files.write(fd, left) :]
        finally:
            self.files.close(fd)
        return temporary

    def _read(self, name: str, understood: Callable[[bytes], T]) -> T | None:
        try:
            with open(os.path.join(self.path, name), "rb") as file:
                return understood(file.read(FILE_MAX))
        except (FileNotFoundError, Unfit):
            return None


def sweep(files: Files, directory: str, own: str = "") -> None:
    """End the leave of all lives but `own`, and remove what they have not finished. Raises nothing.

    What is to end is first moved to where nobody looks for it, in one call each: the folder, so that nothing is decided
    any more, and then the attempts that were decided. Whoever writes there or commits from then on fails; and what was
    committed until then is a checkpoint, and comes back.
    """
    with suppress(OSError):
        for name in sorted(os.listdir(directory)):
            path = os.path.join(directory, name)
            if _FOLDER.fullmatch(name) and name != PREFIX + own and os.path.isdir(path) and not Path(path).is_symlink():
                with suppress(OSError):
                    _ended(files, directory, path)


def _ended(files: Files, directory: str, path: str) -> None:
    gone = path if path.endswith(GONE) else path + GONE
    if gone != path:
        files.rename(path, gone)
    for name in _attempts_of(gone) & {os.path.basename(one) for one in attempts(directory)}:
        files.rename(os.path.join(directory, name), os.path.join(gone, name))
    for name in sorted(os.listdir(gone)):
        if os.path.lexists(os.path.join(gone, name, MANIFEST)):
            files.rename(os.path.join(gone, name), os.path.join(directory, name))
    files.sync_dir(directory)
    for moved in attempts(gone):
        rotation.remove(files, moved)
    _remove(files, gone)


def _attempts_of(folder: str) -> set[str]:
    """The names of the directories that its plans speak of."""
    meeting = Meeting(Files(), "", "", 0)
    meeting.path = folder
    plans = [meeting.plan(number) for number in meeting.look().plans]
    return {name_of(plan.step, plan.save_id) for plan in plans if plan is not None and plan.may}


def _remove(files: Files, folder: str) -> None:
    with suppress(OSError):
        for name in sorted(os.listdir(folder)):
            if _OURS.fullmatch(name):
                with suppress(OSError):
                    files.unlink(os.path.join(folder, name))
        files.rmdir(folder)


def _stands(attempt: int, rank: int, mark: int) -> str:
    return f"rank-{rank:05d}-{attempt:03d}-{mark + 2}.json"
