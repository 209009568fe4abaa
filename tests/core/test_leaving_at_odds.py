"""What goes wrong while a job leaves a node: spares that die, nodes that come back, cordons that are lifted, runs that
share a machine, too few that are left."""

from typing import Any

import msgspec
import pytest
from core_world import Proc
from silence_world import SilenceWorld, settings

from rankpulse.core import records as r

WATCHED = {f"x{n}": 1 for n in range(8)}  # so that a few silent nodes are not half the fleet
TWO, THREE = {"n0": 2, "n1": 2}, {"n0": 2, "n1": 2, "n2": 2}


def trained(
    nodes: dict[str, int] = TWO, *, spares: tuple[str, ...] = (), least: int = 2, **policy: Any
) -> SilenceWorld:
    base = settings()
    world = SilenceWorld(settings=msgspec.structs.replace(base, policy=msgspec.structs.replace(base.policy, **policy)))
    world.arm()
    for node in (*spares, *WATCHED):
        world.states(node)
    launches(world, "job-1", least, len(nodes))
    world.joins(nodes)
    for node in spares:
        world.torchrun(node, 1)
    world.run(40)
    assert world.incidents() == []
    return world


def launches(world: SilenceWorld, uid: str, least: int, most: int) -> None:
    record = r.Launch(run_uid=uid, label=uid, owner=1000, min_nodes=least, max_nodes=most, at=0.0)
    world.put(world.keys.launch(uid), record)


def of_run(world: SilenceWorld, uid: str = "job-1") -> r.Incident:
    return [i for i in world.incidents() if i.run_uid == uid][-1]


def obeyed(world: SilenceWorld, *nodes: str, round_: int = 1) -> None:
    """These end their workers of the round by order, say so, and ask for the next."""
    [order] = [one for one in world.of_kind("restart") if one.round == round_]
    for node in nodes:
        for proc in [p for p in world.procs if p.node == node and p.alive]:
            world.ends(proc, signal=15, order_id=order.order_id)
        world.observe(r.ORDER_DONE, node, order_id=order.order_id, killed=0)
    world.asks(list(nodes), round_ + 1)


def meets(world: SilenceWorld, nodes: dict[str, int], round_: int) -> None:
    world.procs = [proc for proc in world.procs if proc.node not in world.silent]
    world.training = True
    world.meets(nodes, round_, first_step=60 * round_, asks=False)


def pages(world: SilenceWorld) -> list[str]:
    return [i.action for i in world.incidents() if i.action == "page" or i.rung == "page"]


def saves(world: SilenceWorld, proc: Proc, step: int) -> None:
    detail = {"bytes": 1000, "shards": 4, "kind": "sharded", "save_s": 0.3, "verified": True, "verify_s": 0.1}
    world.observe(r.CHECKPOINT, proc.node, proc, event="saved", times=1, step=step, **detail)


def test_a_spare_that_dies_while_it_joins_is_left_out_and_the_next_one_takes_the_place() -> None:
    world = trained(spares=("n2", "n3"))
    world.die("n1")
    world.run(12)
    obeyed(world, "n0")
    world.run(0.5)
    assert world.gates()[-1].lost == ("n1",)
    world.die("n2")
    world.run(12)
    gate = world.gates()[-1]
    assert (gate.round, gate.lost) == (2, ("n1", "n2"))
    meets(world, {"n0": 2, "n3": 2}, 2)
    world.run(10)
    assert of_run(world).outcome == "recovered"
    assert len(world.of_kind("restart")) == 1


def test_the_only_spare_dies_while_it_joins_and_a_person_is_told_that_no_round_formed() -> None:
    world = trained(spares=("n2",), round_s=40.0)
    world.die("n1")
    world.run(12)
    obeyed(world, "n0")
    world.die("n2")
    world.run(50)
    incident = of_run(world)
    assert (incident.rung, incident.state) == ("page", "open")
    assert len(world.of_kind("restart")) == 1
    world.successor(2)
    world.run(60)
    assert len([line for line in of_run(world).trail if line.text.startswith("page:")]) == 1


def test_a_node_that_comes_back_before_the_round_formed_is_lost_no_more() -> None:
    world = trained(spares=("n2",))
    world.die("n1")
    world.run(12)
    obeyed(world, "n0")
    world.run(0.5)
    world.thaw("n1")
    world.run(3)
    assert world.gates()[-1].lost == ()
    assert len(world.of_kind("restart")) == 1


def test_shrinking_stops_at_the_least_and_a_person_is_told_what_is_missing() -> None:
    world = trained(THREE, least=2)
    world.die("n2")
    world.run(12)
    assert [order.without for order in world.of_kind("restart")] == [("n2",)]
    obeyed(world, "n0", "n1")
    world.run(0.5)
    meets(world, TWO, 2)
    world.run(40)
    assert of_run(world).outcome == "recovered"
    world.die("n1")
    world.run(20)
    incident = of_run(world)
    assert (incident.round, incident.action) == (2, "page")
    assert "1 of 2 nodes are left and 0 spares wait, it needs 2" in incident.action_reason
    assert [order.round for order in world.of_kind("restart")] == [1]


