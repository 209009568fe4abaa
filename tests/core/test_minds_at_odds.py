"""What is true no more by the time that it is done: numbers that are finite again, GPUs that heal, hangs that pass."""

import msgspec
import pytest
from core_world import DRILL, World
from gpu_world import trained as with_gpus
from numbers_world import NODES, all_tell, tells
from numbers_world import trained as with_numbers

from rankpulse.core import records as r
from rankpulse.core.evidence import Position

ANSWER_S = DRILL.policy.grace_s + DRILL.policy.answer_s


def finite(world: World) -> None:
    for node in NODES:
        tells(world, node, {p.rank: 0 for p in world.procs if p.node == node and p.alive})


def test_numbers_that_are_finite_again_after_the_order_take_nothing_back() -> None:
    """Agents are about to end the round: whoever closed the incident now would leave its ladder to nobody."""
    world = with_numbers()
    all_tell(world, 111)
    world.run(5)
    [order] = world.of_kind("restart")
    finite(world)
    world.run(DRILL.detect.quiet_s + 5)
    [incident] = world.incidents()
    assert (incident.state, incident.order_id, incident.rung) == ("open", order.order_id, "kill")
    assert len(world.of_kind("restart")) == 1


def test_a_leader_that_dies_after_the_order_for_bad_numbers_orders_no_second() -> None:
    world = with_numbers()
    all_tell(world, 111)
    world.run(5)
    [order] = world.of_kind("restart")
    for epoch in range(2, 6):
        world.successor(epoch)
        world.run(4)
    assert world.of_kind("restart") == [order]
    assert len(world.incidents()) == 1


def test_the_consent_that_is_withdrawn_before_the_order_stops_it_and_after_it_changes_nothing() -> None:
    world = with_numbers()
    mode = r.RunMode(run_uid="job-1", mode="armed", author="ann", reason="no", at=0.0, restart_on_non_finite=False)
    all_tell(world, 111)
    world.put(world.keys.run_mode("job-1"), mode)
    world.run(10)
    assert world.of_kind("restart") == []
    world = with_numbers()
    all_tell(world, 111)
    world.run(5)
    world.put(world.keys.run_mode("job-1"), mode)
    world.run(10)
    assert len(world.of_kind("restart")) == 1


def test_a_gpu_that_heals_after_its_job_was_ordered_to_leave_is_left_all_the_same_once() -> None:
    world = with_gpus(armed=True, spare=True)
    world.breaks("node-b")
    world.run(2)
    saved(world, 500)
    world.run(1)
    [order] = world.of_kind("restart")
    assert order.without == ("node-b",)
    world.heals("node-b")
    world.run(ANSWER_S + 2)
    assert world.of_kind("restart") == [order]
    assert len(world.of_kind("kill")) == 1, "the ladder goes on: the order stands"


def test_a_gpu_that_heals_before_the_checkpoint_ends_no_round() -> None:
    world = with_gpus(armed=True, spare=True)
    world.breaks("node-b")
    world.run(2)
    world.heals("node-b")
    world.run(2)
    saved(world, 500)
    world.run(20)
    assert world.of_kind("restart") == []


def test_two_gpus_on_two_nodes_of_one_job_end_it_once() -> None:
    world = with_gpus(armed=True, spare=True)
    world.breaks("node-b")
    world.breaks("node-a")
    world.run(2)
    saved(world, 500)
    world.run(5)
    assert len(world.of_kind("restart")) <= 1
    for epoch in (2, 3):
        world.successor(epoch)
        saved(world, 500 + epoch)
        world.run(5)
    assert len(world.of_kind("restart")) <= 1


@pytest.mark.parametrize("leaders", [1, 2])
def test_a_hang_that_passes_after_the_order_is_followed_to_the_end_of_the_order(leaders: int) -> None:
    world = World(settings=msgspec.structs.replace(DRILL, policy=msgspec.structs.replace(DRILL.policy, round_s=40.0)))
    world.arm()
    world.meets(NODES, 1)
    world.run(20)
    world.procs[1].state, world.training = "T", False
    asked = set[str]()
    while not world.of_kind("restart") and world.now < 1200.0:
        world.run(0.5)
        for order in [one for one in world.of_kind("collect") if one.order_id not in asked]:
            asked.add(order.order_id)
            for node in NODES:
                answer(world, order, node)
    [order] = world.of_kind("restart")
    world.procs[1].state, world.training = "S", True
    if leaders > 1:
        world.successor(2)
    world.run(ANSWER_S + 3)
    [incident] = world.incidents()
    assert (incident.state, incident.order_id) == ("open", order.order_id)
    assert len(world.of_kind("kill")) == 1
    world.run(45)
    assert world.incidents()[0].rung == "page"


def answer(world: World, order: r.Order, node: str) -> None:
    world.answers(order, node, {n: (Position("w", 7 + (n != 1), 7, "all_reduce"),) for n in range(4)})


def saved(world: World, step: int) -> None:
    detail = {"bytes": 1000, "shards": 4, "kind": "sharded", "save_s": 0.3, "verified": True, "verify_s": 0.1}
    proc = world.procs[0]
    world.observe(r.CHECKPOINT, proc.node, proc, event="saved", times=1, step=step, **detail)


def test_an_order_that_was_written_after_its_decision_was_taken_anew_is_followed_to_the_end() -> None:
    """Its write was given up, what it rests on had to be heard anew, and then it stood all the same."""
    world = with_numbers()
    all_tell(world, 118)
    world.run(0.2)
    [incident] = world.incidents()
    assert (incident.action, world.orders()) == ("wait", [])
    members = [r.Member(p.rank, p.node, p.local_rank, p.pid, p.start) for p in world.procs if p.alive]
    late = r.Order(
        order_id=incident.id, run_uid=incident.run_uid, run_id=incident.run_id, round=1, kind="restart", epoch=1,
        incident=incident.id, reason="3 steps in a row", author="monitor, epoch 1", at=incident.opened_at,
        seats=r.seated(members), nodes=tuple(NODES), resume_before_step=118,
    )  # fmt: skip
    world.put(world.keys.order(incident.run_uid, 1, "restart"), late)
    world.run(0.3)
    [incident] = world.incidents()
    assert (incident.action, incident.order_id, incident.resume_before_step) == ("restart", incident.id, 118)
    world.run(60)
    assert [order.kind for order in world.orders()].count("restart") == 1
    assert "kill" in [order.kind for order in world.orders()], "the ladder goes on from it"
