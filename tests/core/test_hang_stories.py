"""Hangs in runs of our rendezvous: asked about, weighed, ended once, and left alone when they pass."""

from core_world import DRILL, World

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.evidence import Position
from rankpulse.core.settings import Settings, parse

NODES = {"node-a": 2, "node-b": 2}
PATIENT = parse({"preset": "drill", "policy": {"hang_act_s": 10.0}})


def trained(settings: Settings = DRILL, *, armed: bool = True) -> tuple[World, list]:
    world = World(settings)
    if armed:
        world.arm()
    procs = world.meets(NODES, 1)
    world.run(30)
    assert world.incidents() == []
    assert world.of_kind("collect") == []
    return world, procs


def asked(world: World, seconds: float = 4.0) -> r.Order:
    """The question, once it is asked."""
    for _ in range(round(10 * seconds)):
        world.run(0.1)
        if world.of_kind("collect"):
            [order] = world.of_kind("collect")
            return order
    raise AssertionError("no evidence was asked for")


def positions(behind: int) -> dict[int, tuple[Position, ...]]:
    """All but one rank wait in the same collective."""
    return {rank: (Position("w", 7 if rank == behind else 8, 7, "all_reduce"),) for rank in range(4)}


def tells(world: World, order: r.Order, behind: int) -> list[str]:
    return [world.answers(order, node, positions(behind)) for node in NODES]


def test_a_stopped_rank_is_found_ended_at_once_and_the_round_is_told_to_meet_again() -> None:
    world, procs = trained()
    stopped_at = world.now
    procs[1].state, world.training = "T", False
    order = asked(world)
    assert order.kind == f"collect-{max(p.step for p in procs)}"
    assert (order.nodes, order.round, order.incident) == (("node-a", "node-b"), 1, "")
    assert order.seats == {}, "every agent of the fleet reads it"
    assert world.incidents() == []
    world.run(0.5)
    keys = tells(world, order, behind=1)
    while not world.incidents():
        world.run(0.1)
    assert world.now - stopped_at <= 4.0
    world.run(0.2)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.confidence) == ("collective_hang", "restart", 0.95)
    assert ([m.rank for m in incident.culprits], incident.cascade) == ([1], (0, 2, 3))
    assert set(keys) <= set(incident.evidence)
    assert any("rank 1 on node-a" in reason and "state T" in reason for reason in incident.reasons)
    [restart] = world.of_kind("restart")
    assert ([m.rank for m in restart.culprits], restart.nodes) == ([1], ("node-a", "node-b"))
    assert len(restart.members) == 4
    world.run(5)
    assert len([a for a in world.actions if isinstance(a, ev.Create) and a.key.endswith(order.kind)]) == 1
    assert world.of_kind("collect") == [], "weighed and told: the question and the answers go"
    assert not [key for key in keys if key in world.store]
    for proc in procs:
        world.ends(proc, signal=9, order_id=restart.order_id)
    world.training = True
    world.meets(NODES, 2, first_step=91)
    world.run(4)
    [incident] = world.incidents()
    assert (incident.outcome, incident.restarts, incident.resumed_from_step) == ("recovered", 1, 90)
    assert len(world.of_kind("restart")) == 1


def test_a_rank_that_sleeps_is_found_by_its_place_in_the_collective() -> None:
    world, _ = trained()
    world.training = False
    order = asked(world)
    tells(world, order, behind=2)
    world.run(3)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.confidence) == ("collective_hang", "restart", 0.9)
    assert [m.rank for m in incident.culprits] == [2]
    assert len(world.of_kind("restart")) == 1


def test_without_any_answer_what_the_beats_say_must_do() -> None:
    world, procs = trained()
    procs[1].state, world.training = "T", False
    asked(world)
    world.run(3.5)
    [incident] = world.incidents()
    assert ([m.rank for m in incident.culprits], incident.action) == ([1], "restart")
    assert incident.evidence == ()
    world, _ = trained()
    world.training = False
    asked(world)
    world.run(5)
    assert world.incidents() == [], "all together, and nobody to blame: they may be saving or ending"
    world.run(4)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("unknown", "page")
    assert "no laggard" in " ".join(incident.reasons)
    assert world.of_kind("restart") == []


def test_one_node_that_does_not_answer_leaves_doubt() -> None:
    world, _ = trained()
    world.training = False
    order = asked(world)
    world.answers(order, "node-a", positions(1))
    world.run(4)
    [incident] = world.incidents()
    assert [m.rank for m in incident.culprits] == [1]
    assert (incident.confidence, incident.action) == (0.8, "page")
    assert "no evidence from node-b" in incident.reasons


