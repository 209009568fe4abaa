"""A broken GPU in the eyes of the monitor: one incident, what it says, what is done, and what ends it."""

import time

import msgspec
import pytest
from core_world import UTC
from evidence_world import NODES, restarted, starved
from gpu_world import BUS, ECC, LINK, LOST, GpuWorld, believing, trained

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.settings import preset
from rankpulse.core.snapshot_nodes import Place
from rankpulse.core.topology import Topology


def only(world: GpuWorld) -> r.Incident:
    [incident] = world.incidents()
    return incident


def test_a_lost_gpu_by_which_no_job_suffers_is_one_incident_with_a_proposal_and_touches_nobody() -> None:
    world = trained()
    world.breaks("node-b", index=3)
    world.run(20)
    incident = only(world)
    assert (incident.klass, incident.state, incident.nodes) == ("gpu_fault", "open", ("node-b",))
    assert incident.summary == f"GPU lost (Xid 79): node-b, GPU 3 at {BUS}"
    [fault] = incident.faults
    assert (fault.node, fault.bus, fault.index, fault.uuid, fault.what) == ("node-b", BUS, 3, f"GPU-{BUS}", "xid_79")
    assert (fault.source, fault.action) == ("kernel", "drain_reboot")
    assert incident.action == "observe"
    assert (
        f"rankpulse cordon node-b --drain --reason 'GPU lost (Xid 79): node-b, GPU 3 at {BUS}'"
        in incident.action_reason
    )
    assert any("drain the node and reboot it" in reason and "replacement" in reason for reason in incident.reasons)
    assert any("the kernel's log" in reason for reason in incident.reasons)
    assert (world.orders(), world.cordons()) == ([], {})
    assert world.faults_told() == [], "what the incident cites is erased once it is stored"
    assert len(incident.evidence) == 1


def test_the_hang_that_follows_is_its_cascade() -> None:
    world = trained()
    world.breaks("node-b")
    world.run(3)
    world.training = False
    world.run(20)
    incident = only(world)
    assert (incident.klass, incident.summary[:8]) == ("gpu_fault", "GPU lost")
    assert incident.run_uid == "job-1"
    assert {member.node for member in incident.culprits} == {"node-b"}
    assert incident.cascade
    assert not set(incident.cascade) & {member.rank for member in incident.culprits}
    assert any(reason.startswith("then: ") for reason in incident.reasons)
    assert any(line.text.startswith("then: ") for line in incident.trail)
    assert (incident.action, world.of_kind("restart")) == ("observe", [])
    assert any("rankpulse cordon node-b" in reason for reason in incident.reasons)


def test_a_hang_that_was_told_before_the_kernel_spoke_becomes_the_cascade_of_the_gpu() -> None:
    world = trained()
    world.training = False
    world.run(20)
    before = only(world)
    assert before.klass != "gpu_fault"
    world.breaks("node-a")
    world.run(5)
    incident = only(world)
    assert (incident.id, incident.klass, incident.nodes) == (before.id, "gpu_fault", ("node-a",))
    assert {member.node for member in incident.culprits} == {"node-a"}
    assert any(line.text.startswith("corrected: GPU lost") for line in incident.trail)


def test_armed_the_job_that_hangs_is_restarted_without_the_node_once() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b")
    world.training = False
    world.run(20)
    incident = only(world)
    assert (incident.klass, incident.action) == ("gpu_fault", "restart_without")
    [order] = world.of_kind("restart")
    assert order.without == ("node-b",)
    assert world.cordons() == {"node-b": "rankpulse"}
    restarted(world, 2, {"node-a": 2, "node-s": 2})
    world.run(30)
    incident = only(world)
    assert (incident.state, incident.outcome) == ("closed", "recovered")
    assert len(world.of_kind("restart")) <= 1


def test_armed_the_job_that_goes_on_leaves_the_node_after_its_next_checkpoint() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b")
    world.run(10)
    incident = only(world)
    assert (incident.action, incident.run_uid, world.orders()) == ("drain", "job-1", [])
    assert world.cordons() == {"node-b": "rankpulse"}
    detail = {"bytes": 1000, "shards": 4, "kind": "sharded", "save_s": 0.3, "verified": True, "verify_s": 0.1}
    world.observe(r.CHECKPOINT, "node-a", world.procs[0], event="saved", times=1, step=40, **detail)
    world.run(2)
    incident = only(world)
    assert incident.action == "restart_without"
    [order] = world.of_kind("restart")
    assert order.without == ("node-b",)
    restarted(world, 2, {"node-a": 2, "node-s": 2})
    assert only(world).outcome == "recovered"


