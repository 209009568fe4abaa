"""What came to light with real processes, told on the virtual clock."""

from core_world import World

from rankpulse.core.arrival import Arrival
from rankpulse.core.settings import preset


def test_run_ahead_is_learned_in_the_round_after_a_restart_too() -> None:
    """The last beat of a round is old when the next one begins: that is no beat of the next."""
    world = World()
    nodes = {"n0": 2, "n1": 2}
    world.meets(nodes, 1)
    world.run(5.0)
    for proc in list(world.procs):
        world.ends(proc, code=1)
    world.run(6.0)
    world.meets(nodes, 2)
    world.run(40.0)
    (run,) = world.engine.folder.fleet.runs.values()
    assert run.current.number == 2
    assert run.ahead.synchronous()


def test_a_question_of_its_own_makes_no_standstill_older() -> None:
    """Evidence is asked for before the deadline, and the hang is told of after it."""
    world = World()
    world.steps_per_beat = 1
    for proc in world.meets({"n0": 1, "n1": 1}, 1):
        proc.phase = "train"
    world.run(60.0, step_s=0.25)
    (run,) = world.engine.folder.fleet.runs.values()
    for _ in range(4):  # stays of ten seconds, so that the phase has a deadline of its own
        for proc in world.procs:
            proc.phase = "evaluate"
        world.run(10.0, step_s=0.25)
        for proc in world.procs:
            proc.phase = "train"
        world.run(10.0, step_s=0.25)
    deadline_s = run.clocks.deadline_s("evaluate")
    assert 15.0 < deadline_s < 60.0
    for proc in world.procs:
        proc.phase = "evaluate"
    began, asked_after, told_after = world.now, None, None
    answered: set[str] = set()
    while told_after is None and world.now - began < 2 * deadline_s:
        world.run(0.25, step_s=0.25)
        for order in world.of_kind("collect"):
            asked_after = asked_after or world.now - began
            if order.order_id not in answered:
                answered.add(order.order_id)
                world.answers(order, "n0")
                world.answers(order, "n1")
        if any(i.klass in ("collective_hang", "unknown") for i in world.incidents()):
            told_after = world.now - began
    assert asked_after is not None
    assert told_after is not None
    assert asked_after < told_after
    assert told_after >= deadline_s - 2 * world.settings.detect.heartbeat_interval_s


def test_one_long_silence_sets_no_margin_and_a_second_does() -> None:
    arrival = Arrival(preset("default").detect)
    now = 0.0
    for beat in range(100):
        now += 5.0 if beat == 50 else 1.0
        arrival.beat(now)
    assert arrival.wait_s() <= 2.0
    now += 4.5
    arrival.beat(now)
    assert arrival.wait_s() > 5.0


def test_a_node_that_dies_after_another_joins_it_in_the_story() -> None:
    world = World()
    world.meets({f"n{n}": 1 for n in range(6)}, 1)
    world.run(30.0)
    world.training = False
    world.silent = {"n1"}
    world.run(40.0)
    world.silent |= {"n2"}
    world.run(40.0)
    dead = [i for i in world.incidents() if i.klass == "node_dead"]
    assert [i.nodes for i in dead] == [("n1", "n2")]
    assert {m.node for m in dead[0].culprits} == {"n1", "n2"}
    assert not {m.rank for m in dead[0].culprits} & set(dead[0].cascade)
    assert all(name in dead[0].summary for name in ("n1", "n2"))
