"""Whether survivors hold the whole state: against counting every element, over random layouts and failures."""

import random

from surviving_world import elements, layout

from rankpulse.trainer.checkpoint.division import Item
from rankpulse.trainer.checkpoint.manifest import Box
from rankpulse.trainer.checkpoint.surviving import decided


def test_as_counting_every_element_says() -> None:
    chance = random.Random(10)
    said = {True: 0, False: 0}
    for _ in range(1500):
        held = layout(chance)
        gone = chance.randint(0, min(len(held), 6))
        alive = set(range(len(held))) - set(chance.sample(range(len(held)), gone))
        whole = set().union(*(elements(item) for mine in held for item in mine))
        left = set().union(*(elements(item) for rank in alive for item in held[rank]))
        found = decided(held, alive)
        assert found.may == (left == whole), found
        assert (found.reason == "") == found.may
        assert found.absent == tuple(sorted(set(range(len(held))) - alive))
        said[found.may] += 1
    assert min(said.values()) > 300


def test_one_tp_group_per_stage_is_enough() -> None:
    """DP 2 x TP 2: rank 0 and 1 are one replica, 2 and 3 the other; one of each half is enough, in any replica."""
    halves = [Item("w", "F32", (4,), Box("w", (2 * t,), (2,))) for t in (0, 1)]
    held = [[halves[0]], [halves[1]], [halves[0]], [halves[1]]]
    assert decided(held, {0, 3}).may
    refused = decided(held, {0, 2})
    assert not refused.may
    assert refused.reason == "nobody who is left holds all of w (rank 1)"


def test_nobody_writes_from_the_middle_of_an_update() -> None:
    item = [Item("w", "F32", (4,))]
    refused = decided([item, item], {0, 1}, updating={1})
    assert not refused.may
    assert "rank 1 was in the middle of an update" in refused.reason
    assert decided([item, item], {0}, updating={1}).may, "of one that is gone nothing is taken"
