"""A participant dies at any file-system call of last words, or a new life begins there: nothing torn, nothing lost."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import ckpt_store
import pytest
from crash_world import Standing
from lastwords_world import World, assert_of_step, halves

from rankpulse.trainer.checkpoint import reader, rotation
from rankpulse.trainer.checkpoint.lastwords import meeting
from rankpulse.trainer.checkpoint.lastwords.words import Answer
from rankpulse.trainer.checkpoint.manifest import LAST_WORDS

BEFORE = 4  # the step of the checkpoint that was there
GONE = 3  # the rank whose death began it all
ALIVE = (0, 1, 2)


class Died(BaseException):
    """Not an exception that anybody on the way takes for trouble of the disk."""


class At(Standing):
    """`then` is called at point number `point`: before and after each call one. Who has died calls nothing more."""

    def __init__(self, point: int = -1, then: Callable[[], None] = lambda: None) -> None:
        self.left, self.then, self.points, self.dead = point, then, 0, False

    def at(self, name: str) -> None:
        if self.dead:
            raise Died
        self.points += 1
        self.left -= 1
        if self.left == -1:
            self.then()

    def die(self) -> None:
        self.dead = True
        raise Died


def life(root: Path, files: At, rank: int) -> World:
    """Four ranks, DP 2 x TP 2, and a checkpoint of an earlier step; `rank` has these files."""
    ckpt_store.save(ckpt_store.Quick(), str(root), BEFORE, "00000004")
    return World(root, halves(4), files={rank: files})


def spoken(world: World, dies: int) -> dict[int, Answer]:
    """What the survivors of the survivors have heard."""
    going = {rank: world.asked(rank, absent=(GONE,)) for rank in ALIVE}
    answers: dict[int, Answer] = {}
    while going.keys() - answers.keys():
        for rank in list(going):
            try:
                if rank not in answers and (answer := going[rank].advance(world.now)) is not None:
                    answers[rank] = answer
            except Died:
                assert rank == dies
                del going[rank]
        world.now += 0.2
    return answers


def judged(world: World, answers: dict[int, Answer]) -> int:
    """The newest checkpoint is whole and of one step, and who said that it was saved was right. Its step."""
    found = world.newest()
    assert found is not None, "older than before"
    path, manifest = found
    if manifest.kind == LAST_WORDS:
        assert manifest.step == 5
        assert_of_step(path, manifest)
    else:
        assert manifest.step == BEFORE
        ckpt_store.assert_of_one_save(path, manifest)
    for answer in answers.values():
        assert not answer.saved or (answer.path, answer.step) == (path, manifest.step), answer
    return manifest.step


def next_life(world: World) -> None:
    """Begins, finds nothing but checkpoints, and saves."""
    files = ckpt_store.Quick()
    meeting.sweep(files, world.directory)
    rotation.sweep(files, world.directory, rotation.probe(files, world.directory, "0123abcd") + 1)
    assert all(name.startswith("step-") for name in os.listdir(world.directory))
    assert reader.attempts(world.directory) == ()
    ckpt_store.save(files, world.directory, 9, "00000009")
    newest = world.newest()
    assert newest is not None
    assert newest[1].step == 9


def points_of(root: Path, rank: int) -> int:
    counting = At()
    world = life(root, counting, rank)
    assert judged(world, spoken(world, -1)) == 5
    return counting.points


@pytest.mark.live
@pytest.mark.parametrize("rank", ALIVE)
def test_killed_before_and_after_every_call(tmp_path: Path, rank: int) -> None:
    steps = []
    for point, root in _roots(tmp_path, points_of(tmp_path / "whole", rank)):
        files = At(point)
        files.then = files.die
        world = life(root, files, rank)
        steps.append(judged(world, spoken(world, rank)))
        assert files.dead, point
        next_life(world)
    assert set(steps) == {BEFORE, 5}, "killed early it is refused, killed late it is saved"


@pytest.mark.live
@pytest.mark.parametrize("rank", ALIVE)
def test_the_next_life_begins_at_any_call_and_the_late_one_changes_nothing_any_more(tmp_path: Path, rank: int) -> None:
    """As if this rank had been stopped there, and went on when the next life was there."""
    steps = []
    for point, root in _roots(tmp_path, points_of(tmp_path / "whole", rank)):
        files = At(point)
        world = life(root, files, rank)
        stood: list[int] = []

        def begins(world: World = world, stood: list[int] = stood) -> None:
            meeting.sweep(ckpt_store.Quick(), world.directory)
            stood.append(judged(world, {}))

        files.then = begins
        answers = spoken(world, -1)
        assert stood == [judged(world, answers)], (point, "a checkpoint came, or went, after the next life had looked")
        steps += stood
        next_life(world)
    assert set(steps) == ({BEFORE, 5} if rank == 0 else {BEFORE}), "rank 0 commits, the others have nothing to do then"


@pytest.mark.live
def test_a_sweep_that_is_killed_at_any_call_hides_no_checkpoint(tmp_path: Path) -> None:
    """The next one finds what was moved, and puts back what is whole."""

    def swept(root: Path, files: At, committed: bool) -> World:
        writer = At()
        world = life(root, writer, 0)
        if committed:
            spoken(world, -1)
            plan = world.ranks[0].who.meeting.plan(1)
            assert plan is not None
        else:
            writer.left, writer.then = points_of(root / "other", 0) - 4, writer.die
            shutil.rmtree(root / "other")
            spoken(world, 0)
        try:
            meeting.sweep(files, world.directory)
        except Died:
            assert files.dead
        return world

    for committed in (True, False):
        counting = At()
        base = tmp_path / str(committed)
        swept(base / "whole", counting, committed)
        for point, root in _roots(base, counting.points):
            files = At(point)
            files.then = files.die
            world = swept(root, files, committed)
            meeting.sweep(ckpt_store.Quick(), world.directory)
            assert judged(world, {}) == (5 if committed else BEFORE)
            next_life(world)


def _roots(base: Path, points: int) -> Iterator[tuple[int, Path]]:
    assert points > 8
    for point in range(points):
        root = base / str(point)
        yield point, root
        shutil.rmtree(root)
