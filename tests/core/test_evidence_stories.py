"""Standstills that are diagnosed from what the nodes tell: what is said, what is done, and what is kept of it."""

import time

import pytest
from core_world import UTC
from evidence_world import NODES, EvidenceWorld, elsewhere, locked, restarted, stands, starved, trained, waiting

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.assessing import Assessor
from rankpulse.core.evidence import Position as RowPosition
from rankpulse.core.settings import parse
from rankpulse.core.snapshot import Rank
from rankpulse.core.snapshot_nodes import Device, Node, Xid
from rankpulse.core.standstill import Stand


def test_a_lock_in_the_program_is_named_with_its_rank_and_ended() -> None:
    world = trained()
    incident = stands(world, {2: locked(2)})
    assert (incident.klass, incident.action) == ("collective_hang", "restart")
    assert ([m.rank for m in incident.culprits], incident.nodes) == ([2], ("node-b",))
    assert "waiting for a lock" in incident.summary
    assert incident.confidence >= 0.9
    assert incident.signature == "collective_hang:lock"
    assert len(world.of_kind("restart")) == 1
    assert {ask.node for ask in world.questions} == set(NODES)
    assert len(world.questions) == 2, "each node is asked once"


def test_a_stopped_rank_is_found_as_before_and_says_why() -> None:
    world = trained()
    world.procs[1].state = "T"
    incident = stands(world, {1: Rank(1, state="T", wchan="do_signal_stop", dump="not asked: the process is stopped")})
    assert (incident.klass, incident.action, [m.rank for m in incident.culprits]) == ("collective_hang", "restart", [1])
    assert incident.signature == "collective_hang:stopped"
    assert (incident.foreign, incident.confidence >= 0.95) == (True, True)
    assert world.findings()[incident.id].confidence == incident.confidence


def test_what_the_evidence_came_to_stands_before_the_incident_and_tells_the_same() -> None:
    world = trained()
    incident = stands(world, {2: locked(2)})
    finding = world.findings()[incident.id]
    assert (finding.klass, finding.summary, finding.signature) == (
        incident.klass, incident.summary, incident.signature,
    )  # fmt: skip
    assert [rank.rank for rank in finding.culprits] == [2]
    assert finding.culprits[0].stack[-1] == "threading.py:300 acquire"
    assert finding.dumps[0].rank == 2
    assert (finding.asked, finding.answered, finding.missing) == (("node-a", "node-b"), ("node-a", "node-b"), ())
    assert finding.stacks
    kinds = [type(a.record) for a in world.actions if isinstance(a, ev.Write)]
    assert kinds.index(r.Finding) < kinds.index(r.Incident)


@pytest.mark.parametrize("nodes", [NODES, {"node-a": 4}])
def test_a_data_loader_whose_worker_is_dead_is_a_data_stall_and_ended(nodes: dict[str, int]) -> None:
    world = trained(nodes)
    incident = stands(world, {1: starved(1)})
    assert (incident.klass, incident.action, [m.rank for m in incident.culprits]) == ("data_stall", "restart", [1])
    assert len(world.of_kind("restart")) == 1


def test_storage_that_does_not_move_calls_a_person() -> None:
    world = trained()
    stuck = elsewhere(3, "checkpoint.py:12 save", "torch/serialization.py:9 write", io_moving=False)
    incident = stands(world, {3: stuck})
    assert (incident.klass, incident.action) == ("storage_stall", "page")
    assert world.of_kind("restart") == []


def test_ranks_that_call_different_things_call_a_person_the_first_time_and_stop_the_job_the_second() -> None:
    world = trained()
    odd = {1: waiting(1, op="broadcast")}
    first = stands(world, odd)
    assert (first.klass, first.action, [m.rank for m in first.culprits]) == ("collective_mismatch", "page", [1])
    assert world.of_kind("restart") == []
    world.ask("restart", uid="job-1")
    world.run(1)
    restarted(world, 2)
    second = stands(world, odd)
    assert (second.klass, second.action) == ("collective_mismatch", "stop")
    assert any("seen 1 time before" in reason for reason in second.reasons)


def test_a_fault_of_the_culprits_gpu_is_the_cause_and_the_job_goes_on_without_its_node() -> None:
    world = trained({"node-a": 2, "node-b": 2, "node-c": 2})
    world.devices["node-b"] = (Device(gpu=0, rank=2, xids=(Xid(79, at=UTC + world.now),)),)
    incident = stands(world, {2: Rank(2, state="D", cpu_moving=False, dump="no answer within 1 s")})
    assert (incident.klass, incident.nodes) == ("gpu_fault", ("node-b",))
    assert (incident.action, len(world.incidents())) == ("restart_without", 1)
    [order] = world.of_kind("restart")
    assert order.without == ("node-b",)
    assert world.keys.cordon("node-b") in world.store


