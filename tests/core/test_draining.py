"""A node that works is left after the next checkpoint, at a person's word; and what maintenance means."""

from typing import Any

import msgspec
import pytest
from core_world import Proc
from silence_world import SilenceWorld
from silence_world import settings as fast

from rankpulse.core import codec, policy
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.draining import Case, choose
from rankpulse.core.policy import Room
from rankpulse.core.settings import Settings, WebhookSettings
from rankpulse.core.targets import WebhookTarget

ROOM, NO_ROOM = Room(1, 1, 2, 2), Room(1, 0, 2, 2)
TWO = {"n0": 2, "n1": 2}


@pytest.mark.parametrize(
    ("case", "action", "why"),
    [
        (Case(ROOM), "drain", "as soon as the next checkpoint is saved"),
        (Case(ROOM, saves=0), "drain", "first checkpoint"),
        (Case(ROOM, saved_step=70), "restart_without", "of step 70"),
        (Case(ROOM, silent="n1"), "restart_without", "n1 is silent already"),
        (Case(NO_ROOM, saved_step=70), "drain", "waits for another node"),
        (Case(NO_ROOM, silent="n1"), "drain", "waits for another node"),
        (Case(Room(0, 1, 1, 1), saved_step=70), "restart_without", "of step 70"),
        (Case(Room(0, 1, 1, 1), silent="n1"), "drain", "waits for another node"),  # who would end its round?
        (Case(Room(0, 0, 1, 1), saved_step=70), "drain", "no node of the round would be left and 0 spares wait"),
        (Case(ROOM, "the breaker is open", "n1", 70), "drain", "waits: the breaker is open"),
    ],
)
def test_what_is_done_by_now(case: Case, action: str, why: str) -> None:
    choice = choose(case)
    assert choice.action == action
    assert why in choice.reason


def trained(*, spare: bool = True, armed: bool = True, chosen: Settings | None = None) -> SilenceWorld:
    world = SilenceWorld(settings=chosen or fast())
    if armed:
        world.arm()
    world.put(
        world.keys.launch("job-1"), r.Launch(run_uid="job-1", label="job", owner=1, min_nodes=2, max_nodes=2, at=0.0)
    )
    for node in ("n2", *(f"x{n}" for n in range(5))):
        world.states(node)
    world.joins(TWO)
    if spare:
        world.torchrun("n2", 1)
    world.run(40)
    assert world.incidents() == []
    return world


def saves(world: SilenceWorld, proc: Proc, step: int, **more: Any) -> None:
    detail = {"bytes": 1000, "shards": 4, "kind": "sharded", "save_s": 0.3, "verified": True, "verify_s": 0.1, **more}
    world.observe(r.CHECKPOINT, proc.node, proc, event="saved", times=1, step=step, **detail)


def drain(world: SilenceWorld, how: str = "cordon", node: str = "n1") -> None:
    more: dict[str, Any] = {"drain": True} if how == "cordon" else {}
    world.ask(how, node=node, reason="fan broken", **more)
    world.run(1)


@pytest.mark.parametrize("armed", [True, False])
@pytest.mark.parametrize("how", ["cordon", "maintenance"])
def test_a_job_leaves_the_node_after_its_next_checkpoint_and_not_before(how: str, armed: bool) -> None:
    world = trained(armed=armed)
    saves(world, world.procs[0], 20)
    world.run(1)
    drain(world, how)
    world.run(30)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.asked_by, incident.nodes) == ("drain", "drain", "ann", ("n1",))
    assert world.orders() == []
    saves(world, world.procs[0], 40)
    world.run(0.5)
    [order] = world.orders()
    assert (order.kind, order.without, order.round, order.culprits) == ("restart", ("n1",), 1, ())
    for proc in world.procs:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.asks(["n0"], 2)
    world.run(0.5)
    gate = world.gates()[-1]
    assert (gate.round, gate.without) == (2, ("n1",))
    world.meets({"n0": 2, "n2": 2}, 2, first_step=41, asks=False)
    world.run(5)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome, incident.restarts) == ("closed", "recovered", 1)
    world.run(60)
    assert len(world.incidents()) == 1
    assert len(world.of_kind("restart")) == 1