def test_a_late_answer_corrects_what_nothing_was_done_about() -> None:
    world, _ = trained()
    world.training = False
    order = asked(world)
    world.run(8)
    [incident] = world.incidents()
    assert incident.klass == "unknown"
    tells(world, order, behind=3)
    world.run(1)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, [m.rank for m in incident.culprits]) == ("collective_hang", "restart", [3])
    assert any("corrected" in line.text for line in incident.trail)
    assert len(world.of_kind("restart")) == 1


def test_an_answer_that_comes_when_nobody_waits_any_more_is_erased() -> None:
    world, _ = trained()
    world.training = False
    order = asked(world)
    world.run(14)
    assert world.of_kind("collect") == []
    key = world.answers(order, "node-a", positions(1))
    world.run(1)
    assert key not in world.store
    assert world.incidents()[0].klass == "unknown"


def test_forged_rows_and_garbage_blame_nobody() -> None:
    world, _ = trained()
    world.training = False
    order = asked(world)
    victim = world.procs[3]
    forged = f'[[3,{victim.pid},{victim.start},"T","",false,"ok",[],""]]'
    world.answers(order, "node-a", rows=forged)  # node-a speaks of a rank of node-b
    world.answers(order, "node-b", rows="\x00not json")
    world.observe(r.EVIDENCE, "node-c", order_id=order.order_id, rows=forged)
    world.observe(r.EVIDENCE, "node-a", order_id="nobody asked", rows=forged)
    world.run(9)
    [incident] = world.incidents()
    assert 3 not in [m.rank for m in incident.culprits]
    assert incident.action == "page"
    assert any("refused: not a list of rows" in line for line in world.said)
    assert world.of_kind("restart") == []


def test_a_hang_that_passes_while_evidence_is_gathered_is_nothing() -> None:
    world, procs = trained()
    procs[1].state, world.training = "T", False
    order = asked(world)
    procs[1].state, world.training = "S", True
    keys = tells(world, order, behind=1)
    world.run(10)
    assert world.incidents() == []
    assert world.orders() == []
    assert not [key for key in keys if key in world.store]


def test_a_short_standstill_is_watched_and_nobody_is_disturbed() -> None:
    world, procs = trained(PATIENT)
    procs[1].state, world.training = "T", False
    order = asked(world)
    tells(world, order, behind=1)
    world.run(5)
    [incident] = world.incidents()
    assert (incident.klass, incident.state, incident.action) == ("collective_hang", "open", "wait")
    assert "10 s" in incident.action_reason
    assert world.of_kind("restart") == []
    procs[1].state, world.training = "S", True
    world.run(3)
    [incident] = world.incidents()
    assert incident.outcome == "passed"
    assert world.orders() == []


def test_a_standstill_that_lasts_is_ended_and_one_of_unknown_cause_is_paged_no_sooner() -> None:
    world, procs = trained(PATIENT)
    procs[1].state, world.training = "T", False
    tells(world, asked(world), behind=1)
    world.run(12)
    [incident] = world.incidents()
    assert incident.action == "restart"
    assert len(world.of_kind("restart")) == 1
    world, _ = trained(PATIENT)
    world.training = False
    asked(world)
    world.run(8.5)
    assert [i.action for i in world.incidents()] == ["wait"]
    world.run(10)
    assert [i.action for i in world.incidents()] == ["page"]


def second(world: World, number: int = 1) -> r.Order:
    """The question that is asked anew before anything is done."""
    for _ in range(400):
        found = [order for order in world.of_kind("collect") if order.kind.endswith(f"-{number}")]
        if found:
            return found[0]
        world.run(0.1)
    raise AssertionError("the ranks were not looked at again")


def evaluating(world: World, order: r.Order, behind: int, batch: int) -> None:
    """All ranks go on in their collectives, and at each look another or the same one is a little behind."""
    told = {rank: (Position("w", 100 * batch + (rank != behind), 100 * batch, "all_reduce"),) for rank in range(4)}
    for node in NODES:
        world.answers(order, node, told)


def test_one_that_went_on_between_two_looks_is_at_work() -> None:
    """An evaluation without a word: somebody is behind at each look, the slowest even at every one."""
    world, _ = trained(PATIENT)
    world.training = False
    evaluating(world, asked(world), behind=1, batch=1)
    world.run(3)
    assert [i.action for i in world.incidents()] == ["wait"]
    evaluating(world, second(world), behind=1, batch=2)
    world.run(20)
    [incident] = world.incidents()
    assert (incident.klass, incident.culprits, incident.action) == ("unknown", (), "page")
    assert "rank 1 went on in its collectives between two looks" in " ".join(incident.reasons)
    evaluating(world, second(world, 2), behind=1, batch=3)
    world.run(5)
    assert world.of_kind("restart") == []
    world.training = True
    world.run(5)
    assert [i.outcome for i in world.incidents()] == ["passed"]
    assert world.orders() == []
    assert not [key for key in world.store if "/obs/" in key]


