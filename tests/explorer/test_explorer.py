"""A monitor is hit at any store write or webhook call of the action path: still one restart, and told once.

`make test` explores some points of each story, the drill every one.
"""

import pytest
from explorer_world import Came, Play, explore
from points import WAYS
from stories import STORIES as OF_FAULTS
from stories import Story
from words import STORIES as OF_WORDS

STORIES = (*OF_FAULTS, *OF_WORDS)
SAMPLED = 15  # as many plays as take a minute and a half
SENT_MAX = 2  # a target that knows ids has no more to forgive


def explored(story: Story, *, every: int, first: int = 0) -> list[Came]:
    """Everything that came of a story, alone and with a standby."""
    found = [came for standby in (False, True) for came in explore(story, standby=standby, every=every, first=first)]
    wrong = [str(came) for came in found if came.wrong]
    assert not wrong, f"{len(wrong)} of {len(found)} plays of {story.name}:\n" + "\n".join(wrong[:20])
    assert max(came.sent for came in found) <= SENT_MAX, max(found, key=lambda came: came.sent)
    return found


@pytest.mark.parametrize("number", range(len(STORIES)), ids=[story.name for story in STORIES])
def test_some_points_of_each_story(number: int) -> None:
    assert len(explored(STORIES[number], every=SAMPLED, first=number)) > 10


@pytest.mark.drill
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("story", STORIES, ids=[story.name for story in STORIES])
def test_every_point(story: Story) -> None:
    found = explored(story, every=1)
    assert {came.way for came in found} == {*WAYS, ""}
    print(f"{story.name}: {len(found)} plays, {sum(bool(came.way) for came in found)} points")


@pytest.mark.parametrize("standby", [False, True])
def test_the_same_play_twice_is_the_same(*, standby: bool) -> None:
    first, second = (Play(STORIES[0], standby=standby).run() for _ in range(2))
    assert first.points.calls == second.points.calls
    assert first.fleet.memory._log == second.fleet.memory._log


def test_what_goes_wrong_is_found() -> None:
    """The check itself is not blind: a second order would be seen."""
    play = Play(STORIES[0], standby=False).run()
    assert play.came == []
    [order] = play.fleet.ordered("restart")
    play.fleet.put(play.fleet.keys.order("job-1", 2, "restart"), order)
    assert any("restart orders" in text for text in play.wrong())
