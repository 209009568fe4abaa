"""A person asks for a restart of a run about which something is done already: refused, with the reason."""

from core_world import Proc, World
from silence_world import SilenceWorld

NODES = {"node-a": 1, "node-b": 1}
ERROR = {"signal": None, "code": 1, "error": "ValueError", "message": "bad batch"}


def joined() -> tuple[World, list[Proc]]:
    world = World()
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(30)
    return world, procs


def refused(world: World) -> str:
    world.ask("restart", uid="job-1", reason="hurry")
    world.run(1)
    [line] = [line for line in world.said if " refused: " in line]
    return line


def test_the_order_that_stands_is_not_called_a_persons() -> None:
    world = SilenceWorld()
    world.arm()
    for node in ("n2", *(f"x{n}" for n in range(5))):
        world.states(node)
    world.joins({"n0": 2, "n1": 2})
    world.torchrun("n2", 1)
    world.run(40)
    world.die("n1")
    while not world.of_kind("restart"):
        world.run(1)
    assert "round 1 is being restarted already" in refused(world)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.asked_by) == ("node_dead", "restart_without", "")


def test_a_run_that_would_only_fail_again_has_to_be_started_by_hand() -> None:
    world, procs = joined()
    for round_ in (1, 2):
        world.ends(procs[1], held=True, **ERROR)
        world.run(2.5)
        if round_ == 1:
            world.ends(procs[0], signal=15, order_id="x")
            procs = world.meets(NODES, 2, first_step=10)
            world.run(3)
    assert world.incidents()[-1].action == "stop"
    assert "it is being stopped: the same error of the program again" in refused(world)
    assert [order.round for order in world.of_kind("restart")] == [1]