def test_a_job_that_hangs_in_its_evaluation_is_ended_later() -> None:
    world, _ = trained(PATIENT)
    world.training = False
    evaluating(world, asked(world), behind=1, batch=1)
    evaluating(world, second(world), behind=1, batch=2)
    world.run(5)
    assert [i.action for i in world.incidents()] == ["page"]
    evaluating(world, second(world, 2), behind=3, batch=3)
    world.run(5)
    assert world.of_kind("restart") == []
    evaluating(world, second(world, 3), behind=3, batch=3)
    world.run(5)
    [restart] = world.of_kind("restart")
    assert [m.rank for m in restart.culprits] == [3], "whom the last look named, and not the first"


def test_a_phase_that_is_longer_than_all_patience_is_looked_at_twice_as_well() -> None:
    world, procs = trained(PATIENT)
    world.training = False
    for proc in procs:
        proc.phase = "eval"
    world.run(890, step_s=0.5)
    evaluating(world, asked(world, 20), behind=1, batch=1)
    world.run(4)
    assert [i.action for i in world.incidents()] == ["wait"]
    evaluating(world, second(world), behind=1, batch=2)
    world.run(4)
    assert [i.action for i in world.incidents()] == ["page"]
    assert world.of_kind("restart") == []


def test_one_that_has_not_moved_between_two_looks_is_ended() -> None:
    world, _ = trained(PATIENT)
    stopped_at, world.training = world.now, False
    tells(world, asked(world), behind=1)
    again = second(world)
    assert world.now - stopped_at >= 9.0
    assert world.of_kind("restart") == []
    tells(world, again, behind=1)
    world.run(1)
    assert [i.action for i in world.incidents()] == ["restart"]
    assert len(world.of_kind("restart")) == 1
    world.run(5)
    assert world.of_kind("collect") == []
    assert not [key for key in world.store if "/obs/" in key]


def test_what_passed_by_itself_is_learned() -> None:
    world, _ = trained(PATIENT)
    before = shown_deadline(world)
    for _ in range(2):
        world.training = False
        world.run(9)
        world.training = True
        world.run(30)
    assert len(world.incidents()) == 1, "the second time it is known that such stalls pass"
    assert shown_deadline(world) > before
    world.training = False
    world.run(30)
    assert len(world.incidents()) == 2


def shown_deadline(world: World) -> float:
    return float(world.engine.snapshot(world.now)["runs"]["job-1"]["phase_deadline_s"])


def test_a_job_that_is_suspended_as_a_whole_is_not_ended() -> None:
    world, procs = trained()
    for proc in procs:
        proc.state = "T"
    world.training = False
    order = asked(world)
    tells(world, order, behind=9)
    world.run(9)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("unknown", "page")
    assert "suspended the whole job" in " ".join(incident.reasons)


def test_a_worker_that_never_attached_hides_nobodys_hang_and_makes_none() -> None:
    world = World()
    world.arm()
    procs = world.meets(NODES, 1)
    world.procs.remove(procs[3])
    world.run(60)
    assert world.incidents() == []
    procs[1].state, world.training = "T", False
    world.answers(asked(world), "node-a")
    world.run(5)
    [incident] = world.incidents()
    assert [m.rank for m in incident.culprits] == [1]
    assert "1 of 4 ranks are watched by no agent" in " ".join(incident.reasons)


def test_a_job_that_never_reports_a_step_is_not_ended_for_that() -> None:
    """One look at a job that trains finds somebody behind, too: a person is told, and nothing is ordered."""
    world = World()
    world.arm()
    procs = world.meets(NODES, 1)
    world.training = False
    for proc in procs:
        proc.phase = "init"
    world.run(890, step_s=0.5)
    tells(world, asked(world, 20), behind=1)
    world.run(60)
    [incident] = world.incidents()
    assert ([m.rank for m in incident.culprits], incident.action) == ([1], "page")
    assert "never reported a step" in " ".join(incident.reasons)
    assert world.of_kind("restart") == []


def test_a_long_first_step_of_a_later_round_is_no_hang() -> None:
    world, procs = trained()
    world.ends(procs[0], signal=9)
    for proc in procs[1:]:
        world.ends(proc, signal=15)
    for proc in world.meets(NODES, 2):
        proc.step = proc.first_step = -1  # it compiles, in its train phase
    world.training = False
    world.run(60)
    world.training = True
    world.run(5)
    assert [(i.klass, i.outcome) for i in world.incidents()] == [("worker_dead", "recovered")]
    assert world.orders() == []


