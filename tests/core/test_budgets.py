"""Budgets and strikes, by tables and stories: how often something is done before it is left to a person."""

from typing import Any

import msgspec
import pytest
from core_world import DRILL, World

from rankpulse.core import records as r
from rankpulse.core.budgets import HELPED, blamed, weight
from rankpulse.core.settings import Settings

NODES = {"node-a": 1, "node-b": 1}
SPARE = "node-c"


def settings(**policy: Any) -> Settings:
    return msgspec.structs.replace(DRILL, policy=msgspec.structs.replace(DRILL.policy, **policy))


def incident(**change: Any) -> r.Incident:
    full: dict[str, Any] = {"id": "i1", "klass": "worker_dead", "state": "closed", "opened_at": 0.0} | change
    return r.Incident(**full)


def member(node: str) -> r.Member:
    return r.Member(0, node, 0, 1, 1)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({}, ""),
        ({"nodes": ("a",)}, "a"),
        ({"nodes": ("a", "b")}, ""),
        ({"nodes": ("a", "b"), "culprits": (member("b"),)}, "b"),
        ({"culprits": (member("a"), member("a"))}, "a"),
        ({"culprits": (member("a"), member("b"))}, ""),
    ],
)
def test_only_one_node_alone_is_blamed(change: dict[str, Any], expected: str) -> None:
    assert blamed(incident(**change)) == expected


def test_an_order_weighs_less_and_less_and_little_where_it_helped() -> None:
    assert [weight(incident(), age, 100.0) for age in (0.0, 25.0, 100.0, 1e9)] == [1.0, 0.75, 0.0, 0.0]
    assert weight(incident(outcome="recovered"), 0.0, 100.0) == HELPED
    assert weight(incident(), float("nan"), 100.0) == 0.0


# --- stories


def joined(world: World, *, spare: bool = True) -> list:
    world.arm()
    for node in (*NODES, *((SPARE,) if spare else ())):
        world.inc[node] = 1
    procs = world.meets(NODES, 1)
    if spare:
        world.torchrun(SPARE, 1)
    world.run(30)
    assert world.incidents() == []
    return procs


def crash(world: World, procs: list, rank: int, **detail: Any) -> r.Incident:
    """A worker dies and is held; returns what came of it."""
    world.ends(procs[rank], **({"signal": 11} | detail), held=True)
    world.run(2.5)
    return max(world.incidents(), key=lambda i: i.id)


def again(world: World, round_: int, nodes: dict[str, int] = NODES, *, step: int = 500) -> list:
    """All nodes meet again, and the job trains on from a step."""
    for proc in world.procs:
        if proc.alive:
            world.ends(proc, signal=9, order_id="x")
    procs = world.meets(nodes, round_, first_step=step)
    world.run(5)
    return procs


def crashes(world: World, procs: list, *ranks: int, step: int = 500) -> r.Incident:
    """One crash after the other, with progress in between. Returns the last incident."""
    last = None
    for number, rank in enumerate(ranks, start=1):
        if last is not None:
            procs = again(world, number, step=step * number)
        last = crash(world, procs, rank)
    assert last is not None
    return last


def test_a_node_that_kills_the_job_three_times_is_left_out_though_nothing_is_seen_to_be_wrong_with_it() -> None:
    world = World()
    last = crashes(world, joined(world), 1, 1, 1)
    assert [i.strike for i in world.incidents()] == ["node-b"] * 3
    assert last.action == "restart"
    cordon = world.engine.folder.joint.cordons["node-b"]
    assert (cordon.owner, cordon.incident) == ("rankpulse", last.id)
    assert all(i.id in cordon.reason for i in world.incidents())
    world.asks(NODES, 4)
    world.run(0.5)
    gate = world.gates()[-1]
    assert (gate.round, gate.go, gate.without) == (4, True, ("node-b",))
    assert any("node-b is cordoned" in line.text for line in last.trail)


