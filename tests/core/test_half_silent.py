"""Half of the fleet falls silent at once, in the ways in which something else might be seen of it first."""

import pytest
from silence_world import LOST, SilenceWorld, trained

from rankpulse.core import events as ev


def half(world: SilenceWorld, after_s: float = 60.0) -> None:
    """Nothing was restarted, the breaker is open, and told of once."""
    world.run(after_s)
    assert world.of_kind("restart") == []
    assert world.engine.folder.modes.open
    assert [i.klass for i in world.incidents()].count("breaker_open") == 1


def peers_fail(world: SilenceWorld, *gone: str) -> None:
    """Workers that lost their peers end at once, and are held."""
    for proc in [proc for proc in world.procs if proc.node not in gone]:
        world.ends(proc, code=1, error="RuntimeError", message=LOST, held=True)


def test_one_of_another_rack_that_is_given_up_first_is_not_left_out_alone() -> None:
    """A single node is given up sooner than a rack: what they suffer from together is the same all the same."""
    world = trained(10, racks=4)
    world.die("n0", "n1", "n2", "n3", "n4")
    half(world)
    assert any(i.klass == "node_dead" and "n4" in i.nodes for i in world.incidents())


def test_those_that_fall_silent_a_little_apart_are_not_left_out_one_by_one() -> None:
    world = trained(8)
    for number in range(4):
        world.die(f"n{number}")
        world.run(2)
    half(world)


def test_a_node_that_was_lost_long_before_stops_nothing() -> None:
    world = trained(8)
    world.die("n0")
    world.run(40)
    [order] = world.of_kind("restart")
    assert order.without == ("n0",)
    world.meets({f"n{number}": 1 for number in range(1, 8)}, 2, first_step=41)
    world.training = True
    world.run(40)
    world.die("n1")
    world.run(20)
    assert [order.without for order in world.of_kind("restart")] == [("n0",), ("n1",)]


@pytest.mark.parametrize("after_s", [0.1, 1.0, 2.0])
def test_peers_that_fail_before_anybody_is_missed_are_no_reason_to_restart(after_s: float) -> None:
    gone = ("n0", "n1", "n2", "n3")
    world = trained(8)
    world.die(*gone)
    world.run(after_s)
    peers_fail(world, *gone)
    half(world)


@pytest.mark.parametrize("after_s", [0.1, 1.0, 2.5])
def test_nor_are_they_for_a_new_leader_that_has_not_missed_anybody_yet(after_s: float) -> None:
    gone = ("n0", "n1", "n2", "n3")
    world = trained(8)
    world.die(*gone)
    world.run(0.1)
    peers_fail(world, *gone)
    world.run(after_s)
    world.successor(2)
    half(world)


def test_peers_that_fail_while_everybody_is_heard_are_restarted_within_a_beat() -> None:
    world = trained(8)
    peers_fail(world)
    world.run(0.7 + 1.1)
    assert len(world.of_kind("restart")) == 1


def test_the_peers_of_one_lost_node_are_restarted_once_it_is_missed() -> None:
    world = trained(8)
    world.die("n0")
    world.run(0.1)
    peers_fail(world, "n0")
    world.run(1)
    [incident] = world.incidents()
    assert (incident.action, world.of_kind("restart")) == ("wait", [])
    assert "not heard since of n0" in incident.action_reason
    world.run(2)
    assert len(world.of_kind("restart")) == 1


def test_who_was_killed_for_certain_waits_for_nobody() -> None:
    world = trained(8)
    world.ends(world.procs[3], signal=9, held=True)
    world.run(0.3)
    assert len(world.of_kind("restart")) == 1


def test_a_node_that_is_gone_with_all_that_ran_on_it_is_named_by_what_its_peers_and_its_silence_say() -> None:
    """The machine lives on and refuses: that is no verdict, and the round is over before there could be one."""
    world = trained(4)
    for proc in [proc for proc in world.procs if proc.node == "n2"]:
        proc.alive = False
    world.silent.add("n2")
    world.machines["n2"] = ev.REFUSED
    world.run(0.1)
    peers_fail(world, "n2")
    world.run(4)
    [order] = world.of_kind("restart")
    [incident] = world.incidents()
    assert (incident.klass, incident.nodes, incident.cascade) == ("unknown", ("n2",), (0, 1, 3))
    assert [(member.rank, member.node) for member in incident.culprits] == [(2, "n2")]
    assert incident.summary == "3 ranks lost their peers, and n2 fell silent"
    assert order.culprits == incident.culprits
