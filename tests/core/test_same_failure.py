"""The same failure at the same step, as beats and the last words of processes tell of it."""

from typing import Any

import pytest
from core_world import Proc, World
from evidence_world import EvidenceWorld, restarted, stands, trained

from rankpulse.core import records as r

NODES = {"node-a": 1, "node-b": 1}


def joined() -> tuple[World, list[Proc]]:
    world = World()
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(30)
    return world, procs


def fails(world: World, proc: Proc, *, beat: int, step: int, **detail: Any) -> r.Incident:
    """A worker dies at `step`, and the last beats before it told of another; returns what came of it."""
    for one in world.procs:
        one.step = beat
    world.training = False
    for node in NODES:
        world.beat(node)
    world.ends(proc, held=True, step=step, **({"signal": 11} | detail))
    world.run(2.5)
    world.training = True
    return max(world.incidents(), key=lambda incident: incident.id)


def again(world: World, round_: int, first_step: int) -> list[Proc]:
    for proc in world.procs:
        if proc.alive:
            world.ends(proc, signal=15, order_id="x")
    procs = world.meets(NODES, round_, first_step=first_step)
    world.run(5)
    return procs


ERROR = {"signal": None, "code": 1, "error": "ValueError", "message": "bad batch"}


@pytest.mark.parametrize("detail", [{}, ERROR])
@pytest.mark.parametrize("rank", [0, 1])
def test_the_step_of_a_failure_is_what_the_dead_said_last_not_what_a_beat_told_before(
    rank: int, detail: dict[str, Any]
) -> None:
    world, procs = joined()
    assert fails(world, procs[1], beat=493, step=500, **detail).action == "restart"
    procs = again(world, 2, 401)
    last = fails(world, procs[rank], beat=498, step=500, **detail)
    assert (last.action, last.round) == ("stop", 2)
    assert "again (as in round 1)" in last.action_reason


def test_another_step_is_another_failure_though_beats_told_the_same() -> None:
    world, procs = joined()
    assert fails(world, procs[1], beat=493, step=495).fault_step == 495
    procs = again(world, 2, 401)
    assert fails(world, procs[1], beat=493, step=499).action == "restart"


def test_a_persons_restart_and_another_monitor_in_between_hide_nothing() -> None:
    world, procs = joined()
    fails(world, procs[1], beat=493, step=500)
    again(world, 2, 401)
    world.ask("restart", uid="job-1", reason="just in case")
    world.run(1)
    assert [order.round for order in world.of_kind("restart")] == [1, 2]
    world.successor(2)
    world.run(6)
    procs = again(world, 3, 401)
    assert fails(world, procs[0], beat=498, step=500).action == "stop"


@pytest.mark.parametrize(("first", "second"), [(ERROR, {}), ({}, ERROR)])
def test_two_ranks_that_die_in_different_ways_at_one_step_are_two_faults(
    first: dict[str, Any], second: dict[str, Any]
) -> None:
    world, procs = joined()
    fails(world, procs[1], beat=493, step=500, **first)
    procs = again(world, 2, 401)
    assert fails(world, procs[0], beat=498, step=500, **second).action == "restart"


def test_another_rank_that_dies_while_all_stand_at_one_step_for_an_evaluation_is_another_fault() -> None:
    world, procs = joined()
    fails(world, procs[1], beat=500, step=500)
    procs = again(world, 2, 401)
    for proc in procs:
        proc.phase = "evaluate"
    assert fails(world, procs[0], beat=500, step=500).action == "restart"


@pytest.mark.parametrize("rank", [0, 1])
def test_before_its_first_step_a_round_stands_where_it_was_resumed(rank: int) -> None:
    """Another rank that dies there says nothing; the same does."""
    world, procs = joined()
    fails(world, procs[1], beat=500, step=500)
    world.training = False
    procs = again(world, 2, -1)
    assert fails(world, procs[rank], beat=500, step=500).action == ("stop" if rank == 1 else "restart")


@pytest.mark.parametrize("step", ["7", None, 1.5, -3, 1e300])
def test_a_step_that_is_none_is_not_believed(step: Any) -> None:
    world, procs = joined()
    assert fails(world, procs[1], beat=493, step=step).fault_step == 493


def raises(world: EvidenceWorld, after_s: float) -> r.Incident:
    """Rank 0 has raised, and its interpreter takes its time: its peers wait for it in a collective, as it seems to."""
    stall = stands(world, {}, after_s)
    assert (stall.klass, stall.action, stall.culprits) == ("network_stall", "page", ())
    proc = next(proc for proc in world.procs if proc.rank == 0 and proc.alive)
    world.ends(proc, code=1, error="ValueError", message="step 91 cannot be computed", held=True)
    world.run(2)
    return world.incidents()[-1]


def test_a_standstill_of_nobody_is_the_error_that_was_coming_and_the_same_error_again_is_known() -> None:
    world = trained()
    incident = raises(world, 9.0)
    assert (incident.klass, incident.action, [m.rank for m in incident.culprits]) == ("worker_dead", "restart", [0])
    restarted(world, 2)
    incident = raises(world, 9.0)
    assert (incident.klass, incident.action) == ("worker_dead", "stop")
    assert "the same error of the program again (as in round 1)" in incident.action_reason
    assert len(world.of_kind("restart")) == 1


def test_ranks_that_a_standstill_has_killed_leave_it_what_it_was() -> None:
    world = trained()
    incident = raises(world, 60.0)
    assert (incident.klass, incident.culprits) == ("network_stall", ())
