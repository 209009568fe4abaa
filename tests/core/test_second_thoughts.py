"""What was believed too soon, for too long, or again and again: each was a fault once."""

import math

import pytest
from core_world import World
from silence_world import SilenceWorld, settings

from rankpulse.core import events as ev
from rankpulse.core import stragglers
from rankpulse.core.looks import AT_ONCE

NODES = {f"n{number:02d}": 1 for number in range(8)}
TWO = {"node-a": 2, "node-b": 2}


@pytest.mark.parametrize("name", ["default", "fast"])
def test_an_answer_from_before_the_conviction_does_not_take_it_back(name: str) -> None:
    """Cut off from the store, it answers a look, and dies then: nobody else would ever tell of it."""
    world = SilenceWorld(settings=settings(name))
    world.joins(NODES)
    world.run(40.0)
    world.cut("n03")
    world.run(4.0)
    world.die("n03")
    world.run(120.0, step_s=0.25)
    [incident] = [one for one in world.incidents() if one.state == "open"]
    assert (incident.klass, incident.nodes) == ("node_dead", ("n03",))
    world.thaw("n03")
    world.run(10.0)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome) == ("closed", "passed")


def held_failure(world: World, round_: int, until_told_s: float) -> None:
    """A rank is killed; on the other node a peer raises words of its own, and is told of first. Both are held."""
    procs = [proc for proc in world.procs if proc.alive]
    world.ends(procs[0], code=1, error="MyTimeout", message="no batch from the reader", held=True)
    world.run(until_told_s)
    assert [order.round for order in world.of_kind("restart")] == list(range(1, round_)), "its cause may be on its way"
    world.ends(procs[2], signal=9, held=True)
    world.run(1.0)
    for proc in procs:
        if proc.alive:
            world.ends(proc, signal=9, order_id=world.of_kind("restart")[-1].order_id)
    world.run(2.0)


def test_nothing_is_ordered_for_an_exception_before_its_cause_had_time_to_be_told() -> None:
    """Or the second such death would be taken for the program's own error, and stop the job for good."""
    world = World()
    world.arm()
    for round_ in (1, 2):
        world.meets(TWO, round_, first_step=1, uid="job-1")
        world.run(30.0 if round_ == 1 else 4.0)
        held_failure(world, round_, 0.4)
    assert [order.round for order in world.of_kind("restart")] == [1, 2]
    assert world.of_kind("release") == []
    assert [[member.node for member in one.culprits] for one in world.incidents()] == [["node-b"], ["node-b"]]


@pytest.mark.parametrize("waited_s", [0.0, 0.1, 0.3, 0.5])
def test_a_leader_that_dies_while_an_exception_waits_for_its_cause_leaves_one_order(waited_s: float) -> None:
    """Its successor has to see that a worker is dead and held: nothing else tells of it."""
    world = World()
    world.arm()
    world.meets(TWO, 1, uid="job-1")
    world.run(30.0)
    world.ends(world.procs[0], code=1, error="MyTimeout", message="no batch from the reader", held=True)
    while world.incidents() == []:
        world.run(0.1)
    world.run(waited_s)
    world.successor(2)
    world.run(3.0)
    [order] = world.of_kind("restart")
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.order_id) == ("worker_dead", "restart", order.order_id)


def test_beyond_the_ceiling_there_is_one_word_for_a_silence() -> None:
    world = SilenceWorld(settings=settings(silence_ceiling_s=60.0))
    world.joins({"n0": 1, "n1": 1})
    world.run(40.0)
    world.silent.update(("n0", "n1"))
    world.machines.update({"n0": ev.REFUSED, "n1": ev.REFUSED})
    world.run(120.0, step_s=0.25)
    delay, incident = world.incidents()
    assert (delay.klass, incident.klass) == ("control_plane_delay", "unknown")
    assert len(incident.trail) < 12


def test_what_a_look_said_counts_until_everybody_had_a_turn() -> None:
    world = SilenceWorld(settings=settings("fast"))
    world.joins({f"n{number:03d}": 1 for number in range(500)})
    world.run(15.0, step_s=0.25)
    world.cut(*[f"n{number:03d}" for number in range(300)])
    world.run(20.0, step_s=0.25)
    turns = math.ceil(300 / AT_ONCE) * world.settings.probe.interval_s
    looked = world.engine.folder.fleet.nodes
    assert all(looked[f"n{number:03d}"].suspect.beat is not None for number in range(300))
    assert all(world.now - looked[f"n{number:03d}"].suspect.asked_at <= turns + 0.5 for number in range(300))
    assert "node_dead" not in world.klasses()


def jittery(world: SilenceWorld, node: str) -> None:
    """Beats of this node have come late again and again: its deadline is as long as deadlines get."""
    for _ in range(8):
        world.silent.add(node)
        world.run(4.5)
        world.silent.discard(node)
        world.run(6.0)


def test_where_no_peer_can_tell_one_lost_look_convicts_nobody() -> None:
    """Its deadline is long, so that at the time of a conviction it has hardly been looked at."""
    world = SilenceWorld(settings=settings("fast"))
    world.joins(NODES)
    world.run(40.0)
    jittery(world, "n03")
    for proc in world.procs:
        proc.phase = "evaluate"
    world.run(20.0)
    assert world.klasses() == []
    world.silent.add("n03")
    world.run(5.5)
    world.machines["n03"] = ev.SILENT  # a burst of loss, of two seconds
    world.run(2.0)
    world.machines.pop("n03")
    world.run(2.0)
    assert world.klasses() == []
    world.machines["n03"] = ev.SILENT
    assert world.until(12.0, "node_dead") is not None


def test_a_straggler_that_chance_may_explain_in_part_is_not_well_for_that() -> None:
    found = {3: stragglers.Slow(1.5, "in a phase of its own", sure=False)}
    stragglers._worse(found, {3: stragglers.Slow(1.05, "behind its peers", sure=True)})
    assert (found[3].sure, found[3].ratio, found[3].most) == (True, 1.05, 1.5)