def test_a_job_that_is_being_drained_and_then_hangs_waits_for_no_checkpoint() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b")
    world.run(5)
    assert only(world).action == "drain"
    world.training = False
    world.run(20)
    assert only(world).action == "restart_without"
    assert [order.without for order in world.of_kind("restart")] == [("node-b",)]


def test_a_worker_that_dies_of_it_is_its_cascade_and_is_not_restarted_there() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b")
    world.run(1)
    victim = world.procs[-1]
    world.ends(victim, code=1, error="RuntimeError", message="CUDA error: unspecified launch failure", held=True)
    world.run(15)
    incident = only(world)
    assert (incident.klass, [m.rank for m in incident.culprits]) == ("gpu_fault", [victim.rank])
    assert incident.action == "restart_without"
    assert [order.without for order in world.of_kind("restart")] == [("node-b",)]


def test_a_fault_on_a_node_without_a_job() -> None:
    world = trained()
    world.breaks("x0")
    world.run(10)
    incident = only(world)
    assert (incident.nodes, incident.run_uid, incident.action) == (("x0",), "", "observe")
    assert "rankpulse cordon x0 --reason" in incident.action_reason
    world.training = False  # somebody else's hang has nothing to do with it
    world.run(20)
    assert world.incidents()[0].klass == "gpu_fault"
    assert len(world.incidents()) == 2
    assert world.incidents()[0].run_uid == ""


def test_armed_a_node_without_a_job_is_kept_out_and_a_person_is_told() -> None:
    world = trained(armed=True)
    world.breaks("x0")
    world.run(10)
    incident = only(world)
    assert (incident.action, incident.state, world.cordons()) == ("page", "open", {"x0": "rankpulse"})
    world.ask("uncordon", node="x0")
    world.run(5)
    incident = only(world)
    assert (incident.state, incident.outcome) == ("closed", "passed")
    assert "x0: a person has let it in again" in incident.trail[-1].text
    world.run(20)
    assert (len(world.incidents()), world.cordons()) == (1, {})


def test_two_gpus_of_one_node_are_one_incident() -> None:
    world = trained()
    world.breaks("node-b", index=0)
    world.run(5)
    world.breaks("node-b", "0000:5e:00", index=1)
    world.run(5)
    incident = only(world)
    assert [fault.bus for fault in incident.faults] == [BUS, "0000:5e:00"]
    assert "and 1 more there" in incident.summary


@pytest.mark.parametrize("domain", ["nvl-1", ""])
def test_eight_nodes_of_one_nvlink_domain_are_one_incident(domain: str) -> None:
    nodes = {f"n{number}": 1 for number in range(8)}
    world = trained(nodes, domain=domain)
    for node in nodes:
        world.breaks(node, fault=LINK)
        world.run(0.2)
    world.run(5)
    if not domain:
        assert len(world.incidents()) == 8, "nobody says that they belong together"
        return
    incident = only(world)
    assert (incident.klass, incident.nodes) == ("nvlink_domain", tuple(nodes))
    assert len(incident.faults) == 8
    assert "n[1-7]" in incident.summary


def test_too_many_at_once_are_a_persons_affair() -> None:
    nodes = {f"n{number}": 1 for number in range(8)}
    world = trained(nodes, domain="nvl-1", armed=True)
    world.put(
        world.keys.run_mode("job-1"), r.RunMode(run_uid="job-1", mode="observe", author="ann", reason="t", at=UTC)
    )
    for node in nodes:
        world.breaks(node, fault=LINK)
    world.put(world.keys.run_mode("job-1"), r.RunMode(run_uid="job-1", mode="armed", author="ann", reason="t", at=UTC))
    world.run(5)
    incident = only(world)
    assert (incident.action, world.cordons()) == ("page", {})
    assert "too many at once" in incident.action_reason


def test_a_storm_of_repeats_opens_nothing_more() -> None:
    world = trained()
    for _ in range(50):
        world.breaks("node-b")
        world.run(0.2)
    incident = only(world)
    assert incident.faults[0].count == 50
    assert len(incident.evidence) <= 64
    assert world.faults_told() == []
    assert len(incident.trail) < 10