def test_a_kernel_line_about_the_gpu_of_whoever_is_waited_for_is_the_cause() -> None:
    world = trained({"node-a": 2, "node-b": 2, "node-c": 2})
    line = "NVRM: Xid (PCI:0000:18:00): 79, pid=4242, GPU has fallen off the bus."
    world.reports["node-b"] = Node("another node", kernel=(line,))
    incident = stands(world, {2: elsewhere(2, "torch/cuda/__init__.py:9 synchronize")})
    assert (incident.klass, incident.nodes) == ("gpu_fault", ("node-b",))


def test_a_rank_at_work_is_slow_and_nobody_is_restarted() -> None:
    world = trained()
    world.does, world.training = {1: elsewhere(1, "train.py:80 sort", cpu_moving=True)}, False
    world.run(20)
    assert world.incidents() == []
    world.training = True
    world.run(5)
    assert (world.incidents(), world.of_kind("restart"), world.orders()) == ([], [], [])


def test_everybody_in_and_nothing_moves_blames_no_rank_and_calls_a_person_without_more() -> None:
    world = trained()
    incident = stands(world, {}, 9.0)
    assert (incident.klass, incident.action, incident.culprits) == ("network_stall", "page", ())
    assert world.of_kind("restart") == []


# --- what may be missing, late, old or wrong


def test_a_node_that_cannot_be_asked_answers_in_the_store() -> None:
    world = trained()
    world.deaf.add("node-b")
    world.does, world.training = {2: locked(2)}, False
    while not world.of_kind("collect"):
        world.run(0.1)
    [order] = world.of_kind("collect")
    asked = next(ask for ask in world.questions if ask.node == "node-b")
    world.engine.step(
        ev.Told("node-b", asked.order_id, None, "unknown op collect: this agent answers probe", world.now)
    )
    positions = {2: (RowPosition("w", 7, 7, "all_reduce"),), 3: (RowPosition("w", 8, 7, "all_reduce"),)}
    world.answers(order, "node-b", positions)
    world.run(4)
    [incident] = world.incidents()
    assert ([m.rank for m in incident.culprits], incident.action) == ([2], "restart")
    assert world.findings()[incident.id].answered == ("node-a", "node-b")


def test_where_no_agent_can_be_asked_the_store_is_enough() -> None:
    world = trained()
    world.deaf.update(NODES)
    world.does, world.training = {}, False
    while not world.of_kind("collect"):
        world.run(0.1)
    [order] = world.of_kind("collect")
    for node in NODES:
        positions = {rank: (RowPosition("w", 7 if rank == 1 else 8, 7, "all_reduce"),) for rank in range(4)}
        world.answers(order, node, positions)
    world.run(6)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, [m.rank for m in incident.culprits]) == ("collective_hang", "restart", [1])
    assert world.findings() == {}


def test_evidence_that_comes_late_betters_the_incident_and_its_finding() -> None:
    world = trained()
    world.deaf.update(NODES)
    world.does, world.training = {1: starved(1)}, False
    world.run(9)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("unknown", "page")
    for ask in world.questions[:2]:
        world.engine.step(ev.Told(ask.node, ask.order_id, world.part(ask), "", world.now))
    world.run(1)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("data_stall", "restart")
    assert world.findings()[incident.id].klass == "data_stall"
    assert len(world.of_kind("restart")) == 1


def test_parts_of_strangers_blame_nobody() -> None:
    world = trained()
    world.deaf.update(NODES)
    world.training = False
    while not world.questions:
        world.run(0.1)
    first, second = world.questions[:2]
    world.does = {3: locked(3)}
    lie = world.part(second)
    wrong = [
        ev.Told("node-a", first.order_id, lie, "", world.now),  # in the name of another node
        ev.Told("node-c", first.order_id, lie, "", world.now),  # nobody asked it
        ev.Told("node-b", "c9999-0001", lie, "", world.now),  # about another order
    ]
    for event in wrong:
        world.engine.step(event)
    world.procs[3].pid += 1  # another process by now
    part = world.part(second)
    world.procs[3].pid -= 1
    world.engine.step(ev.Told("node-b", second.order_id, part, "", world.now))
    world.run(9)
    [incident] = world.incidents()
    assert 3 not in [m.rank for m in incident.culprits]
    assert world.of_kind("restart") == []


