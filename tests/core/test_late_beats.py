"""Beats that were held up and come all at once: they tell nothing of how long steps take or ranks stand still."""

import pytest
from core_world import DRILL, World

from rankpulse.core import events as ev
from rankpulse.core import records as r

NODES = {"node-a": 2, "node-b": 2}


class Path:
    """Holds up what the nodes send, and lets it go at once."""

    def __init__(self, world: World) -> None:
        self.world, self.held, self.step = world, [], world.engine.step
        self.shut = False
        world.engine.step = self.deliver  # type: ignore[method-assign]

    def deliver(self, event: ev.Event) -> None:
        if self.shut and isinstance(event, ev.Seen) and isinstance(event.record, r.Beat):
            self.held.append(event)
        else:
            self.step(event)

    def stall(self, seconds: float) -> None:
        self.shut = True
        self.world.run(seconds)
        self.shut = False
        for event in self.held:
            self.step(event._replace(received_at=self.world.now))
        self.held.clear()


@pytest.fixture
def world() -> World:
    world = World(DRILL)
    world.meets(NODES, 1)
    world.run(30)
    return world


def test_stalls_of_the_path_leave_the_learned_deadline_where_it_was(world: World) -> None:
    [run] = world.engine.folder.fleet.runs.values()
    before, path = run.clocks.deadline_s("train"), Path(world)
    for seconds in (3.0, 6.0, 4.0, 8.0, 5.0):
        path.stall(seconds)
        world.run(3)
    assert run.clocks.deadline_s("train") <= before * 1.1


def test_the_first_of_the_held_beats_is_no_standstill(world: World) -> None:
    [run] = world.engine.folder.fleet.runs.values()
    path = Path(world)
    path.shut = True
    world.run(8)
    path.shut = False
    for event in path.held[:2]:  # one of each node, from when the path was shut
        path.step(event._replace(received_at=world.now))
    assert max(progress.stale_s() for progress in run.current.progress.values()) < 1.0