def test_a_cordon_alone_touches_nobody() -> None:
    world = trained()
    world.ask("cordon", node="n1")
    world.run(1)
    saves(world, world.procs[0], 40)
    world.run(30)
    assert (world.incidents(), world.orders()) == ([], [])


def test_a_drain_waits_for_a_spare() -> None:
    world = trained(spare=False)
    drain(world)
    saves(world, world.procs[0], 40)
    world.run(10)
    [incident] = world.incidents()
    assert (incident.action, world.orders()) == ("drain", [])
    assert "waits for another node: 1 of 2 nodes are left and 0 spares wait" in incident.action_reason
    world.torchrun("n2", 1)
    world.run(10)
    assert world.orders() == [], "what was saved while it waited is old by now"
    saves(world, world.procs[0], 60)
    world.run(1)
    assert [order.without for order in world.orders()] == [("n1",)]


def test_the_only_node_of_a_round_is_left_for_a_spare() -> None:
    world = SilenceWorld(settings=fast())
    world.put(
        world.keys.launch("job-1"), r.Launch(run_uid="job-1", label="job", owner=1, min_nodes=1, max_nodes=1, at=0.0)
    )
    for node in ("n2", *(f"x{n}" for n in range(5))):
        world.states(node)
    world.joins({"n1": 2})
    world.run(40)
    drain(world)
    saves(world, world.procs[0], 40)
    world.run(2)
    assert "no node of the round would be left and 0 spares wait, it needs 1" in world.incidents()[0].action_reason
    world.torchrun("n2", 1)
    world.run(1)
    saves(world, world.procs[0], 60)
    world.run(1)
    assert [order.without for order in world.orders()] == [("n1",)]


def test_a_drain_is_taken_back() -> None:
    world = trained()
    drain(world)
    world.ask("uncordon", node="n1")
    world.run(1)
    saves(world, world.procs[0], 40)
    world.run(5)
    [incident] = world.incidents()
    assert (incident.outcome, world.orders()) == ("passed", [])


def test_a_drain_that_is_taken_back_once_it_was_ordered_is_followed_to_its_end() -> None:
    """Workers may still have to be killed, and somebody has to tell whether the job came back."""
    world = trained()
    drain(world)
    saves(world, world.procs[0], 40)
    world.run(0.5)
    [order] = world.orders()
    world.ask("uncordon", node="n1")
    world.run(30)
    [incident] = world.incidents()
    assert (incident.state, incident.rung) == ("open", "kill"), "nobody has obeyed"
    for proc in world.procs:
        world.ends(proc, signal=9, order_id=order.order_id)
    world.meets(TWO, 2, first_step=41)
    world.run(5)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome) == ("closed", "recovered")


def test_a_crash_before_the_checkpoint_is_acted_upon_and_the_next_round_is_without_the_node() -> None:
    world = trained()
    drain(world)
    world.ends(world.procs[0], signal=11, held=True)
    world.run(2)
    [order] = world.orders()
    assert (order.kind, order.round) == ("restart", 1)
    assert order.incident != world.incidents()[0].id
    for proc in world.procs:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.asks(["n0"], 2)
    world.run(0.5)
    assert world.gates()[-1].without == ("n1",)
    world.meets({"n0": 2, "n2": 2}, 2, first_step=41, asks=False)
    world.run(8)
    assert [(i.klass, i.state) for i in world.incidents()] == [("drain", "closed"), ("worker_dead", "closed")]
    assert len(world.orders()) == 1


def test_a_new_leader_waits_for_the_same_checkpoint() -> None:
    world = trained()
    saves(world, world.procs[0], 20)
    world.run(1)
    drain(world)
    world.successor(2)
    world.run(10)
    assert (len(world.incidents()), world.orders()) == (1, [])
    saves(world, world.procs[0], 40)
    world.run(1)
    assert len(world.orders()) == 1
    world.successor(3)
    world.run(10)
    assert (len(world.incidents()), len(world.of_kind("restart"))) == (1, 1)