def test_a_new_leader_opens_nothing_twice_and_goes_on() -> None:
    world = trained()
    world.breaks("node-b")
    world.run(5)
    before = only(world)
    world.successor(2)
    world.run(10)
    assert only(world).id == before.id
    world.training = False
    world.run(20)
    incident = only(world)
    assert (incident.id, incident.run_uid) == (before.id, "job-1")
    world.successor(3)
    world.run(20)
    assert only(world).id == before.id


def test_a_leader_that_dies_before_it_has_written_loses_nothing() -> None:
    world = trained()
    world.refuse_writes = True
    world.breaks("node-b", only="observation")
    world.run(2)
    world.refuse_writes = False
    world.successor(2)
    world.run(5)
    assert only(world).summary.startswith("GPU lost")


def test_an_agent_that_starts_again_replays_nothing() -> None:
    world = trained()
    world.breaks("node-b")
    world.run(5)
    world.heals("node-b")
    world.run(5)
    assert only(world).state == "closed"
    world.inc["node-b"] = 2
    world.writes("node-b")
    world.run(5)
    assert len(world.incidents()) == 1


def test_it_is_over_by_proof_and_a_return_is_another_incident() -> None:
    world = trained()
    world.breaks("node-b")
    world.run(600, step_s=0.5)
    assert only(world).state == "open", "time proves nothing"
    world.heals("node-b")
    world.run(5)
    incident = only(world)
    assert (incident.state, incident.outcome) == ("closed", "passed")
    assert incident.faults[0].cleared == "its agent has seen the proof"
    world.breaks("node-b")
    world.run(5)
    assert [i.state for i in world.incidents()] == ["closed", "open"]


def test_a_reboot_is_proof_and_silence_about_it_is_none() -> None:
    world = trained()
    world.breaks("x0")
    world.run(5)
    world.books["x0"][BUS].clear()
    world.inc["x0"] = 2
    world.writes("x0")
    world.run(5)
    assert only(world).state == "open"
    state = r.NodeState(
        node="x0", inc=3, at=UTC, host="x0", agent_version="1", interval_s=1.0, boot_id="another",
    )  # fmt: skip
    world.put(world.keys.state("x0"), state)
    world.run(5)
    assert only(world).state == "open", "its boot was not known when it broke"


def test_a_machine_that_was_booted_anew() -> None:
    world = trained()
    world.breaks("node-b")
    world.run(5)
    world.books["node-b"][BUS].clear()
    world.inc["node-b"] = 2
    state = r.NodeState(
        node="node-b", inc=2, at=UTC, host="b", agent_version="1", interval_s=1.0, boot_id="another",
    )  # fmt: skip
    world.put(world.keys.state("node-b"), state)
    world.writes("node-b")
    world.run(5)
    incident = only(world)
    assert (incident.state, incident.faults[0].cleared) == ("closed", "the machine was booted anew")


def test_a_node_in_a_persons_hands_is_over_once_no_job_runs_there() -> None:
    world = trained()
    world.breaks("x0")
    world.breaks("node-b")
    world.run(2)
    for node in ("x0", "node-b"):
        world.ask("cordon", node=node, reason="GPU")
    world.run(5)
    by_node = {i.nodes[0]: i for i in world.incidents()}
    assert (by_node["x0"].state, by_node["node-b"].state) == ("closed", "open")
    assert "in a person's hands" in by_node["x0"].trail[-1].text
    world.run(10)
    assert len(world.incidents()) == 2


def test_a_blind_monitor_tells_and_does_nothing() -> None:
    world = trained(armed=True, spare=True)
    world.canary = False
    world.run(20)
    world.breaks("node-b")
    world.run(5)
    incident = only(world)
    assert (incident.klass, incident.action) == ("gpu_fault", "page")
    assert "blind" in incident.action_reason
    assert (world.cordons(), world.orders()) == ({}, [])
    world.canary = True
    world.run(20)
    assert world.cordons() == {"node-b": "rankpulse"}