def test_unarmed_it_is_observed_and_ordered_when_armed() -> None:
    world, procs = trained(armed=False)
    procs[1].state, world.training = "T", False
    tells(world, asked(world), behind=1)
    world.run(4)
    assert [i.action for i in world.incidents()] == ["observe"]
    world.arm()
    world.run(1)
    assert [i.action for i in world.incidents()] == ["restart"]
    assert len(world.of_kind("restart")) == 1


def test_a_new_leader_goes_on_with_the_same_question_and_orders_once() -> None:
    world, procs = trained()
    procs[1].state, world.training = "T", False
    order = asked(world)
    world.answers(order, "node-a", positions(1))
    world.successor(2)
    world.run(1)
    world.answers(order, "node-b", positions(1))
    world.run(12)
    assert {o.order_id for o in world.of_kind("collect")} <= {order.order_id}
    [incident] = world.incidents()
    assert ([m.rank for m in incident.culprits], incident.epoch) == ([1], 2)
    assert len(world.of_kind("restart")) == 1
    world.successor(3)
    world.run(20)
    assert len(world.of_kind("restart")) == 1
    assert len(world.incidents()) == 1


def test_a_new_leader_keeps_to_what_was_weighed_before_it() -> None:
    world, _ = trained(PATIENT)
    world.training = False
    tells(world, asked(world), behind=2)
    world.run(4)
    [before] = world.incidents()
    assert before.action == "wait"
    assert world.of_kind("collect") == []
    world.successor(2)
    world.run(25)
    [incident] = world.incidents()
    assert (incident.id, incident.culprits, incident.action) == (before.id, before.culprits, "restart")
    assert world.of_kind("collect") == []
    assert len(world.of_kind("restart")) == 1


def test_whoever_is_blind_orders_nothing_and_does_so_when_it_sees() -> None:
    """Not even what is certain: a monitor that does not see the store does not know that it was disarmed, say."""
    world, procs = trained()
    world.canary = False
    world.run(5)
    assert world.engine.snapshot(world.now)["blind"]
    world.ends(procs[3], signal=9, held=True)
    world.run(3)
    assert [i.action for i in world.incidents()] == ["restart"]
    assert world.orders() == []
    world.canary = True
    world.run(3)
    assert len(world.of_kind("restart")) == 1


def test_a_plain_launch_is_judged_as_before_and_asks_nobody() -> None:
    world = World()
    world.arm()
    procs = world.launch(NODES, meeting="m1")
    world.run(30)
    procs[1].state, world.training = "T", False
    world.run(5)
    [incident] = world.incidents()
    assert ([m.rank for m in incident.culprits], incident.action) == ([1], "restart")
    assert [o.kind for o in world.orders()] == ["restart"]
    assert world.orders()[0].nodes == ("node-a", "node-b")


def test_the_production_defaults_act_after_half_a_minute_and_notice_within_seconds() -> None:
    world = World(parse({}))
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(60)
    stopped_at = world.now
    procs[1].state, world.training = "T", False
    tells(world, asked(world, 8), behind=1)
    while not world.incidents():
        world.run(0.1)
    assert world.now - stopped_at <= 5.5
    assert world.of_kind("restart") == []
    world.run(20)
    assert world.of_kind("restart") == []
    world.run(12)
    assert len(world.of_kind("restart")) == 1


def test_the_same_rank_asleep_at_the_same_step_again_ends_the_run() -> None:
    """Nobody stopped it: the program hangs there, and would once more."""
    world, procs = trained()
    world.training = False
    at_step = max(proc.step for proc in procs)
    tells(world, asked(world), behind=2)
    world.run(3)
    [order] = world.of_kind("restart")
    for proc in procs:
        world.ends(proc, signal=9, order_id=order.order_id)
    again = world.meets(NODES, 2, first_step=at_step - 59)
    world.training = True
    world.run(10)
    assert max(proc.step for proc in again) <= at_step
    while max(proc.step for proc in again) < at_step:
        world.run(0.1)
    world.training = False
    tells(world, asked(world), behind=2)
    world.run(3)
    last = max(world.incidents(), key=lambda one: one.id)
    assert (last.klass, last.action, last.round) == ("collective_hang", "stop", 2)
    assert f"it fails at step {at_step} again (as in round 1)" in last.action_reason
    assert [order.round for order in world.of_kind("restart")] == [1, 2], "its workers are ended"
    for proc in again:
        world.ends(proc, signal=9, order_id=world.of_kind("restart")[-1].order_id)
    world.asks(NODES, 3)
    world.run(0.5)
    gate = world.gates()[-1]
    assert (gate.round, gate.go) == (3, False)
    assert "fails at step" in gate.reason
    world.lists(closed=gate.reason, outcome="failed")
    world.run(15)
    last = max(world.incidents(), key=lambda one: one.id)
    assert (last.state, last.outcome, last.rung) == ("closed", "run_ended", "order")
    assert [state.outcome for state in world.run_states()] == ["failed"]