@pytest.mark.parametrize("ends", [False, True])
def test_a_drained_node_that_dies_is_one_restart_and_one_webhook(ends: bool) -> None:
    """Two incidents rest on one order; where it brings nothing only one of them climbs."""
    hook = WebhookTarget(name="slurm", url="https://hook.example/", events=("restart",), secret_file="/s")
    world = trained(chosen=msgspec.structs.replace(fast(), webhook=WebhookSettings(targets=(hook,))))
    drain(world)
    world.die("n1")
    while not world.orders():
        world.run(1)
    [order] = world.orders()
    for proc in [proc for proc in world.procs if proc.node == "n0"]:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.observe(r.ORDER_DONE, "n0", order_id=order.order_id, killed=0)
    if ends:
        world.leaves("n0", "failed", "rank 0 ended with exit code 1")
    world.run(world.settings.policy.round_s + 10)
    incidents = [incident for incident in world.incidents() if incident.order_id]
    assert len(incidents) == 2
    assert sorted(incident.rung for incident in incidents) == ["order", "webhook"]
    assert sum("restart/slurm" in incident.told for incident in incidents) == 1


def test_a_paused_run_is_not_drained() -> None:
    world = trained()
    mode = r.RunMode(run_uid="job-1", mode="paused", author="bob", reason="debugging", at=0.0)
    world.put(world.keys.run_mode("job-1"), mode)
    drain(world)
    saves(world, world.procs[0], 40)
    world.run(5)
    [incident] = world.incidents()
    assert (incident.action, world.orders()) == ("drain", [])
    assert "waits: the run is paused by bob: debugging" in incident.action_reason
    world.erase(world.keys.run_mode("job-1"))
    world.run(1)
    saves(world, world.procs[0], 60)
    world.run(1)
    assert len(world.orders()) == 1


# --- maintenance


def test_the_silence_of_a_node_in_maintenance_is_nobodys_fault_and_its_job_goes_on() -> None:
    world = trained()
    world.ask("maintenance", node="n1", reason="new disk")
    world.run(1)
    world.die("n1")
    world.run(20)
    [order] = world.of_kind("restart")
    assert order.without == ("n1",)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("drain", policy.RESTART_WITHOUT)
    assert "n1 is silent already" in incident.action_reason


def test_a_node_that_nobody_needs_is_silent_in_maintenance_without_an_incident() -> None:
    world = trained()
    world.ask("maintenance", node="x1")
    world.run(1)
    world.silent.add("x1")
    world.machines["x1"] = "silent"
    world.run(120)
    assert world.incidents() == []
    world.silent.discard("x1")
    world.machines.pop("x1")
    world.run(10)
    world.ask("maintenance_end", node="x1")
    world.run(5)
    assert (world.incidents(), world.engine.folder.modes.maintenance) == ([], {})
    learned = world.engine.folder.memory.stored
    assert learned is None or learned.healed == 0


def test_requests_about_maintenance_are_answered_in_words() -> None:
    world = trained()
    world.ask("maintenance_end", node="x1")
    world.ask("maintenance", node="x1", reason="first")
    world.ask("maintenance", node="x1", reason="second")
    world.ask("maintenance", node="../leader")
    world.run(1)
    text = "\n".join(world.said)
    assert "refused: x1 is not in maintenance" in text
    assert "refused: x1 is in maintenance already, by ann: first" in text
    assert "use letters, digits" in text
    assert not [key for key in world.store if "/requests/" in key]


# --- cordons


def test_a_cordon_with_a_time_is_lifted_by_the_leaders_own_clock() -> None:
    world = trained()
    world.ask("cordon", node="x1", for_s=100.0)
    world.ask("cordon", node="x2")
    world.run(99)
    assert set(world.engine.folder.joint.cordons) == {"x1", "x2"}
    world.run(3)
    assert set(world.engine.folder.joint.cordons) == {"x2"}
    assert world.keys.cordon("x1") not in world.store