def test_what_a_program_wrote_accuses_nobody_unless_it_is_believed() -> None:
    world = trained(armed=True)
    world.breaks("node-b", source="injected")
    finding = world.books["node-b"][BUS]["xid_79"]
    world.turn("node-b", "", "seen", finding, -1, injected=True)
    world.run(10)
    assert (world.incidents(), world.cordons(), world.faults_told()) == ([], {}, [])
    assert any("injected: not believed" in line for line in world.said)
    world = trained(settings=believing())
    world.breaks("node-b", source="injected")
    world.run(10)
    assert only(world).summary.endswith("(injected)")
    assert only(world).faults[0].source == "injected"


def test_faults_of_programs_are_told_and_are_no_incidents() -> None:
    world = trained()
    fault = r.HealthFinding("xid_31", "watch", "restart_app", "XID 31: memory page fault", UTC, UTC, 1, UTC, "kernel")
    world.turn("node-b", BUS, "seen", fault)
    world.run(5)
    assert (world.incidents(), world.faults_told()) == ([], [])
    assert any("XID 31" in line for line in world.said)
    world.ends(world.procs[-1], code=1, error="RuntimeError", message="CUDA error")
    world.run(10)
    incident = only(world)
    assert incident.klass == "worker_dead"
    assert any("XID 31" in reason for reason in incident.reasons), "it is evidence"


def test_a_device_that_does_not_answer_is_told_and_not_acted_upon() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b", fault=("probe_stuck", "unknown", "reset_gpu", "calls to it do not come back"))
    world.run(10)
    incident = only(world)
    assert (incident.action, world.cordons()) == ("page", {})
    assert incident.confidence < 0.9


def test_what_needs_the_vendor_is_a_persons_affair() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b", fault=("xid_64", "sick", "contact_vendor", "XID 64"))
    world.run(10)
    assert (only(world).action, world.cordons()) == ("page", {})


def test_evidence_that_names_another_machine_for_certain_is_an_incident_of_its_own() -> None:
    world = trained()
    world.breaks("node-b", fault=ECC)
    world.run(2)
    world.does, world.training = {1: starved(1)}, False
    world.run(20)
    by_class = {i.klass: i for i in world.incidents()}
    assert by_class.keys() == {"gpu_fault", "data_stall"}
    assert by_class["gpu_fault"].run_uid == ""


def test_a_job_that_outlived_the_fault_by_minutes_hangs_for_another_reason() -> None:
    world = trained()
    world.breaks("node-b", fault=ECC)
    world.run(150)
    world.training = False
    world.run(20)
    assert len(world.incidents()) == 2
    assert world.incidents()[0].run_uid == ""


@pytest.mark.parametrize("repeats", [False, True])
def test_a_new_leader_does_not_take_an_old_fault_for_a_new_one(repeats: bool) -> None:
    world = trained()
    world.breaks("node-b", fault=ECC)
    world.run(600, step_s=0.5)
    if repeats:
        world.breaks("node-b", fault=ECC)
        world.run(2)
    world.successor(2)
    world.run(15)
    world.training = False
    world.run(20)
    assert len(world.incidents()) == (1 if repeats else 2)
    assert world.incidents()[0].run_uid == ("job-1" if repeats else "")


@pytest.mark.parametrize("least", [1, 2])
def test_a_gpu_that_is_told_of_after_the_restart_was_ordered_is_left_where_others_are_enough(least: int) -> None:
    world = trained(armed=True)
    launch = r.Launch(run_uid="job-1", label="job", owner=1, min_nodes=least, max_nodes=2, at=0.0)
    world.put(world.keys.launch("job-1"), launch)
    world.ends(world.procs[-1], code=1, error="RuntimeError", message="CUDA error", held=True)
    world.run(3)
    [order] = world.of_kind("restart")
    assert order.without == ()
    world.breaks("node-b")
    world.run(1)
    assert (only(world).klass, world.cordons()) == ("gpu_fault", {"node-b": "rankpulse"} if least == 1 else {})
    for proc in [proc for proc in world.procs if proc.alive]:
        world.ends(proc, signal=9, order_id=order.order_id)
    world.meets(NODES, 2, first_step=91)  # it did so already
    world.run(8)
    assert world.cordons() == {"node-b": "rankpulse"}
    assert [i.action for i in world.incidents() if i.state == "open"] == ["drain"], "it is on its way off the node"


