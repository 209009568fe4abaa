"""What is decided from what ranks say: against counting every element, over random layouts, steps and failures."""

import itertools
import random

from lastwords_world import layouts_of
from surviving_world import elements, layout

from rankpulse.trainer.checkpoint.lastwords.judging import Known, heirs, judged
from rankpulse.trainer.checkpoint.lastwords.layouts import Layouts
from rankpulse.trainer.checkpoint.lastwords.words import Announcement, Plan


def said(layouts: Layouts, rank: int, step: int, clean: bool = True, unable: str = "") -> Announcement:
    return Announcement(rank, step, clean and not unable, unable, layouts.marks[rank], {}, "", "", "")


def test_as_counting_every_element_of_every_step_says() -> None:
    chance = random.Random(7)
    outcomes = {True: 0, False: 0}
    for _ in range(400):
        held = layout(chance)
        layouts = layouts_of(held)
        whole = set().union(*(elements(item) for mine in held for item in mine))
        there = chance.sample(range(len(held)), chance.randint(1, len(held)))
        steps = {rank: chance.choice((7, 7, 7, 8)) for rank in there}
        unable = {rank for rank in there if chance.random() < 0.1}
        found = judged(
            layouts,
            Known({rank: said(layouts, rank, steps[rank], unable="x" if rank in unable else "") for rank in there},
                  settled=True, over=True),
        )  # fmt: skip
        assert found is not None
        able = [rank for rank in there if rank not in unable]
        covers = [
            step
            for step in (8, 7)
            if whole == set().union(*(elements(item) for rank in able if steps[rank] == step for item in held[rank]))
        ]
        assert found.may == bool(covers), found
        assert found.top == max(steps.values())
        if covers:
            assert found.step == covers[0]
            assert found.writers == tuple(sorted(rank for rank in able if steps[rank] == found.step))
            assert found.absent == tuple(sorted(set(range(len(held))) - set(found.writers)))
        else:
            assert found.reason
        outcomes[found.may] += 1
    assert min(outcomes.values()) > 50


def test_when_it_is_decided() -> None:
    """Three replicas: who is there (clean, on the way, not), whether somebody is known to be gone, how late it is."""
    item = layout(random.Random(3))[0][:1]
    layouts = layouts_of([item] * 3)
    for states, gone, settled, over in itertools.product(
        itertools.product("cm-", repeat=2), ((), (2,)), (False, True), (False, True)
    ):
        known = {rank: said(layouts, rank, 7, clean=state == "c") for rank, state in enumerate(states) if state != "-"}
        if not known:
            continue
        found = judged(layouts, Known(known, gone, (), settled, over))
        everybody, moving = bool(gone) and "-" not in states, "m" in states
        if moving:
            assert (found is None) == (not over)
            assert found is None or "in the middle of an update" in found.reason
        elif everybody or settled or over:
            assert found == Plan(True, 7, step=7, writers=tuple(known), absent=tuple(sorted({0, 1, 2} - known.keys())))
        else:
            assert found is None


def test_the_random_numbers_of_an_absent_rank_are_those_of_one_that_had_the_same() -> None:
    item = layout(random.Random(3))[0][:1]
    layouts = Layouts(
        "0" * 8, *(getattr(layouts_of([item] * 4), name) for name in ("marks", "texts")), ("a", "b", "b", "c")
    )
    plan = Plan(True, 7, step=7, writers=(0, 2), absent=(1, 3))
    assert heirs(layouts, plan) == {1: (2, True), 3: (0, False)}