def test_where_the_two_rules_name_somebody_else_a_person_decides() -> None:
    """Positions in the store blame one rank, a stack that was told directly another."""
    world = trained()
    world.deaf.add("node-b")
    world.does, world.training = {0: Rank(0, state="S", stack=("train.py:1 f", "threading.py:300 acquire"))}, False
    while not world.of_kind("collect"):
        world.run(0.1)
    [order] = world.of_kind("collect")
    asked = next(ask for ask in world.questions if ask.node == "node-b")
    world.engine.step(ev.Told("node-b", asked.order_id, None, "unknown op", world.now))
    world.answers(order, "node-b", {2: (RowPosition("w", 7, 7, "all_reduce"),), 3: (RowPosition("w", 8, 7, "x"),)})
    world.run(6)
    [incident] = world.incidents()
    assert world.of_kind("restart") == []
    assert incident.action == "page"


# --- jobs that are too large to be thought about between two beats


def test_a_large_job_is_diagnosed_by_the_shell_and_comes_to_the_same() -> None:
    world = trained()
    world.engine.folder.diagnoses.at_once_max = 3
    incident = stands(world, {2: locked(2)}, 8.0)
    assert (incident.klass, incident.action, [m.rank for m in incident.culprits]) == ("collective_hang", "restart", [2])
    assert incident.signature == "collective_hang:lock"
    assert (len(world.incidents()), len(world.of_kind("restart"))) == (1, 1)


def test_nothing_is_said_of_a_large_job_while_the_verdict_is_on_its_way() -> None:
    world = trained()
    world.engine.folder.diagnoses.at_once_max, world.thinks_s = 3, 12.0
    world.does, world.training = {2: locked(2)}, False
    world.run(10)
    assert world.incidents() == []
    world.run(10)
    assert [incident.klass for incident in world.incidents()] == ["collective_hang"]


def test_a_verdict_that_never_comes_leaves_what_was_weighed() -> None:
    world = trained()
    world.engine.folder.diagnoses.at_once_max, world.thinks_s = 3, None
    incident = stands(world, {2: locked(2)}, 45.0)
    assert (incident.klass, [m.rank for m in incident.culprits]) == ("collective_hang", [2])
    assert any("no verdict" in line for line in world.said)


# --- leaders that die


@pytest.mark.parametrize("stop_after", range(1, 8))
def test_a_monitor_that_dies_between_any_two_writes_leaves_one_incident_one_order_and_its_finding(
    stop_after: int,
) -> None:
    world = trained()
    world.does, world.training = {2: locked(2)}, False
    writes = 0
    apply = world.apply

    def until(action: ev.Action) -> None:
        nonlocal writes
        written = isinstance(action, ev.Write | ev.Create) and isinstance(
            action.record, r.Finding | r.Incident | r.Order
        )
        if writes < stop_after or not isinstance(action, ev.Write | ev.Create | ev.Erase):
            writes += written
            apply(action)

    world.apply = until  # type: ignore[method-assign]
    world.run(5)
    world.apply = apply  # type: ignore[method-assign]
    world.successor(2)
    world.run(10)
    incidents = [incident for incident in world.incidents() if incident.klass == "collective_hang"]
    assert len(incidents) == len(world.incidents()) == 1
    assert len(world.of_kind("restart")) == 1
    assert world.findings().keys() == {incidents[0].id}
    assert world.findings()[incidents[0].id].summary == incidents[0].summary


def test_a_finding_goes_with_its_incident() -> None:
    world = trained()
    incident = stands(world, {2: locked(2)})
    assert incident.id in world.findings()
    world.erase(world.keys.incident(incident.id))
    world.successor(2)
    world.does, world.training = {}, True
    world.run(5)
    assert incident.id not in world.findings()


# --- the same again


def test_the_same_failure_on_the_same_node_leaves_that_node_out() -> None:
    nodes = {"node-a": 2, "node-b": 2, "node-c": 2}
    world = trained(nodes)
    slow = elsewhere(2, "train.py:70 augment")
    assert stands(world, {2: slow}).action == "restart"
    restarted(world, 2, nodes, first_step=91)
    world.run(60)
    incident = stands(world, {2: slow})
    assert any("the same failure was seen 1 time before, on node-b" in reason for reason in incident.reasons)
    assert any("the last fix (restart) did not hold" in reason for reason in incident.reasons)
    assert (incident.action, incident.nodes) == ("restart_without", ("node-b",))
    assert world.of_kind("restart")[-1].without == ("node-b",)
    assert world.keys.cordon("node-b") in world.store
    assert world.findings()[incident.id].seen.times == 1


def test_the_same_failure_at_the_same_step_stops_the_job() -> None:
    world = trained()
    where = {2: locked(2)}
    first = stands(world, where)
    restarted(world, 2, first_step=first.fault_step - 20)
    while max(proc.step for proc in world.procs if proc.alive) < first.fault_step:
        world.run(0.1)
    second = stands(world, where)
    if second.fault_step == first.fault_step:
        assert (second.action, len(world.of_kind("restart"))) == ("stop", 2)