def test_a_hang_that_passes_by_itself_leaves_nobody_out() -> None:
    world = World(settings(hang_act_s=30.0))
    procs = joined(world)
    crashes(world, procs, 1, 1)
    procs = again(world, 3, step=2000)
    world.run(30)
    procs[1].state, world.training = "T", False
    while world.incidents()[-1].klass != "collective_hang":
        world.run(0.5)
    world.run(5)
    assert world.incidents()[-1].action == "wait"
    procs[1].state, world.training = "S", True
    world.run(10)
    assert world.incidents()[-1].outcome == "passed"
    assert world.engine.folder.joint.cordons == {}


def test_a_hang_that_is_acted_upon_is_a_strike_like_any_other() -> None:
    world = World(settings(hang_act_s=30.0))
    procs = joined(world)
    crashes(world, procs, 1, 1)
    procs = again(world, 3, step=2000)
    world.run(30)
    procs[1].state, world.training = "T", False
    while not any(order.round == 3 for order in world.of_kind("restart")):
        world.run(0.5)
    assert "node-b" in world.engine.folder.joint.cordons


def test_two_nodes_in_turn_are_left_alone() -> None:
    world = World()
    crashes(world, joined(world), 0, 1, 0, 1)
    assert world.engine.folder.joint.cordons == {}


def test_a_node_without_which_the_job_could_not_go_on_is_told_of_instead() -> None:
    world = World()
    world.lists(nodes=2)
    launch = r.Launch(run_uid="job-1", label="job", owner=1000, min_nodes=2, max_nodes=2, at=0.0)
    world.put(world.keys.launch("job-1"), launch)
    last = crashes(world, joined(world, spare=False), 1, 1, 1)
    assert world.engine.folder.joint.cordons == {}
    [line] = [line.text for line in last.trail if "is not cordoned" in line.text]
    assert "1 of 2 nodes are left and 0 spares wait, it needs 2" in line


def test_what_is_not_armed_cordons_nobody() -> None:
    world = World()
    procs = joined(world)
    world.put(world.keys.arm(), r.Arm(armed=False, author="ann", reason="holiday", at=0.0))
    last = crashes(world, procs, 1, 1, 1)
    assert world.engine.folder.joint.cordons == {}
    assert any("is not cordoned" in line.text and "not armed" in line.text for line in last.trail)


def test_uncordon_forgives_and_a_successor_knows_it() -> None:
    world = World()
    crashes(world, joined(world), 1, 1, 1)
    world.ask("uncordon", node="node-b", reason="memory replaced")
    world.run(1)
    world.successor(2)
    world.run(6)
    assert world.engine.folder.joint.cordons == {}
    procs = again(world, 4, step=5000)
    crash(world, procs, 1)
    assert world.engine.folder.joint.cordons == {}, "the first strike after the repair"


def test_strikes_survive_their_monitor_and_age_meanwhile() -> None:
    world = World(settings(strikes_window_s=400.0))
    procs = joined(world)
    crashes(world, procs, 1, 1)
    procs = again(world, 3, step=2000)
    world.run(310)  # ages are written now and then
    world.successor(2)
    world.run(6)
    crash(world, procs, 1)
    assert "node-b" in world.engine.folder.joint.cordons

    world = World(settings(strikes_window_s=400.0))
    crashes(world, joined(world), 1, 1)
    procs = again(world, 3, step=2000)
    world.run(310)
    world.successor(2)
    world.run(100)
    crash(world, procs, 1)
    assert world.engine.folder.joint.cordons == {}, "the first two are too long ago"


