"""A crash, a power cut or a failing disk at every file-system call of a history of saves: nothing saved is lost.

The history is a job's: sweep, make room, save, read back; a save that is given up, two attempts at one step, a
checkpoint that is set aside. `python tests/checkpoint/test_crash_explorer.py` prints how many points were explored.
"""

import errno
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the main below; under pytest conftest has done it

import ckpt_store as store
from crash_world import SPACE, Counting, Failing, Forgetful, Killing, Tree, laid_out, losses, tree_of
from support import fork

from rankpulse.trainer.checkpoint import reader, rotation, writer
from rankpulse.trainer.checkpoint.errors import CheckpointError
from rankpulse.trainer.checkpoint.files import Files

SAVES = ((1, "00000a01"), (2, "00000a02"), (3, "00000a03"), (3, "00000b03"), (4, "00000a04"))
GIVEN_UP = "00000a03"  # the first attempt at step 3: a rank has no space
ASIDE = 4  # this step turns out to be bad, and is saved again
AGAIN = (4, "00000b04")
NEXT = (9, "00000a09")  # the first save after whatever happened
STEP_OF = {save_id: step for step, save_id in (*SAVES, AGAIN, NEXT)}


@dataclass
class Known:
    """What the job knows at an instant: the newest step that must not be lost, and by name what it has read back."""

    floor: int = 0
    verified: frozenset[str] = frozenset()

    def paths(self, directory: str) -> set[str]:
        return {os.path.join(directory, name) for name in self.verified}


Stage = Callable[[Files, str, Known], None]


def opened(files: Files, directory: str, known: Known) -> None:
    with suppress(OSError):
        writer.ensure(files, directory)
        rotation.sweep(files, directory, rotation.probe(files, directory, "0123abcd"))


def saved(step: int, save_id: str) -> Stage:
    """A save. An error of the disk is met as a manager meets it: this save has failed, the job goes on."""

    def stage(files: Files, directory: str, known: Known) -> None:
        try:
            rotation.make_room(files, directory, keep=1, verified=known.paths(directory), needed=0)
            attempt = writer.begin(files, directory, step, save_id)
        except OSError:
            return
        try:
            if save_id == GIVEN_UP:
                writer.write_file(files, os.path.join(attempt, writer.shard_name(0)), [b"half of it"])
                raise OSError(errno.ENOSPC, "another rank has no space")
            store.fill(files, attempt, step, save_id)
            reader.verify(attempt, "fast")
        except (OSError, CheckpointError):
            writer.abandon(files, attempt)
            return
        known.verified |= {os.path.basename(attempt)}
        known.floor = step

    return stage


def put_aside(files: Files, directory: str, known: Known) -> None:
    sound = [found for found in reader.scan(directory).committed if found.path in known.paths(directory)]
    known.floor = max((found.step for found in sound if found.step < ASIDE), default=0)
    for found in sound:
        if found.step >= ASIDE:
            with suppress(OSError):
                rotation.set_aside(files, found.path, "the loss is not a number")


STAGES: tuple[Stage, ...] = (opened, *(saved(*one) for one in SAVES), put_aside, saved(*AGAIN))


def play(files: Files, directory: str, known: Known, stages: Sequence[Stage] = STAGES) -> None:
    for stage in stages:
        stage(files, directory, known)


def survived(directory: str, floor: int) -> None:
    """The newest checkpoint that verifies is of one save and not older than `floor`; the next session can go on."""
    found = store.newest_sound(directory)
    assert (found[1].step if found else 0) >= floor, floor
    if found:
        path, manifest = found
        assert STEP_OF[manifest.save_id] == manifest.step
        assert manifest.save_id != GIVEN_UP
        store.assert_of_one_save(path, manifest)
    known = Known(floor, frozenset({os.path.basename(found[0])} if found else ()))
    play(store.Quick(), directory, known, (opened, saved(*NEXT)))
    newest = store.newest_sound(directory)
    assert newest is not None
    assert newest[1].save_id == NEXT[1]
    store.assert_of_one_save(*newest)


@contextmanager
def fresh(base: str) -> Iterator[str]:
    """The path of a directory of checkpoints that is still to be made, alone in a new one."""
    root = tempfile.mkdtemp(dir=base)
    try:
        yield os.path.join(root, "ckpt")
    finally:
        shutil.rmtree(root)


class Judge:
    """`survived` for every disk that differs from all before it."""

    def __init__(self, base: str) -> None:
        self.base, self.seen = base, set[object]()

    def of_tree(self, tree: Tree, floor: int) -> None:
        state = (floor, frozenset(tree.items()))
        if state not in self.seen:
            self.seen.add(state)
            with fresh(self.base) as directory:
                root = os.path.dirname(directory)
                os.rmdir(root)
                laid_out(tree, root)
                try:
                    survived(directory, floor)
                except (
                    AssertionError,
                    OSError,
                    CheckpointError,
                ) as error:  # the history takes an OSError for the disk's
                    raise AssertionError(f"of step {floor} and {sorted(tree)}: {error!r}") from error

    def of_disk(self, directory: str, floor: int) -> None:
        self.of_tree(tree_of(os.path.dirname(directory)), floor)