def test_a_person_who_restarts_a_job_that_is_to_leave_a_node_does_not_wait_for_a_checkpoint() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b")
    world.run(10)
    assert "rankpulse restart ends the round at once" in only(world).action_reason
    world.ask("restart", uid="job-1")
    world.run(2)
    assert len(world.of_kind("restart")) == 1
    assert (only(world).action, only(world).asked_by) == ("restart", "ann")
    world.run(15)
    restarted(world, 2, {"node-a": 2, "node-s": 2})
    assert only(world).outcome == "recovered"


def saves(world: GpuWorld, node: str, step: int) -> None:
    detail = {"bytes": 1000, "shards": 4, "kind": "sharded", "save_s": 0.3, "verified": True, "verify_s": 0.1}
    proc = next(proc for proc in world.procs if proc.node == node)
    world.observe(r.CHECKPOINT, node, proc, event="saved", times=1, step=step, **detail)


def test_a_disarm_stops_what_the_monitor_wants_to_be_left_for_every_job() -> None:
    world = trained(armed=True, spare=True)
    world.meets({"node-b": 2, "x1": 2}, 1, uid="job-2")
    world.run(20)
    world.breaks("node-b")
    world.run(5)
    assert {i.run_uid: i.action for i in world.incidents()} == {"job-1": "drain", "job-2": "drain"}
    world.put(world.keys.arm(), r.Arm(armed=False, author="ann", reason="stop", at=UTC))
    world.run(2)
    saves(world, "node-a", 40)
    saves(world, "x1", 40)
    world.run(5)
    assert {i.action_reason[:30] for i in world.incidents()} == {"waits: orders are not armed: r"}
    world.arm()
    world.run(5)
    assert world.of_kind("restart") == [], "what was saved meanwhile is old by then"
    saves(world, "node-a", 900)
    world.run(2)
    assert [(order.run_uid, order.without) for order in world.of_kind("restart")] == [("job-1", ("node-b",))]


def test_a_drain_that_a_person_takes_over_needs_no_arming() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b")
    world.run(5)
    world.put(world.keys.arm(), r.Arm(armed=False, author="ann", reason="stop", at=UTC))
    world.run(2)
    world.ask("cordon", node="node-b", drain=True)
    world.run(2)
    saves(world, "node-a", 40)
    world.run(2)
    assert [order.without for order in world.of_kind("restart")] == [("node-b",)]
    assert {i.klass: (i.run_uid, i.asked_by) for i in world.incidents()} == {
        "gpu_fault": ("", ""),
        "drain": ("job-1", "ann"),
    }


def test_a_finding_that_is_cleared_ends_no_round() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b", fault=("lost", "broken", "drain_reboot", "it is lost, as NVML says"))
    world.run(10)
    assert only(world).action == "drain"
    world.heals("node-b", what="lost")
    world.run(2)
    saves(world, "node-a", 40)
    world.successor(2)
    world.run(20)
    assert (only(world).state, world.orders()) == ("closed", [])
    assert world.cordons() == {"node-b": "rankpulse"}, "a person lets it in again"


def test_a_hang_that_passes_leaves_the_gpu_broken() -> None:
    world = trained()
    world.breaks("node-b")
    world.training = False
    world.run(20)
    assert only(world).run_uid == "job-1"
    world.training = True
    world.run(20)
    incident = only(world)
    assert (incident.state, incident.run_uid) == ("open", "")
    assert any("every rank moves again" in line.text for line in incident.trail)


def test_a_run_that_ends_leaves_the_gpu_broken() -> None:
    world = trained()
    world.breaks("node-b")
    world.training = False
    world.run(20)
    for proc in list(world.procs):
        world.ends(proc, signal=2)
    for node in NODES:
        world.leaves(node, "failed", "SIGINT")
    world.run(30)
    incident = only(world)
    assert (incident.state, incident.run_uid) == ("open", "")


def test_a_node_that_falls_silent_after_it_is_the_same_incident() -> None:
    world = trained()
    world.breaks("x0")
    world.run(2)
    world.silent.add("x0")
    world.run(120, step_s=0.2)
    incident = only(world)
    assert (incident.klass, incident.nodes) == ("gpu_fault", ("x0",))


def test_a_machine_that_dies_of_it_is_the_same_incident() -> None:
    world = trained()
    world.breaks("node-b")
    world.run(2)
    world.silent.add("node-b")
    world.training = False
    world.run(120, step_s=0.2)
    incident = only(world)
    assert incident.nodes == ("node-b",)
    assert incident.faults
    assert any(isinstance(action, ev.Write) for action in world.actions)


