"""A job stands, and the beats of one node come and go: one standstill, asked about once, told of, not kept for ever."""

import pytest
from evidence_world import EvidenceWorld, elsewhere, locked, trained

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.assessing import ABANDONED_S, Assessor
from rankpulse.core.standstill import Stand


def flickers(world: EvidenceWorld, seconds: float, seen_s: float = 2.0, unseen_s: float = 4.0) -> None:
    for _ in range(round(seconds / (seen_s + unseen_s))):
        world.silent.discard("node-b")
        world.run(seen_s)
        world.silent.add("node-b")
        world.run(unseen_s)
    world.silent.discard("node-b")


def test_a_hang_of_a_large_job_is_told_of_although_the_verdict_comes_while_it_is_not_seen() -> None:
    world = trained(armed=False)
    world.engine.folder.diagnoses.at_once_max, world.thinks_s = 3, 4.0
    world.does, world.training = {2: locked(2)}, False
    flickers(world, 60.0)
    [incident] = world.incidents()
    assert (incident.klass, [m.rank for m in incident.culprits]) == ("collective_hang", [2])
    assert len(world.questions) == 2, "each node is asked once"


def test_agents_are_not_asked_anew_each_time_that_the_beats_are_back() -> None:
    world = trained(armed=False)
    world.does, world.training = {2: elsewhere(2, "train.py:77 sort", cpu_moving=True)}, False
    flickers(world, 120.0)
    assert len(world.questions) <= 2 * 9, "the looks at one at work, at growing distances"


@pytest.mark.parametrize("thinks_s", [0.5, 4.0])
def test_one_that_moved_while_it_was_not_seen_is_asked_anew(thinks_s: float) -> None:
    world = trained(armed=False)
    world.does, world.training, world.thinks_s = {2: elsewhere(2, "train.py:77 sort", cpu_moving=True)}, False, thinks_s
    world.run(5)
    asked = len(world.questions)
    world.silent.add("node-b")
    world.training = True
    world.run(3)
    world.silent.discard("node-b")
    world.run(3)
    world.does, world.training = {1: locked(1)}, False
    world.run(8)
    assert len(world.questions) > asked
    assert [[m.rank for m in incident.culprits] for incident in world.incidents()] == [[1]]


def test_a_diagnosis_that_nobody_asks_for_again_is_let_go() -> None:
    world = trained(armed=False)
    folder = world.engine.folder
    folder.diagnoses.at_once_max = 3
    [run] = folder.fleet.runs.values()
    desk = world.engine.judge._desk
    assessor = Assessor(desk)
    stand = Stand(dict(run.current.progress), (), 9, 20.0, ripe=True, overdue=True)
    world.deaf.update(("node-a", "node-b"))
    for number in range(20):
        now = world.now + number * ABANDONED_S
        order = r.Order(
            order_id=f"c{number}", run_uid=run.uid, run_id="", round=1, kind=f"collect-{number}", epoch=1, incident="",
            reason="", author="", at=0.0,
        )  # fmt: skip
        desk.begin(now, now, 1)
        assessor.ask(run, order, "")
        for ask in folder.dossiers.take_due():
            world.engine.step(ev.Told(ask.node, ask.order_id, world.part(ask), "", now))
        assert assessor.assess(run, stand, order) is None
    assert len(assessor._open) <= 2
    assert len(folder.diagnoses._open) <= 2