def test_two_nodes_that_die_at_once_below_the_least_order_nothing() -> None:
    world = trained(THREE, least=2)
    world.die("n1", "n2")
    world.run(25)
    assert world.of_kind("restart") == []
    assert pages(world)


def test_another_node_that_dies_while_the_smaller_round_forms_makes_no_round_below_the_least() -> None:
    world = trained(THREE, least=2, round_s=40.0)
    world.die("n2")
    world.run(12)
    obeyed(world, "n0", "n1")
    world.die("n1")
    world.run(60)
    incident = of_run(world)
    assert incident.rung == "page"
    assert len(world.of_kind("restart")) == 1
    assert world.gates()[-1].lost == ("n1", "n2")


def test_two_runs_on_one_lost_node_are_restarted_once_each_and_it_is_one_blow() -> None:
    world = trained(spares=("n2",), strikes=2)
    launches(world, "job-2", 2, 2)
    world.states("m0")
    world.states("m1")
    world.meets({"m0": 2, "n1": 2}, 1, uid="job-2")
    world.torchrun("m1", 1, uid="job-2")
    world.run(40)
    world.die("n1")
    world.run(15)
    orders = world.of_kind("restart")
    assert sorted((order.run_uid, order.without) for order in orders) == [("job-1", ("n1",)), ("job-2", ("n1",))]
    world.successor(2)
    world.run(15)
    assert len(world.of_kind("restart")) == 2
    assert world.keys.cordon("n1") not in world.store, "one death is one blow, whoever suffers from it"


def test_one_of_two_runs_on_a_lost_node_is_paused_and_the_other_goes_on() -> None:
    world = trained(spares=("n2",))
    launches(world, "job-2", 2, 2)
    world.states("m0")
    world.meets({"m0": 2, "n1": 2}, 1, uid="job-2")
    world.run(40)
    mode = r.RunMode(run_uid="job-2", mode="paused", author="bob", reason="a debugger", at=0.0)
    world.put(world.keys.run_mode("job-2"), mode)
    world.die("n1")
    world.run(20)
    assert [order.run_uid for order in world.of_kind("restart")] == ["job-1"]


def test_a_paused_run_whose_node_dies_is_left_alone_and_helped_once_it_is_resumed() -> None:
    world = trained(spares=("n2",))
    mode = r.RunMode(run_uid="job-1", mode="paused", author="bob", reason="a debugger", at=0.0)
    world.put(world.keys.run_mode("job-1"), mode)
    world.die("n1")
    world.run(30)
    assert world.orders() == []
    assert [i.action for i in world.incidents() if i.run_uid] == ["none"]
    world.successor(2)
    world.run(15)
    assert world.orders() == []
    world.erase(world.keys.run_mode("job-1"))
    world.run(3)
    [order] = world.of_kind("restart")
    assert order.without == ("n1",)


def test_a_cordon_that_is_lifted_between_order_and_round_lets_the_node_in_again() -> None:
    world = trained(spares=("n2",))
    saves(world, world.procs[0], 10)
    world.ask("cordon", node="n1", drain=True)
    world.run(1)
    saves(world, world.procs[0], 20)
    world.run(0.5)
    [order] = world.of_kind("restart")
    assert order.without == ("n1",)
    obeyed(world, "n0", "n1")
    world.run(0.5)
    assert world.gates()[-1].without == ("n1",)
    world.ask("uncordon", node="n1")
    world.run(0.5)
    gate = world.gates()[-1]
    assert (gate.round, gate.without, gate.lost) == (2, (), ())
    world.run(3)
    assert len(world.of_kind("restart")) == 1


def test_a_drain_that_nobody_heeds_climbs_like_any_other_order() -> None:
    world = trained(spares=("n2",), round_s=40.0)
    saves(world, world.procs[0], 10)
    world.ask("cordon", node="n1", drain=True)
    world.run(1)
    saves(world, world.procs[0], 20)
    world.run(16.5)
    assert (len(world.of_kind("restart")), len(world.of_kind("kill"))) == (1, 1)
    world.run(60)
    assert of_run(world).rung == "page"
    assert (len(world.of_kind("restart")), len(world.of_kind("kill"))) == (1, 1)


def test_nodes_that_take_turns_in_falling_silent_do_not_make_it_forget_whom_it_left_out() -> None:
    """The lost one comes back as the spare goes: the round forms with whoever is heard."""
    world = trained(spares=("n2",), round_s=60.0)
    world.die("n1")
    world.run(12)
    obeyed(world, "n0")
    world.die("n2")
    world.thaw("n1")
    world.run(15)
    assert world.gates()[-1].lost == ("n2",)
    assert len(world.of_kind("restart")) == 1


@pytest.mark.parametrize("jump_s", [7200.0, -7200.0])
def test_a_cordon_with_a_time_is_lifted_after_that_time_however_the_clock_jumps(
    jump_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    import core_world
    import silence_world

    world = trained()
    world.ask("cordon", node="n1", for_s=600.0)
    world.run(5)
    for module in (core_world, silence_world):
        monkeypatch.setattr(module, "UTC", module.UTC + jump_s)
    world.run(300)
    assert world.keys.cordon("n1") in world.store
    world.run(310)
    assert world.keys.cordon("n1") not in world.store
