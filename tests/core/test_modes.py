"""Who may act: the cluster's word and a run's own, by a table and by stories."""

import pytest
from core_world import World

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.modes import Modes


def arm(armed: bool) -> r.Arm:
    return r.Arm(armed=armed, author="ann", reason="word", at=0.0)


def run_mode(mode: str) -> r.RunMode:
    return r.RunMode(run_uid="u", mode=mode, author="bob", reason="mine", at=0.0)


BREAKER = r.Breaker(open=True, author="monitor", reason="half of them", at=0.0)
CLOSED = r.Breaker(open=False, author="ann", reason="seen", at=0.0)


@pytest.mark.parametrize(
    ("said", "armed", "mode"),
    [
        ([], False, "observe"),
        ([arm(True)], True, "armed"),
        ([arm(False)], False, "observe"),
        ([arm(True), run_mode("observe")], False, "observe"),
        ([run_mode("observe"), arm(True)], False, "observe"),
        ([arm(True), run_mode("paused")], False, "paused"),
        ([run_mode("paused"), arm(True)], False, "paused"),
        ([run_mode("paused")], False, "paused"),
        ([run_mode("armed")], True, "armed"),
        ([arm(False), run_mode("armed")], True, "armed"),
        ([run_mode("armed"), arm(False)], False, "observe"),
        ([run_mode("armed"), arm(False), arm(True)], True, "armed"),
        ([arm(True), run_mode("of the future")], False, "observe"),
        ([arm(True), BREAKER], False, "breaker"),
        ([run_mode("paused"), BREAKER], False, "breaker"),
        ([arm(True), BREAKER, CLOSED], True, "armed"),
    ],
)
def test_the_more_careful_word_wins_and_a_later_disarm_stops_all(said: list[r.Record], armed: bool, mode: str) -> None:
    modes = Modes()
    fold = {r.Arm: modes.armed, r.RunMode: modes.run_mode, r.Breaker: modes.breaker_seen}
    for revision, record in enumerate(said, start=10):
        fold[type(record)](record, ev.Seen("k", record, revision, 0.0), True)
    leave = modes.of("u")
    assert (leave.armed, leave.mode) == (armed, mode)
    assert bool(leave.why) != armed
    assert not modes.of("another").armed or any(isinstance(one, r.Arm) for one in said)


NODES = {"node-a": 2, "node-b": 2}


def joined() -> tuple[World, list]:
    world = World()
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(30)
    return world, procs


def set_mode(world: World, mode: str, uid: str = "job-1") -> None:
    world.put(world.keys.run_mode(uid), r.RunMode(run_uid=uid, mode=mode, author="bob", reason="debugging", at=0.0))


def hang(world: World, procs: list) -> r.Incident:
    procs[1].state, world.training = "T", False
    world.run(15)
    [incident] = world.incidents()
    return incident


def test_a_paused_run_is_told_of_and_left_alone() -> None:
    world, procs = joined()
    set_mode(world, "paused")
    incident = hang(world, procs)
    assert (incident.action, world.of_kind("restart")) == ("none", [])
    assert "the run is paused by bob: debugging" in incident.action_reason
    world.ask("restart", uid="job-1", reason="now")
    world.run(1)
    assert any("refused: the run is paused by bob: debugging" in line for line in world.said)
    world.erase(world.keys.run_mode("job-1"))
    world.run(2)
    assert [order.kind for order in world.orders() if order.kind == "restart"] == ["restart"]


def test_a_restart_that_was_asked_for_while_blind_is_not_ordered_once_the_run_is_paused() -> None:
    world, _ = joined()
    world.canary = False
    world.run(20)
    world.ask("restart", uid="job-1", reason="now")
    world.run(1)
    set_mode(world, "paused")
    world.run(1)
    world.canary = True
    world.run(30)
    assert world.orders() == []
    [incident] = world.incidents()
    assert "no order to restart: the run is paused by bob: debugging" in incident.trail[-1].text
    world.erase(world.keys.run_mode("job-1"))
    world.run(1)
    assert len(world.of_kind("restart")) == 1


def test_an_observed_run_says_what_would_be_done() -> None:
    world, procs = joined()
    set_mode(world, "observe")
    incident = hang(world, procs)
    assert (incident.action, world.of_kind("restart")) == ("observe", [])
    assert "would restart it now, but the run is only observed, by bob: debugging" in incident.action_reason


def test_the_dead_of_a_paused_run_are_released() -> None:
    world, procs = joined()
    set_mode(world, "paused")
    world.ends(procs[3], signal=9, held=True)
    world.run(2)
    assert [order.kind for order in world.orders()] == ["release"]


def test_one_run_may_be_armed_before_its_cluster_is() -> None:
    world = World()
    runs = {uid: world.meets({f"a-{uid}": 2, f"b-{uid}": 2}, 1, uid=uid) for uid in ("one", "two")}
    set_mode(world, "armed", "one")
    world.run(30)
    for procs in runs.values():
        world.ends(procs[3], signal=9, held=True)
    world.run(2)
    assert {order.run_uid: order.kind for order in world.orders()} == {"one": "restart", "two": "release"}


def test_the_mode_of_a_run_goes_with_it() -> None:
    world, procs = joined()
    set_mode(world, "observe")
    for proc in procs:
        world.ends(proc, code=0, closed=True)
    for node in NODES:
        world.leaves(node, "finished")
    world.run(5)
    run = world.engine.folder.fleet.runs["job-1"]
    assert run.outcome == "finished"
    world.engine.folder.drop_run(run)
    world.run(1)
    assert world.keys.run_mode("job-1") not in world.store