def test_a_person_takes_over_a_cordon_of_ours() -> None:
    world = trained()
    cordon = r.Cordon(node="x1", author="monitor", reason="three times", at=0.0, owner="rankpulse")
    world.put(world.keys.cordon("x1"), cordon)
    world.ask("cordon", node="x1", reason="ticket 12")
    world.run(1)
    stands = world.engine.folder.joint.cordons["x1"]
    assert (stands.owner, stands.author, stands.reason) == ("person", "ann", "ticket 12")


def wanted_now(world: SilenceWorld) -> r.SaveNow | None:
    found = world.store.get(world.keys.save_now("job-1"))
    return codec.decode(r.SaveNow, found[0]) if found is not None else None


@pytest.mark.parametrize("how", ["cordon", "maintenance"])
def test_a_checkpoint_is_asked_for_where_nothing_else_is_waited_for(how: str) -> None:
    world = trained()
    saves(world, world.procs[0], 20)
    world.run(1)
    assert wanted_now(world) is None
    drain(world, how)
    [incident] = world.incidents()
    asked = wanted_now(world)
    assert asked is not None
    assert (asked.round, asked.incident, asked.why) == (1, incident.id, "n1 to be left once a checkpoint is saved")
    writes = [action for action in world.actions if isinstance(action, ev.Write | ev.Create)]
    world.successor(epoch=2)
    world.run(30)
    again = [action for action in world.actions if isinstance(action, ev.Write | ev.Create)][len(writes) :]
    assert [one for one in again if one.key == world.keys.save_now("job-1")] == [], "asked once, by whoever leads"


def test_no_checkpoint_is_asked_for_that_would_not_help() -> None:
    """No spare: what is saved now is old when one comes. Breaker, pause: nothing may be ordered. None was ever told."""
    world = trained(spare=False)
    saves(world, world.procs[0], 20)
    drain(world)
    assert wanted_now(world) is None
    world.torchrun("n2", 1)
    world.run(2)
    assert wanted_now(world) is not None

    world = trained()
    saves(world, world.procs[0], 20)
    world.run(1)
    world.put(
        world.keys.run_mode("job-1"), r.RunMode(run_uid="job-1", mode="paused", author="bob", reason="a demo", at=0.0)
    )
    drain(world)
    assert wanted_now(world) is None
    world = trained()
    drain(world)
    assert wanted_now(world) is None, "who tells of no checkpoint is not asked for one"


def test_a_request_for_a_checkpoint_goes_when_its_round_is_long_past() -> None:
    world = trained()
    saves(world, world.procs[0], 20)
    world.run(1)
    drain(world)
    assert wanted_now(world) is not None
    saves(world, world.procs[0], 40)
    world.run(0.5)
    [order] = world.orders()
    for proc in world.procs:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.asks(["n0"], 2)
    world.run(0.5)
    world.meets({"n0": 2, "n2": 2}, 2, first_step=41, asks=False)
    world.run(5)
    for number, first in ((3, 60), (4, 80)):
        for proc in world.procs:
            world.ends(proc, signal=9)
        world.run(3)
        world.asks(["n0", "n2"], number)
        world.run(0.5)
        world.meets({"n0": 2, "n2": 2}, number, first_step=first, asks=False)
        world.run(20)
    assert wanted_now(world) is None


def test_a_checkpoint_that_lies_on_the_nodes_alone_is_no_reason_to_leave_one() -> None:
    """It would go with the node. One of before, that is complete elsewhere only now, is old."""
    world = trained()
    saves(world, world.procs[0], 20, local=True)
    world.run(1)
    drain(world)
    saves(world, world.procs[0], 40, local=True)
    uploaded = {"event": "uploaded", "times": 1, "upload_s": 2.0, "place": "/shared"}
    world.observe(r.CHECKPOINT, world.procs[0].node, world.procs[0], step=20, **uploaded)
    world.run(20)
    assert world.orders() == []
    world.observe(r.CHECKPOINT, world.procs[0].node, world.procs[0], step=40, **uploaded)
    world.run(0.5)
    [order] = world.orders()
    assert (order.kind, order.without) == ("restart", ("n1",))
