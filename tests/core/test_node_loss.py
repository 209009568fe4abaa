"""A node is lost with all its processes: its job goes on without it, or waits, and says which."""

from typing import Any

import msgspec
import pytest
from silence_world import SilenceWorld, settings

from rankpulse.core import records as r

TWO = {"n0": 2, "n1": 2}
WATCHED = {f"x{n}": 1 for n in range(6)}  # so that one silent node is not half the fleet


def chosen(**policy: Any) -> Any:
    base = settings()
    return msgspec.structs.replace(base, policy=msgspec.structs.replace(base.policy, **policy))


def trained(
    *, spares: tuple[str, ...] = (), least: int = 2, armed: bool = True, nodes: dict[str, int] = TWO, **policy: Any
) -> SilenceWorld:
    world = SilenceWorld(settings=chosen(**policy))
    if armed:
        world.arm()
    world.put(world.keys.launch("job-1"), launch(least, len(nodes)))
    for node in (*spares, *WATCHED):
        world.states(node)
    world.joins(nodes)
    for node in spares:
        world.torchrun(node, 1)
    world.run(40)
    assert world.incidents() == []
    return world


def launch(least: int, most: int) -> r.Launch:
    return r.Launch(run_uid="job-1", label="job", owner=1000, min_nodes=least, max_nodes=most, at=0.0)


def of_run(world: SilenceWorld) -> r.Incident:
    [incident] = [i for i in world.incidents() if i.run_uid]
    return incident


def test_with_a_spare_that_waits_the_others_go_on_at_once() -> None:
    world = trained(spares=("n2",))
    world.die("n1")
    took = world.until(15, "node_dead")
    assert took is not None
    world.run(0.3)
    [order] = world.of_kind("restart")
    assert (order.without, order.round) == (("n1",), 1)
    incident = of_run(world)
    assert (incident.action, incident.order_id, incident.nodes) == ("restart_without", order.order_id, ("n1",))
    assert "with a spare that waits" in incident.action_reason
    world.training = True
    world.asks(["n0"], 2)
    world.run(0.5)
    gate = world.gates()[-1]
    assert (gate.round, gate.lost, gate.without) == (2, ("n1",), ())
    world.procs.clear()
    world.meets({"n0": 2, "n2": 2}, 2, first_step=50, asks=False)
    world.run(8)
    incident = of_run(world)
    assert (incident.state, incident.outcome) == ("closed", "recovered")
    assert len(world.orders()) == 1


def test_without_a_spare_the_job_waits_says_so_and_goes_on_when_one_comes() -> None:
    world = trained()
    world.die("n1")
    world.run(20)
    incident = of_run(world)
    assert (incident.action, world.of_kind("restart")) == ("page", [])
    assert "1 of 2 nodes are left and 0 spares wait, it needs 2" in incident.action_reason
    assert "Start torchrun on one more" in incident.action_reason
    world.states("n2")
    world.torchrun("n2", 1)
    world.run(3)
    [order] = world.of_kind("restart")
    assert order.without == ("n1",)
    assert of_run(world).action == "restart_without"


def test_a_spare_whose_node_is_refused_takes_nobodys_place_until_it_is_found_well() -> None:
    world = trained()
    world.states("n2")
    world.torchrun("n2", 1, refused="refused, because GPU 3 asks for a reset")
    world.die("n1")
    world.run(20)
    incident = of_run(world)
    assert (incident.action, world.of_kind("restart")) == ("page", [])
    assert "0 spares wait" in incident.action_reason
    world.torchrun("n2", 1)
    world.run(3)
    assert [order.without for order in world.of_kind("restart")] == [("n1",)]


def test_a_job_that_may_shrink_goes_on_with_fewer() -> None:
    world = trained(least=1)
    world.die("n1")
    world.run(15)
    [order] = world.of_kind("restart")
    assert order.without == ("n1",)
    assert "they go on as 1 of 2 nodes, which is enough as the job was launched (1)" in of_run(world).action_reason


def test_unless_shrinking_is_forbidden() -> None:
    world = trained(least=1, shrink=False)
    world.die("n1")
    world.run(20)
    assert world.of_kind("restart") == []
    assert of_run(world).action == "page"


@pytest.mark.parametrize("why", ["silent", "cordoned", "in maintenance"])
def test_a_spare_that_cannot_join_is_none(why: str) -> None:
    world = trained(spares=("n2",))
    if why == "silent":
        world.silent.add("n2")
        world.machines["n2"] = "silent"
        world.run(4)
    elif why == "cordoned":
        world.ask("cordon", node="n2")
    else:
        world.ask("maintenance", node="n2")
    world.run(0.2)
    world.die("n1")
    world.run(20)
    assert world.of_kind("restart") == []
    assert "0 spares wait" in next(i for i in world.incidents() if i.run_uid).action_reason