def test_what_two_runs_suffer_from_one_node_at_once_is_one_strike() -> None:
    world = World()
    joined(world, spare=False)
    runs = {"one": {"node-a": 1, "node-x": 1}, "two": {"node-b": 1, "node-x": 1}}
    for number in range(1, 4):
        for uid, nodes in runs.items():
            world.meets(nodes, number, uid=uid, first_step=500 * number)
        world.run(90)
        assert "node-x" not in world.engine.folder.joint.cordons
        for proc in [proc for proc in world.procs if proc.node == "node-x"]:
            world.ends(proc, signal=11, held=True)
        world.run(2.5)
        for proc in world.procs:
            proc.alive &= proc.row.run_uid == "job-1"
    assert [i.strike for i in world.incidents()] == ["node-x"] * 6
    assert "node-x" in world.engine.folder.joint.cordons
    world.ask("uncordon", node="node-x")
    world.run(2)
    assert len(world.engine.folder.pardoned) == 6


def test_the_same_error_of_the_program_on_two_nodes_strikes_nobody() -> None:
    world = World()
    procs = joined(world)
    error = {"signal": None, "code": 1, "error": "ValueError", "message": "bad batch"}
    for number, rank in enumerate((1, 0, 1, 1), start=1):
        if number > 1:
            procs = again(world, number, step=500 * number)
        crash(world, procs, rank, **error)
    assert world.engine.folder.joint.cordons == {}


def test_the_budget_of_a_node_ends_in_torchelastics_hands() -> None:
    world = World(settings(orders_per_node=2, strikes=0, orders_per_run=100, backoff_s=0.0))
    procs = joined(world)
    actions = []
    for number in range(1, 10):
        if number > 1:
            procs = again(world, number, step=500 * number)
        actions.append(crash(world, procs, 1).action)
    assert actions[:4] == ["restart"] * 4
    assert actions[-1] == "release"
    assert "because of node-b is used up" in max(world.incidents(), key=lambda i: i.id).action_reason


def test_the_budget_of_the_fleet_is_spent_by_all_runs_together_and_comes_back() -> None:
    world = World(settings(orders_per_fleet=2, budget_window_s=100.0))
    world.arm()
    runs = {}
    for number in range(4):
        nodes = {f"n{number}": 1, f"m{number}": 1}
        runs[number] = world.meets(nodes, 1, uid=f"job-{number}")
    world.run(30)
    for procs in runs.values():
        world.ends(procs[0], signal=11, held=True)
    world.run(2)
    assert sorted(i.action for i in world.incidents()) == ["release", "release", "restart", "restart"]
    for number, procs in runs.items():
        for proc in procs:
            proc.alive = False
        runs[number] = world.meets({f"n{number}": 1, f"m{number}": 1}, 2, uid=f"job-{number}", first_step=900)
    world.run(120)
    world.ends(runs[0][0], signal=11, held=True)
    world.run(2)
    assert max(world.incidents(), key=lambda i: i.id).action == "restart"


def test_a_new_leader_knows_that_the_run_advanced_though_it_saw_nothing_of_it() -> None:
    """The worker dies with the monitor: the next one never sees the round whole."""
    world = World(settings(orders_per_run=3, strikes=0))
    procs = joined(world)
    crashes(world, procs, 0, 1, 0, 1)
    procs = again(world, 5, step=5000)
    world.run(20)
    world.refuse_writes = True
    world.ends(procs[1], signal=11, held=True)
    world.run(1.6)
    world.refuse_writes = False
    world.successor(2)
    world.run(8)
    assert max(world.incidents(), key=lambda i: i.id).action == "restart"


def test_orders_without_progress_come_at_growing_distances() -> None:
    world = World(settings(backoff_s=20.0, orders_per_run=5))
    procs = joined(world)
    crash(world, procs, 1)
    procs = world.meets(NODES, 2)
    world.run(0.3)
    world.training = False
    waiting = crash(world, procs, 0, signal=9)
    assert (waiting.action, len(world.of_kind("restart"))) == ("wait", 1)
    assert "no other within 10 s" in waiting.action_reason, "a holder does not wait for ever"
    world.run(8)
    assert max(world.incidents(), key=lambda i: i.id).action == "restart"
    assert [order.round for order in world.of_kind("restart")] == [1, 2]
