"""A node dies before or after any call of a local save, of copies at peers, of bringing: what loads is always whole,
and never older than the last that was committed on the places that are left."""

import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")

from ckpt_store import Quick
from tier_world import NODES, Mortal, resumed, saved

LOSSES: dict[str, tuple[str, ...]] = {
    "nothing": (), "a disk": ("disk-0",), "the other disk": ("disk-1",), "the shared directory": ("shared",),
    "all disks": ("disk-0", "disk-1"),
}  # fmt: skip


def floor(done: set[tuple[str, int]], lost: tuple[str, ...]) -> int:
    """The step that must be found at least: 2 where all of it had come to rest on what is left."""
    whole = {what for what, node in done if (what, 1 - node) in done}
    disks = sum(name.startswith("disk") for name in lost)
    on_disks = ("saved" in whole and disks == 0) or ("copied" in whole and disks <= 1)
    in_shared = ("brought", 0) in done and "shared" not in lost
    return 2 if on_disks or in_shared else 1


@pytest.mark.parametrize("node", NODES)
def test_a_node_that_dies_at_any_call_leaves_what_was_committed_on_the_rest(tmp_path: Path, node: int) -> None:
    """The save before stands everywhere. Each loss is tried after each point."""
    before = tmp_path / "before"
    life = saved(before, 1, [Quick(), Quick()], set())
    assert life.came.keys() == set(NODES), life.ended
    counted = [Mortal(), Mortal()]
    shutil.copytree(before, tmp_path / "count")
    saved(tmp_path / "count", 2, counted, set())
    points, seen = counted[node].points, set()
    assert points > 40
    for point in range(0, points + 1):
        done: set[tuple[str, int]] = set()
        place = tmp_path / "now"
        shutil.copytree(before, place)
        disks = [Mortal(point if at == node else -1) for at in NODES]
        saved(place, 2, disks, done)
        for name, lost in LOSSES.items():
            left = tmp_path / "left"
            shutil.copytree(place, left)
            for gone in lost:
                shutil.rmtree(left / gone)
            step = resumed(left)
            assert step is not None
            assert floor(done, lost) <= step <= 2, (point, name, done)
            seen.add((name, step))
            shutil.rmtree(left)
        shutil.rmtree(place)
    assert {step for _, step in seen} == {1, 2}
    assert len(seen) == 2 * len(LOSSES), "every loss was tried on both sides of the commit"


def test_after_such_a_death_the_next_life_saves_on(tmp_path: Path) -> None:
    for point in (5, 20, 35):
        place = tmp_path / f"{point}"
        saved(place, 1, [Quick(), Quick()], set())
        saved(place, 2, [Mortal(point), Mortal()], set())
        assert resumed(place) in (1, 2)
        done: set[tuple[str, int]] = set()
        life = saved(place, 3, [Quick(), Quick()], done)
        assert life.came.keys() == set(NODES), life.ended
        shutil.rmtree(place / "disk-1")
        shutil.rmtree(place / "shared")
        assert resumed(place) == 3