def test_what_is_not_armed_pages_and_says_what_would_be_done() -> None:
    world = trained(spares=("n2",), armed=False)
    world.die("n1")
    world.run(20)
    incident = of_run(world)
    assert (incident.action, world.of_kind("restart")) == ("page", [])
    assert "would restart its job without the dead now, but orders are not armed" in incident.action_reason
    world.arm()
    world.run(2)
    assert [order.without for order in world.of_kind("restart")] == [("n1",)]


def test_the_deaths_that_follow_do_not_make_it_an_ordinary_restart() -> None:
    """Peers give up after their own timeout, held or not: the dead node must not be waited for then."""
    world = trained(spares=())
    world.die("n1")
    world.run(15)
    for proc in [proc for proc in world.procs if proc.node == "n0"]:
        world.ends(proc, code=1, error="DistBackendError", message="timeout", held=True)
    world.run(5)
    assert (of_run(world).action, world.orders()) == ("page", [])
    world.states("n2")
    world.torchrun("n2", 1)
    world.run(2)
    assert [(order.kind, order.without) for order in world.orders()] == [("restart", ("n1",))]


def test_a_new_leader_finds_the_dead_and_orders_once() -> None:
    world = trained(spares=("n2",))
    world.die("n1")
    for epoch in range(2, 7):
        world.run(6 if epoch == 2 else 2)
        world.successor(epoch)
    world.run(40)
    assert [order.without for order in world.of_kind("restart")] == [("n1",)]


def test_blind_monitors_order_nothing_and_say_so() -> None:
    world = trained(spares=("n2",), armed=False)
    world.die("n1")
    world.run(20)
    world.canary = False
    world.run(5)
    world.arm()
    world.run(10)
    assert world.of_kind("restart") == []
    assert any("no order to restart_without: this monitor is blind" in line.text for line in of_run(world).trail)
    world.canary = True
    world.run(60)
    assert len(world.of_kind("restart")) == 1


def test_a_node_that_comes_back_before_anything_was_ordered_is_forgiven() -> None:
    world = trained()
    world.die("n1")
    world.run(15)
    world.thaw("n1")
    world.run(30)
    assert of_run(world).outcome == "passed"
    assert world.orders() == []


# --- a job that its scheduler cancels


@pytest.mark.parametrize("held", [False, True])
def test_a_job_that_is_cancelled_everywhere_is_not_restarted(held: bool) -> None:
    world = trained(spares=("n2",))
    for proc in world.procs:
        world.ends(proc, signal=15, held=held)
    world.run(1)
    for node in TWO:
        world.leaves(node, "gone", "ended by SIGTERM")
    world.leaves("n2", "gone", "ended by SIGTERM")
    world.run(70)
    assert world.orders() == []
    assert [(i.klass, i.action) for i in world.incidents()] == []
    assert [state.outcome for state in world.run_states()] in (["stopped_by_user"], ["abandoned"])


def test_a_cancelled_job_whose_nodes_are_then_switched_off_is_not_restarted() -> None:
    world = trained(spares=("n2",))
    for proc in world.procs:
        world.ends(proc, signal=15)
    for node in TWO:
        world.leaves(node, "gone", "ended by SIGTERM")
    world.run(1)
    for node in (*TWO, "n2"):
        world.machines[node] = "silent"
        world.silent.add(node)
    world.run(120)
    assert world.orders() == []
    assert not [i for i in world.incidents() if i.run_uid]


def test_a_preempted_node_that_says_goodbye_in_order_costs_no_order() -> None:
    """Its torchrun passes SIGTERM on and leaves; the others meet again by themselves."""
    world = trained(spares=("n2",))
    for proc in [proc for proc in world.procs if proc.node == "n1"]:
        world.ends(proc, signal=15)
    world.leaves("n1", "gone", "ended by SIGTERM")
    for proc in [proc for proc in world.procs if proc.node == "n0"]:
        world.ends(proc, signal=15)
    world.asks(["n0"], 2)
    world.run(1)
    world.meets({"n0": 2, "n2": 2}, 2, first_step=50, asks=False)
    world.run(70)
    assert world.of_kind("restart") == []
    assert not [i for i in world.incidents() if i.action not in ("none", "adopt")]
