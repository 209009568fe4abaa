"""A person asks for a restart: of a run about which something is done already, and in words that are no words."""

import pytest
from core_world import Proc, World
from silence_world import SilenceWorld

from rankpulse.core import records as r

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


def test_a_round_that_is_seen_together_with_its_order_is_the_orders() -> None:
    world, _ = joined()
    world.ask("restart", uid="job-1", reason="hurry")
    while not world.of_kind("restart"):
        world.tick()
    world.meets(NODES, 2, first_step=10)
    world.run(2)
    story = " ".join(line.text for line in world.incidents()[-1].trail)
    assert "round 2 began, started by order i0001-0001" in story


LOG = "\x1b[2Ja traceback\n" * 8_000  # somebody's clipboard


@pytest.mark.parametrize("kind", ["restart", "cordon", "maintenance", LOG])
def test_a_pasted_log_for_a_reason_makes_no_record_that_a_store_would_refuse(kind: str) -> None:
    world, _ = joined()
    world.ask(kind, uid="job-1" if kind == "restart" else LOG, node="" if kind == "restart" else "node-b", reason=LOG)
    world.run(2)
    assert not [key for key in world.store if "/requests/" in key]
    assert max(len(data) for data, _ in world.store.values()) < 20_000
    assert [line for line in world.said if len(line) > 3000 or "\n" in line or "\x1b" in line] == []


def test_nor_does_one_for_the_reason_of_a_pause() -> None:
    world, procs = joined()
    key = world.keys.run_mode("job-1")
    world.put(key, r.RunMode(run_uid="job-1", mode="paused", author="bob", reason=LOG, at=0.0))
    world.ends(procs[1], signal=9, held=True)
    world.run(2)
    assert max(len(data) for name, (data, _) in world.store.items() if name != key) < 20_000