@dataclass
class Start:
    """The history undisturbed up to a stage: the disk, what is known, and the calls of the stage with their floors."""

    tree: Tree
    known: Known
    stages: Sequence[Stage]  # from this one on
    floors: list[int]  # at each point: before and after each call
    calls: list[str]

    @contextmanager
    def again(self, base: str) -> Iterator[tuple[str, Known]]:
        """A directory as it was, and a copy of what was known."""
        with fresh(base) as directory:
            os.rmdir(os.path.dirname(directory))
            laid_out(self.tree, os.path.dirname(directory))
            yield directory, replace(self.known)


def starts(base: str) -> list[Start]:
    known, found = Known(), []
    with fresh(base) as directory:
        for number in range(len(STAGES)):
            tree, before = tree_of(os.path.dirname(directory)), replace(known)
            files = Counting(lambda: known.floor)
            play(files, directory, known, STAGES[number : number + 1])
            found.append(Start(tree, before, STAGES[number:], files.seen, files.names[::2]))
        assert store.names(directory) == ["step-00000004-00000b04", "step-00000003-00000b03"]
        survived(directory, 4)
    return found


def killed(base: str) -> tuple[int, int]:
    """SIGKILL at every point, in a process of its own on a real directory. The points, and how many disks differed."""
    judge, points = Judge(base), 0
    for start in starts(base):
        for point, floor in enumerate(start.floors):
            points += 1
            with start.again(base) as (directory, known):
                assert _dies(Killing(point), directory, known, start.stages), point
                judge.of_disk(directory, floor)
    return points, len(judge.seen)


def _dies(files: Files, directory: str, known: Known, stages: Sequence[Stage]) -> bool:
    """Plays on in a child; whether it was killed."""
    child = fork()
    if not child:
        with suppress(BaseException):
            play(files, directory, known, stages)
        os._exit(1)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def powerless(base: str, disk: type[Forgetful] = Forgetful, mixtures: int = 6) -> tuple[int, int]:
    """A power cut after every call, with every fate of what was not forced. The points, and how many disks differed."""
    judge, known, points = Judge(base), Known(), 0

    def cut(disk: Forgetful) -> None:
        nonlocal points
        for loss in losses(points, mixtures):
            points += 1
            judge.of_tree(disk.left(loss), known.floor)

    with fresh(base) as directory:
        play(disk(os.path.dirname(directory), cut), directory, known)
    return points, len(judge.seen)


FAULTS = (
    ("before", errno.ENOSPC), ("before", errno.EIO), ("after", errno.EIO), ("full", errno.ENOSPC),
    ("torn", errno.ENOSPC), ("short", 0),
)  # fmt: skip


def failing(base: str) -> tuple[int, int]:
    """Each call fails in each way, and the job goes on. The runs, and how many disks differed at their ends."""
    judge, runs = Judge(base), 0
    open_before = len(os.listdir("/proc/self/fd"))
    for start in starts(base):
        for (call, name), (how, code) in product(enumerate(start.calls), FAULTS):
            if (how in ("torn", "short") and name != "write") or (how == "full" and name not in SPACE):
                continue
            runs += 1
            with start.again(base) as (directory, known):
                play(Failing(call, how, code), directory, known, start.stages[:2])
                assert len(os.listdir("/proc/self/fd")) == open_before, (how, call, name)
                judge.of_disk(directory, known.floor)
    return runs, len(judge.seen)


@pytest.mark.live
def test_a_process_killed_at_any_call_leaves_the_last_checkpoint_and_no_mixed_one(tmp_path: Path) -> None:
    points, states = killed(str(tmp_path))
    assert points > 400
    assert states > 100


@pytest.mark.live
def test_a_power_cut_after_any_call_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    points, states = powerless(str(tmp_path))
    assert points > 3000
    assert states > 300


@pytest.mark.live
def test_a_disk_that_is_full_or_fails_at_any_call_loses_nothing_that_was_committed(tmp_path: Path) -> None:
    runs, states = failing(str(tmp_path))
    assert runs > 1000
    assert states > 10


class NoFileForced(Forgetful):
    def fsync(self, fd: int) -> None:
        pass


class NoNameForced(Forgetful):
    def sync_dir(self, path: str) -> None:
        pass


@pytest.mark.parametrize("careless", [NoFileForced, NoNameForced])
def test_the_explorer_finds_what_a_careless_writer_loses(tmp_path: Path, careless: type[Forgetful]) -> None:
    with pytest.raises(AssertionError):
        powerless(str(tmp_path), careless, mixtures=0)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as base:
        print("killed before and after each call: {} points, {} different disks".format(*killed(base)))
        print("power cut after each call: {} points, {} different disks".format(*powerless(base)))
        print("a call that fails: {} runs, {} different disks at their ends".format(*failing(base)))