def test_a_machine_that_dies_while_its_job_hangs_because_of_it() -> None:
    world = trained(armed=True, spare=True)
    world.put(
        world.keys.run_mode("job-1"), r.RunMode(run_uid="job-1", mode="observe", author="ann", reason="t", at=UTC)
    )
    world.breaks("node-b")
    world.training = False
    world.run(10)
    assert (only(world).klass, only(world).run_uid) == ("gpu_fault", "job-1")
    world.silent.add("node-b")
    world.run(60, step_s=0.2)
    incident = only(world)
    assert (incident.klass, incident.nodes) == ("node_dead", ("node-b",))
    assert any("XID 79" in reason for reason in incident.reasons)


def test_a_leader_that_dies_between_its_incident_and_its_cordon_makes_the_cordon_again() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b")
    world.run(2)
    assert world.cordons() == {"node-b": "rankpulse"}
    del world.store[world.keys.cordon("node-b")]
    world.successor(2)
    world.run(15)
    incident = only(world)
    assert (incident.state, incident.action, world.cordons()) == ("open", "drain", {"node-b": "rankpulse"})


def test_a_machine_that_falls_silent_long_after_has_an_incident_of_its_own() -> None:
    world = trained()
    world.breaks("x0")
    world.run(400, step_s=0.5)
    world.silent.add("x0")
    world.run(120, step_s=0.2)
    assert [i.klass for i in world.incidents()] == ["gpu_fault", "sidecar_dead"]


@pytest.mark.parametrize("armed", [True, False])
def test_the_next_round_of_torchelastic_itself_forms_without_the_node(armed: bool) -> None:
    world = trained(armed=armed, spare=True)
    world.breaks("node-b")
    world.run(0.3)
    for proc in list(world.procs):
        world.ends(proc, code=1, error="RuntimeError", message="CUDA error")
    world.run(5)
    incident = only(world)
    assert (incident.klass, incident.nodes, incident.action) == ("gpu_fault", ("node-b",), "adopt")
    world.asks(NODES, 2)
    world.run(3)
    gate = world.gates()[-1]
    assert (gate.round, gate.without) == (2, ("node-b",) if armed else ())
    assert (world.cordons(), world.of_kind("restart")) == ({"node-b": "rankpulse"} if armed else {}, [])


def test_a_held_death_without_room_for_the_rest_is_torchelastics_affair() -> None:
    world = trained(armed=True)
    world.put(
        world.keys.launch("job-1"), r.Launch(run_uid="job-1", label="job", owner=1, min_nodes=2, max_nodes=2, at=0.0)
    )
    world.breaks("node-b")
    world.run(0.3)
    world.ends(world.procs[-1], code=1, error="RuntimeError", message="CUDA error", held=True)
    world.run(10)
    incident = only(world)
    assert (incident.klass, incident.action) == ("gpu_fault", "release")
    assert "its device is broken" in incident.action_reason


def test_a_run_in_a_persons_hands_and_an_open_breaker_are_left_alone() -> None:
    world = trained(armed=True, spare=True)
    world.put(world.keys.breaker(), r.Breaker(open=True, author="monitor", reason="a switch", at=UTC))
    world.breaks("node-b")
    world.run(10)
    incident = next(i for i in world.incidents() if i.faults)
    assert (incident.action, world.cordons()) == ("page", {})
    assert "the breaker is open: a switch" in incident.action_reason


def test_a_repeat_after_a_person_has_let_the_node_in_again_is_another_incident() -> None:
    world = trained(armed=True)
    world.breaks("x0")
    world.run(5)
    world.breaks("x0")
    world.run(5)
    world.ask("uncordon", node="x0")
    world.run(5)
    assert only(world).state == "closed"
    world.successor(2)
    world.run(10)
    assert len(world.incidents()) == 1
    world.breaks("x0")
    world.run(5)
    assert [i.state for i in world.incidents()] == ["closed", "open"]


