"""What a monitor sees and does not act upon: while it is blind, until it sees well again, while many are silent."""

from core_world import World
from silence_world import SilenceWorld

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.settings import preset
from rankpulse.core.sight import Sight

NODES = {"node-a": 2, "node-b": 2}
OTHERS = {f"node-{name}": 1 for name in "cdefghij"}
EIGHT = {f"n{n}": 1 for n in range(8)}


def trained(nodes: dict[str, int] = NODES) -> World:
    world = World()
    world.arm()
    world.meets(nodes, 1)
    world.run(30)
    assert world.incidents() == []
    return world


def restarts(world: World) -> list[r.Order]:
    return world.of_kind("restart")


def crash(world: World) -> None:
    """A worker dies, and is held: it waits for a verdict and an order."""
    [victim] = [proc for proc in world.procs if proc.rank == 1 and proc.node == "node-a"]
    world.ends(victim, signal=11, held=True)


def test_a_crash_is_told_of_by_a_blind_monitor_and_ordered_by_one_that_sees() -> None:
    world = trained()
    world.canary = False
    world.run(4)
    crash(world)
    world.run(3)
    assert [(i.klass, i.action) for i in world.incidents()] == [("worker_dead", "restart")]
    assert restarts(world) == []
    world.canary = True
    world.run(3)
    assert len(restarts(world)) == 1


def test_no_order_while_so_many_are_silent_that_the_observer_may_be_the_one_cut_off() -> None:
    world = trained()
    world.meets(OTHERS, 1, uid="job-2", first_step=1)
    world.run(10)
    for proc in world.procs:
        proc.phase = "evaluate"
    silent = ("node-c", "node-d", "node-e")
    world.silent.update(silent)
    world.run(6)
    assert world.engine.snapshot(world.now)["actions_stopped"]
    crash(world)
    world.run(3)
    assert [i.action for i in world.incidents() if i.klass == "worker_dead"] == ["restart"]
    assert restarts(world) == []
    world.silent.clear()
    world.run(3)
    assert len(restarts(world)) == 1


def test_a_node_is_not_given_up_in_the_moment_after_the_watch_was_lost() -> None:
    """Its time is over before the monitor's own key is late: only the lost watch tells that nothing can be known."""
    took = dead_after_s(lose_after_s=None)
    assert took is not None
    assert dead_after_s(lose_after_s=took - 0.3) is None


def dead_after_s(*, lose_after_s: float | None) -> float | None:
    world = SilenceWorld()
    world.joins(EIGHT)
    world.run(40)
    world.die("n3")
    if lose_after_s is not None:
        world.run(lose_after_s)
        world.engine.step(ev.SightLost("the watch was cut", world.now))
    return world.until(10 if lose_after_s is None else 2, "node_dead")


def test_no_silence_is_proven_until_agents_had_time_to_come_back() -> None:
    sight = Sight(preset("default").detect)
    sight.back(100.0)
    sight.canary(103.0)
    assert not sight.proves(since=101.0, now=104.0)
    sight.canary(106.0)
    assert sight.proves(since=101.0, now=106.0)
    assert not sight.proves(since=106.5, now=107.0), "its own key has not come back since"


def test_a_standstill_is_not_judged_while_blind_nor_before_agents_had_time_to_come_back() -> None:
    world = World()
    procs = world.launch(NODES, meeting="m1")
    world.run(30)
    procs[1].state, world.training = "T", False
    world.engine.step(ev.SightLost("the watch was cut", world.now))
    world.run(20)
    assert world.incidents() == []
    world.engine.step(ev.SightBack(world.now))
    world.run(4)
    assert world.incidents() == []
    world.run(10)
    assert [i.klass for i in world.incidents()] == ["collective_hang"]