def test_one_that_went_on_between_two_looks_is_at_work_and_what_is_kept_says_so() -> None:
    """An evaluation without a word, told directly: somebody is behind at each look."""
    world = trained(settings=parse({"preset": "drill", "policy": {"hang_act_s": 10.0}}))
    world.does, world.training = {1: elsewhere(1, "train.py:80 score")}, False
    world.run(5)
    assert [i.action for i in world.incidents()] == ["wait"]
    world.does = {rank: waiting(rank, seq=108) for rank in range(4)}
    world.does[1] = elsewhere(1, "train.py:80 score", seq=107)
    world.run(15)
    [incident] = world.incidents()
    assert (incident.klass, incident.culprits, incident.signature) == ("unknown", (), "")
    assert "went on in its collectives between two looks" in " ".join(incident.reasons)
    finding = world.findings()[incident.id]
    assert (finding.klass, finding.signature, finding.reasons) == ("unknown", "", incident.reasons)
    assert world.of_kind("restart") == []


def test_a_new_leader_finds_the_incident_open_and_acts_by_what_it_says() -> None:
    world = trained(armed=False)
    incident = stands(world, {1: starved(1)})
    assert (incident.klass, incident.action) == ("data_stall", "observe")
    world.run(15)
    world.successor(2)
    world.arm()
    world.run(10)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.signature) == ("data_stall", "restart", "data_stall:loader dead")
    assert len(world.of_kind("restart")) == 1
    assert world.findings().keys() == {incident.id}


def test_a_new_leader_leaves_out_the_machine_that_failed_twice_as_the_one_before_it_would_have() -> None:
    nodes = {"node-a": 2, "node-b": 2, "node-c": 2}
    world = trained(nodes)
    slow = elsewhere(2, "train.py:70 augment")
    assert stands(world, {2: slow}).action == "restart"
    restarted(world, 2, nodes, first_step=91)
    world.run(60)
    world.put(world.keys.arm(), r.Arm(armed=False, author="ann", reason="test", at=0.0))
    assert stands(world, {2: slow}).action == "observe"
    world.run(15)
    world.successor(2)
    world.arm()
    world.run(10)
    assert world.incidents()[-1].action == "restart_without"
    assert world.of_kind("restart")[-1].without == ("node-b",)


def test_a_node_that_claims_the_place_of_others_has_only_itself_blamed() -> None:
    world = trained({"node-a": 2, "node-b": 2, "node-c": 2, "node-d": 2})
    for node in ("node-a", "node-c"):
        world.reports[node] = Node(node, domain="d1")
    world.reports["node-b"] = Node("node-b", domain="d1", rack="r1")
    world.devices["node-b"] = tuple(
        Device(gpu=gpu, rank=2 + gpu, domain="d1", xids=(Xid(74, at=UTC + world.now),)) for gpu in range(2)
    )
    incident = stands(world, {2: elsewhere(2, "torch/cuda/__init__.py:9 synchronize")})
    assert incident.nodes == ("node-b",)
    assert world.of_kind("restart") == []


def test_what_a_large_job_costs_the_loop_itself_grows_with_its_ranks_and_no_faster() -> None:
    """Everything but the diagnosis, which is made beside the loop. CPU time: the machine may be busy."""
    nodes = {f"n{number:04d}": 8 for number in range(512)}
    world = trained_large(nodes)
    [run] = world.engine.folder.fleet.runs.values()
    desk = world.engine.judge._desk
    desk.begin(world.now, UTC + world.now, 1)
    order = r.Order(
        order_id="c1", run_uid=run.uid, run_id="", round=1, kind="collect-9", epoch=1, incident="", reason="",
        author="", at=0.0,
    )  # fmt: skip
    stand = Stand(dict(run.current.progress), (), 9, 20.0, ripe=True, overdue=True)
    assessor = Assessor(desk)
    assessor.ask(run, order, "")
    for ask in desk.folder.dossiers.take_due():
        world.engine.step(ev.Told(ask.node, "c1", world.part(ask), "", world.now))
    began = time.process_time()
    assert assessor.assess(run, stand, order) is None, "it is diagnosed by the shell"
    assert time.process_time() - began < 1.5
    [one] = desk.folder.diagnoses.take_due()
    assert len(one.snapshot.ranks) == 4096


def trained_large(nodes: dict[str, int]) -> EvidenceWorld:
    world = EvidenceWorld()
    world.meets(nodes, 1)
    world.addresses(*nodes)
    for node in nodes:
        world.beat(node)
    return world