def test_a_job_that_recovers_on_the_broken_gpu_leaves_an_incident_open() -> None:
    world = trained()
    world.breaks("node-b")
    world.run(0.3)
    for proc in list(world.procs):
        world.ends(proc, code=1, error="RuntimeError", message="CUDA error")
    world.run(5)
    assert only(world).action == "adopt"
    world.meets(NODES, 2, first_step=91)
    world.run(10)
    assert [(i.state, i.outcome, i.run_uid) for i in world.incidents()] == [
        ("closed", "recovered", "job-1"),
        ("open", "", ""),
    ]


def test_a_node_that_a_person_lets_in_after_the_job_has_left_it_stays_in() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b")
    world.training = False
    world.run(20)
    restarted(world, 2, {"node-a": 2, "node-s": 2})
    world.run(10)
    world.ask("uncordon", node="node-b")
    world.run(10)
    assert (len(world.incidents()), world.cordons()) == (1, {})
    world.successor(2)
    world.run(10)
    assert (len(world.incidents()), world.cordons()) == (1, {})


def test_maintenance_that_ends_lets_the_node_in() -> None:
    world = trained(armed=True)
    world.ask("maintenance", node="x0")
    world.run(1)
    world.breaks("x0")
    world.run(5)
    assert only(world).state == "closed"
    world.ask("maintenance_end", node="x0")
    world.run(10)
    assert (len(world.incidents()), world.cordons()) == (1, {})


def test_a_person_who_lifts_the_cordon_ends_the_drain() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b")
    world.run(5)
    assert only(world).action == "drain"
    world.ask("uncordon", node="node-b")
    world.run(10)
    incident = only(world)
    assert (incident.state, incident.outcome, world.orders(), world.cordons()) == ("closed", "passed", [], {})


def test_a_job_that_hangs_long_after_it_was_to_leave_the_node_is_restarted_without_it() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b")
    world.run(300, step_s=0.5)
    assert only(world).action == "drain"
    world.training = False  # and so no checkpoint will come
    world.run(30)
    assert only(world).action == "restart_without"
    assert [order.without for order in world.of_kind("restart")] == [("node-b",)]
    assert len(only(world).trail) < 12, "one decision, not one in every tick"


def test_a_worker_that_dies_long_after_its_job_was_to_leave_the_node_does_not_wait_for_a_checkpoint() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b")
    world.run(300, step_s=0.5)
    world.ends(world.procs[-1], code=1, error="RuntimeError", message="CUDA error", held=True)
    world.run(20)
    assert [order.without for order in world.of_kind("restart")] == [("node-b",)]
    assert only(world).action == "restart_without"


def test_a_job_that_is_to_leave_a_node_and_stands_because_of_another_has_two_incidents() -> None:
    world = trained(armed=True, spare=True)
    world.breaks("node-b")
    world.run(300, step_s=0.5)
    world.does, world.training = {1: starved(1)}, False
    world.run(30)
    by_class = {i.klass: i for i in world.incidents() if i.klass != "drain"}
    assert by_class.keys() == {"gpu_fault", "data_stall"}
    assert (by_class["gpu_fault"].state, by_class["gpu_fault"].run_uid) == ("open", "")
    assert by_class["data_stall"].run_uid == "job-1"
    assert by_class["data_stall"].action in ("restart", "page")
    assert world.cordons() == {"node-b": "rankpulse"}, "the next round forms without it all the same"


def of_a_domain(*nodes: str, armed: bool = True) -> GpuWorld:
    """Nodes without a job, all broken at once, in a fleet that is large enough to keep them out."""
    world = trained(armed=armed)
    world.inc |= {f"y{number}": 1 for number in range(40)}
    world.engine.folder.topology = Topology({node: Place(domain="nvl-1") for node in nodes})
    world.run(2)
    for node in nodes:
        world.breaks(node, fault=LINK)
    return world


def test_a_node_of_a_domain_that_is_well_again_is_not_kept_out_for_the_others() -> None:
    world = of_a_domain("x0", "x1", "x2", armed=False)
    world.run(5)
    world.heals("x0", what=LINK[0])
    world.run(1)
    assert "rankpulse cordon x1" in only(world).action_reason
    assert "rankpulse cordon x0" not in only(world).action_reason
    world.arm()
    world.run(5)
    assert only(world).klass == "nvlink_domain"
    assert world.cordons() == {"x1": "rankpulse", "x2": "rankpulse"}


def test_a_node_of_a_domain_that_a_person_lets_in_stays_in() -> None:
    world = of_a_domain("x0", "x1", "x2")
    world.run(5)
    assert world.cordons().keys() == {"x0", "x1", "x2"}
    world.ask("uncordon", node="x0")
    world.run(10)
    world.successor(2)
    world.run(10)
    assert (only(world).state, world.cordons().keys()) == ("open", {"x1", "x2"})


def test_a_reboot_is_proof_also_for_the_next_leader() -> None:
    world = trained()
    boots = {1: "one", 2: "another"}

    def starts(inc: int) -> None:
        world.inc["x0"] = inc
        state = r.NodeState(
            node="x0", inc=inc, at=UTC + world.now, host="x0", agent_version="1", interval_s=1.0, boot_id=boots[inc],
        )  # fmt: skip
        world.put(world.keys.state("x0"), state)

    starts(1)
    world.breaks("x0")
    world.run(5)
    starts(2)
    world.run(1)
    world.successor(2)
    world.run(2)
    world.books["x0"][BUS].clear()
    world.writes("x0")
    world.run(5)
    assert (only(world).state, only(world).faults[0].cleared) == ("closed", "the machine was booted anew")


@pytest.mark.parametrize("count", [0, -3, 10**30])
def test_a_count_that_makes_no_sense_lets_nobody_in(count: int) -> None:
    world = trained()
    finding = r.HealthFinding(*LOST, UTC, UTC, 1, None, "kernel")
    world.turn("node-b", BUS, "opened", msgspec.structs.replace(finding, count=count))
    world.run(5)
    assert (only(world).state, only(world).faults[0].count >= 1) == ("open", True)


def test_a_paused_run_pages_nobody() -> None:
    world = trained(armed=True, spare=True)
    world.put(world.keys.run_mode("job-1"), r.RunMode(run_uid="job-1", mode="paused", author="ann", reason="t", at=UTC))
    world.breaks("node-b")
    world.run(10)
    assert (only(world).action, world.cordons()) == ("none", {})
    assert "paused by ann" in only(world).action_reason
    assert "rankpulse cordon node-b --drain" in only(world).action_reason


def test_many_broken_gpus_of_a_large_job_cost_a_tick_little() -> None:
    world = GpuWorld(preset("drill"))
    world.arm()
    world.meets({f"n{number:04}": 8 for number in range(1024)}, 1)
    world.run(2, step_s=1.0)
    for number in range(100):
        world.breaks(f"n{number:04}", fault=ECC)
    took = []
    for _ in range(6):
        world.now += 0.1
        began = time.process_time()
        world.tick()
        took.append(time.process_time() - began)
    assert len([i for i in world.incidents() if i.faults]) == 100
    assert min(took[2:]) < 0.1, took


def test_a_bug_in_it_hides_nothing_else() -> None:
    world = trained()

    def fails(*, acting: bool) -> None:
        raise KeyError("a bug")

    world.engine.judge._gpus.judge = fails  # type: ignore[method-assign]
    world.engine.judge._gpus.settle = fails  # type: ignore[method-assign]
    world.breaks("node-b")
    world.training = False
    world.run(30)
    assert [incident.klass for incident in world.incidents()] != [], "the standstill is told of all the same"
    assert len([line for line in world.said if "broken GPUs cannot be judged, a bug in rankpulse" in line]) == 1


def test_a_node_that_is_to_be_left_is_no_page_because_the_monitor_was_blind_for_a_moment() -> None:
    """The cordon was decided and its write lost: what is seen meanwhile is old, and the decision stands."""
    world = trained(armed=True, spare=True)
    apply = world.apply
    world.apply = lambda action: None if getattr(action, "key", "").endswith("/cordons/node-b") else apply(action)  # type: ignore[method-assign]
    world.breaks("node-b")
    world.run(0.5)
    world.canary = False
    world.run(5)
    world.relist()
    world.run(5)
    incident = only(world)
    assert (incident.action, world.keys.cordon("node-b") in world.store) == ("drain", False)
    assert [line for line in incident.trail if line.text.startswith("not kept out yet: this monitor is blind")]
    world.apply, world.canary = apply, True  # type: ignore[method-assign]
    world.run(20)
    assert (only(world).action, world.cordons()) == ("drain", {"node-b": "rankpulse"})
    assert not [line for line in only(world).trail if line.text.startswith("action page")]
