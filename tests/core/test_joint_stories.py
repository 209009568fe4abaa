"""Stories of runs that meet through our own rendezvous, with the answer an on-call would want."""

from core_world import World

from rankpulse.core import records as r

NODES = {"node-a": 2, "node-b": 2}
GLOO = "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1"


def joined(*, armed: bool = True) -> tuple[World, list]:
    """A world in which a two-node job of our rendezvous has trained long enough to be known."""
    world = World()
    if armed:
        world.arm()
    world.asks(NODES, 1)
    world.run(0.2)
    assert [(gate.round, gate.go) for gate in world.gates()] == [(1, True)]
    procs = world.meets(NODES, 1, asks=False)
    world.run(30)
    assert world.incidents() == []
    return world, procs


def shown(world: World, uid: str = "job-1") -> dict:
    return world.engine.snapshot(world.now)["runs"][uid]


# --- identity


def test_run_and_round_are_the_agents_word() -> None:
    world, _ = joined()
    [state] = world.run_states()
    assert (state.run_uid, state.run_id, state.round, state.outcome) == ("job-1", "job", 1, "running")
    assert [rank["rank"] for rank in shown(world)["ranks"]] == [0, 1, 2, 3]
    world.meets(NODES, 2, first_step=90)
    world.run(3)
    assert [(s.run_uid, s.round) for s in world.run_states()] == [("job-1", 2)]
    assert world.incidents() == []


def test_a_plain_launch_at_the_same_place_is_another_run() -> None:
    world, procs = joined()
    plain = world.launch(NODES, meeting="job-1-1", run_id="job", launchers={"node-a": "x", "node-b": "y"})
    world.run(5)
    assert sorted(s.run_uid for s in world.run_states())[0] == "job-1"
    assert len(world.run_states()) == 2
    assert {rank["pid"] for rank in shown(world)["ranks"]} == {p.pid for p in procs}
    world.ends(plain[0], signal=9)
    world.run(1)
    [incident] = world.incidents()
    assert incident.run_uid != "job-1"


def test_a_living_rank_is_not_displaced_and_a_dead_one_is() -> None:
    world, procs = joined()
    [intruder] = world.launch({"node-c": 1}, meeting="f", run_id="job")
    intruder.rank, intruder.row = 3, r.RunRow("job", "f", "f", 4, True, "job-1", 1)
    world.run(3)
    assert [rank["node"] for rank in shown(world)["ranks"]] == ["node-a", "node-a", "node-b", "node-b"]
    assert [line for line in world.said if "which lives. It is not counted" in line]
    world.ends(intruder, signal=9)
    world.run(3)
    assert world.incidents() == []
    world.ends(procs[3], code=0, closed=True)
    [again] = world.launch({"node-b": 1}, meeting="f", run_id="job")
    again.rank, again.row = 3, procs[3].row
    world.run(2)
    assert shown(world)["ranks"][3]["pid"] == again.pid


def test_a_process_taken_for_a_plain_launch_moves_when_its_agent_knows_better() -> None:
    world = World()
    procs = world.meets(NODES, 1)
    rows = [proc.row for proc in procs]
    for proc in procs:
        proc.row = r.RunRow("job", "job-1-1", proc.row.launcher, 4, True)
    world.run(3)
    assert len(world.run_states()) == 2  # the meeting, and what is taken for a plain launch
    for proc, row in zip(procs, rows, strict=True):
        proc.row = row
    world.run(5)
    assert [s.run_uid for s in world.run_states()] == ["job-1"]
    assert len(shown(world)["ranks"]) == 4
    assert {key.split("/")[4] for key in world.store if "/roster/" in key} == {"job-1"}


def test_a_round_is_known_before_any_worker_is_and_none_need_ever_come() -> None:
    world = World()
    world.meets(NODES, 1)
    world.procs.clear()
    for node in NODES:
        world.inc[node] = 1
    world.run(60)
    assert [(s.run_uid, s.round, s.outcome) for s in world.run_states()] == [("job-1", 1, "running")]
    assert world.incidents() == []
    for node in NODES:
        world.leaves(node, "finished")
    world.run(3)
    assert [s.outcome for s in world.run_states()] == ["finished"]


# --- how it ends


def test_finished_is_the_rendezvous_word() -> None:
    world, procs = joined()
    for proc in procs:
        world.ends(proc, code=0, closed=True)
    world.run(1)
    assert [s.outcome for s in world.run_states()] == ["running"]
    world.leaves("node-a", "finished")
    world.leaves("node-b", "finished")
    world.run(2)
    assert [s.outcome for s in world.run_states()] == ["finished"]
    assert world.incidents() == []
    assert not [key for key in world.store if "/obs/" in key or "/gates/" in key or "/orders/" in key]


def test_ctrl_c_is_a_stop_whatever_torchrun_calls_it() -> None:
    for outcome in ("failed", "gone"):
        world, procs = joined()
        for proc in procs:
            world.ends(proc, code=1, error="KeyboardInterrupt", held=True)
            world.run(0.1)
        world.leaves("node-a", outcome)
        world.leaves("node-b", outcome)
        if outcome == "gone":
            world.lists(closed="the last to leave was node-b: gone", outcome="abandoned")
        world.run(15)
        assert world.incidents() == []
        assert [s.outcome for s in world.run_states()] == ["stopped_by_user"], outcome


def test_a_run_that_fails_has_its_incident_whatever_is_heard_first() -> None:
    world, procs = joined()
    world.leaves("node-b", "failed", "ChildFailedError")
    world.leaves("node-a", "failed")
    world.run(0.5)
    assert [s.outcome for s in world.run_states()] == ["running"]
    world.ends(procs[0], code=1, error="RuntimeError", message=GLOO)
    world.run(0.3)
    world.ends(procs[3], signal=9)
    for proc in procs[1:3]:
        world.ends(proc, signal=15)
    world.run(15)
    [incident] = world.incidents()
    assert (incident.klass, incident.outcome) == ("worker_dead", "run_ended")
    assert [m.rank for m in incident.culprits] == [3]
    assert [s.outcome for s in world.run_states()] == ["failed"]


def test_a_failure_before_attaching_is_no_stop_by_a_user() -> None:
    """torchelastic ends the others by SIGTERM, and who failed was watched by nobody."""
    for code, outcome in (("-9", "failed"), ("1", "failed"), ("-15", "stopped_by_user"), ("143", "stopped_by_user")):
        world, procs = joined()
        for proc in procs:
            world.ends(proc, signal=15)
        world.leaves("node-b", "failed", f"rank 2 ended with exit code {code}")
        world.leaves("node-a", "gone")
        world.run(50)
        assert [s.outcome for s in world.run_states()] == [outcome], code
        told = [(i.klass, i.action, i.state) for i in world.incidents()]
        assert told == ([("unknown", "page", "closed")] if outcome == "failed" else []), code


def test_a_failure_that_no_worker_explains_is_an_incident_of_its_own() -> None:
    world, procs = joined()
    for proc in procs:
        proc.alive = False
    world.leaves("node-a", "failed", "ChildFailedError")
    world.leaves("node-b", "failed")
    world.run(15)
    [incident] = world.incidents()
    assert (incident.klass, incident.outcome, incident.action) == ("unknown", "run_ended", "page")
    assert "ChildFailedError" in incident.summary
    assert [s.outcome for s in world.run_states()] == ["failed"]


def test_a_run_of_which_nothing_is_left_is_abandoned() -> None:
    world, procs = joined()
    for proc in procs:
        world.ends(proc, code=None, signal=None, closed=True)
    for node in NODES:
        world.torchrun(node, 1, left="its torchrun has ended", outcome="gone")
    world.lists(closed="everybody has left", outcome="abandoned")
    world.run(15)
    assert [s.outcome for s in world.run_states()] == ["finished"], "all ended by themselves, without error"
    world, procs = joined()
    for proc in procs:
        proc.alive = False
    for node in NODES:
        world.torchrun(node, 1, left="its torchrun has ended", outcome="gone")
    world.lists(closed="everybody has left", outcome="abandoned")
    world.run(15)
    assert [s.outcome for s in world.run_states()] == ["abandoned"]
    assert world.incidents() == []


def test_keys_that_agents_deleted_while_nobody_looked_end_the_run() -> None:
    world, procs = joined()
    for proc in procs:
        engine, world.engine = world.engine, World().engine
        world.ends(proc, code=0, closed=True)
        world.engine = engine
    for key in [key for key in world.store if "/rdzv/" in key]:
        del world.store[key]
    world.successor(2)
    world.run(60)
    assert [s.outcome for s in world.run_states()] == ["finished"]
    assert world.incidents() == []


# --- crashes


def test_a_crash_without_a_holder_is_adopted() -> None:
    world, procs = joined()
    world.ends(procs[3], signal=9)
    world.tick()
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("worker_dead", "adopt")
    for proc in procs[:3]:
        world.ends(proc, signal=15)
    world.meets(NODES, 2, first_step=61)
    world.run(3)
    [incident] = world.incidents()
    assert (incident.outcome, incident.restarts, incident.resumed_from_step) == ("recovered", 1, 60)
    assert world.orders() == []


def test_a_held_crash_is_ordered_once_and_nothing_is_burned() -> None:
    world, procs = joined()
    world.ends(procs[3], signal=9, held=True)
    world.run(0.3)
    [order] = world.orders()
    assert (order.kind, order.round, order.nodes) == ("restart", 1, ("node-a", "node-b"))
    assert (sorted(order.seats), order.culprits, order.grace_s) == (["node-a", "node-b"], (), 1.0)
    assert {m.rank for m in order.members} == {0, 1, 2}
    for proc in procs[:3]:
        world.ends(proc, signal=15, order_id=order.order_id)
    for node in NODES:
        world.observe(r.ORDER_DONE, node, order_id=order.order_id, killed=1)
    world.asks(NODES, 2)
    world.run(0.3)
    assert [(g.round, g.go) for g in world.gates()] == [(1, True), (2, True)]
    world.meets(NODES, 2, asks=False, first_step=61)
    world.run(4)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.order_id) == ("worker_dead", "restart", order.order_id)
    assert (incident.outcome, incident.restarts, incident.resumed_from_step) == ("recovered", 1, 60)
    assert [m.rank for m in incident.culprits] == [3]
    assert len(world.orders()) == 1
    world.successor(2)
    world.run(20)
    assert len(world.incidents()) == 1
    assert len(world.orders()) == 1


def test_a_thousand_acknowledgements_are_a_line_of_the_story() -> None:
    """Its end must find room in it, too."""
    nodes = {f"n{number:03d}": 1 for number in range(300)}
    world = World()
    world.arm()
    procs = world.meets(nodes, 1)
    world.run(5)
    world.ends(procs[3], signal=9, held=True)
    world.run(0.3)
    [order] = world.orders()
    for node in nodes:
        world.observe(r.ORDER_DONE, node, order_id=order.order_id, killed=1)
    world.tick()
    [incident] = world.incidents()
    [line] = [line.text for line in incident.trail if "carried out" in line.text]
    assert line == "n000, n001, n002 and 297 more carried out the order: 300 workers had to be killed"
    assert len(incident.trail) < 10


def test_peers_that_lost_each_other_are_held_and_started_again() -> None:
    world, procs = joined()
    for proc in procs:
        world.ends(proc, code=1, error="RuntimeError", message=GLOO, held=True)
    world.run(2)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("unknown", "restart")
    assert len(world.orders()) == 1


def test_where_a_node_is_done_there_is_no_further_round() -> None:
    """Its torchrun waits at torchelastic's exit barrier for the others: they would wait for it in vain."""
    world, procs = joined()
    for proc in procs[2:]:
        world.ends(proc, code=0, closed=True)
    world.ends(procs[0], code=1, error="OSError", message="disk full", held=True)
    world.ends(procs[1], code=1, error="RuntimeError", message=GLOO, held=True)
    world.run(2)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("worker_dead", "release")
    assert [order.kind for order in world.orders()] == ["release"]


def test_where_one_rank_of_a_node_is_done_its_node_meets_again() -> None:
    world, procs = joined()
    world.ends(procs[3], code=0, closed=True)
    world.ends(procs[0], signal=9, held=True)
    world.run(2)
    [incident] = world.incidents()
    assert incident.action == "restart"


def test_unarmed_a_held_crash_is_released_to_torchelastic() -> None:
    world, procs = joined(armed=False)
    world.ends(procs[3], signal=9, held=True)
    world.run(1)
    [incident] = world.incidents()
    assert (incident.action, incident.order_id) == ("release", "")
    [order] = world.orders()
    assert (order.kind, order.nodes) == ("release", ("node-a", "node-b"))
    world.observe(r.ORDER_DONE, "node-b", order_id=order.order_id, killed=0)
    world.arm()
    world.run(1)
    assert [o.kind for o in world.orders()] == ["release"], "a round that was given back is not restarted as well"
    for proc in procs[:3]:
        world.ends(proc, signal=15)
    world.meets(NODES, 2, first_step=61)
    world.run(4)
    [incident] = world.incidents()
    assert (incident.outcome, incident.restarts) == ("recovered", 1)
    assert any("holders of round 1 are released" in line.text for line in incident.trail)


def test_the_programs_own_error_twice_without_progress_ends_it() -> None:
    world, procs = joined()
    for round_ in (1, 2):
        world.ends(procs[3], code=1, error="ValueError", message=f"bad batch {round_}", held=True)
        world.run(2)
        if round_ == 1:
            assert [o.kind for o in world.orders()] == ["restart"]
            [order] = world.orders()
            for proc in procs[:3]:
                world.ends(proc, signal=15, order_id=order.order_id)
            procs = world.meets(NODES, 2, first_step=10)
            world.run(2)  # it goes on from its checkpoint, and does not reach the step where it failed
    assert [(o.round, o.kind) for o in world.orders()] == [(1, "restart"), (2, "release")]
    last = world.incidents()[-1]
    assert (last.action, last.round) == ("stop", 2)
    for proc in procs[:3]:
        world.ends(proc, signal=15)
    world.asks(NODES, 3)
    world.run(0.3)
    gate = world.gates()[-1]
    assert (gate.round, gate.go) == (3, False)
    assert last.id in gate.reason
    world.lists(closed=gate.reason, outcome="failed")
    world.run(15)
    assert [s.outcome for s in world.run_states()] == ["failed"]


def test_the_same_error_after_progress_is_restarted_again() -> None:
    world, procs = joined()
    for round_ in (1, 2, 3):
        world.ends(procs[3], code=1, error="RuntimeError", message="CUDA error: uncorrectable ECC", held=True)
        world.run(2)
        order = world.orders()[-1]
        assert (order.round, order.kind) == (round_, "restart")
        for proc in procs[:3]:
            world.ends(proc, signal=15, order_id=order.order_id)
        procs = world.meets(NODES, round_ + 1, first_step=procs[0].step)
        world.run(10)


def test_the_budget_used_up_leaves_it_to_torchelastic() -> None:
    world = World()
    world.arm()
    procs = world.meets(NODES, 1)
    for proc in procs:
        proc.phase, proc.step = "init", -1
    world.run(5)
    kinds = []
    for round_ in range(1, 6):
        world.ends(procs[3], signal=9, held=True)
        world.run(2)
        order = world.orders()[-1]
        assert order.round == round_
        kinds.append(order.kind)
        for proc in procs[:3]:
            world.ends(proc, signal=15, order_id=order.order_id)
        procs = world.meets(NODES, round_ + 1)
        for proc in procs:
            proc.phase, proc.step = "init", -1
        world.run(2)
    assert kinds == ["restart", "restart", "restart", "release", "release"]


def test_one_worker_terminated_under_its_holder_is_a_crash() -> None:
    world, procs = joined()
    world.ends(procs[2], signal=15, held=True)
    world.run(5)
    assert world.incidents() == []
    world.run(10)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("worker_dead", "restart")
    assert "its holder was not asked to end" in incident.summary


def test_another_node_joining_is_no_failure_and_no_stop() -> None:
    world, procs = joined()
    world.asks(["node-c"], 1)
    for proc in procs:
        world.ends(proc, signal=15)
    world.run(1)
    world.meets({**NODES, "node-c": 2}, 2, first_step=40)
    world.run(60)
    assert world.incidents() == []
    assert [s.outcome for s in world.run_states()] == ["running"]


def test_workers_ended_because_a_node_left_are_no_crash_however_long_it_takes_to_meet() -> None:
    world, procs = joined()
    world.leaves("node-b", "gone", "asked to end")
    for proc in procs[2:] + procs[:2]:
        world.ends(proc, signal=15, held=True)
    world.asks(["node-a"], 2)
    world.run(100)  # it waits for another node
    assert world.incidents() == []
    assert [s.outcome for s in world.run_states()] == ["running"]
    world.asks(["node-c"], 2)
    world.meets({"node-a": 2, "node-c": 2}, 2, asks=False, first_step=40)
    world.run(60)
    assert world.incidents() == []
    assert world.orders() == []


def test_a_node_that_falls_silent_before_its_workers_came_up_is_told_of() -> None:
    world, procs = joined()
    for proc in procs:
        world.ends(proc, signal=9 if proc.rank == 3 else 15)
    procs = world.meets(NODES, 2, first_step=20)
    world.procs = [p for p in world.procs if p.node == "node-a"]
    for proc in procs:
        proc.phase = "init"
    world.silent, world.training = {"node-b"}, False
    world.run(40)
    assert "node-b" in {node for i in world.incidents() for node in i.nodes if i.state == "open"}


def test_a_torchrun_started_anew_on_its_node_is_no_failure() -> None:
    world, procs = joined()
    world.leaves("node-b", "gone", "asked to end")
    for proc in procs[2:] + procs[:2]:
        world.ends(proc, signal=15)
    world.launchers["node-b"] = 12345
    world.meets(NODES, 2, first_step=40)
    world.run(60)
    assert world.incidents() == []


def test_an_operator_restarts_a_run_through_the_same_order() -> None:
    world, procs = joined(armed=False)
    world.ask("restart", uid="job-1", reason="new image")
    world.run(1)
    [order] = world.orders()
    assert (order.kind, order.nodes, len(order.members), order.grace_s) == ("restart", ("node-a", "node-b"), 4, 1.0)
    for proc in procs:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.meets(NODES, 2, first_step=90)
    world.run(4)
    [incident] = world.incidents()
    assert (incident.klass, incident.outcome, incident.asked_by) == ("operator_restart", "recovered", "ann")


# --- history


def test_ten_restarts_leave_no_key_behind() -> None:
    world, procs = joined()
    for round_ in range(1, 11):
        world.ends(procs[3], signal=9, held=True)
        world.run(1)
        order = world.orders()[-1]
        assert (order.kind, order.round) == ("restart", round_)
        for proc in procs[:3]:
            world.ends(proc, signal=15, order_id=order.order_id)
        world.asks(NODES, round_ + 1)
        world.run(0.5)
        procs = world.meets(NODES, round_ + 1, asks=False, first_step=procs[0].step + 1)
        for old in [key for key in world.store if "/rounds/" in key][:-3]:
            world.erase(old)
        world.run(6)
    assert len(world.incidents()) == 10
    assert all(i.outcome == "recovered" for i in world.incidents())
    assert [o.round for o in world.orders()] == [10]
    assert [g.round for g in world.gates()] == [10, 11]
    world.run(50)
    assert not [key for key in world.store if "/obs/" in key]
    for proc in procs:
        world.ends(proc, code=0, closed=True)
    world.leaves("node-a", "finished", round_=11)
    world.leaves("node-b", "finished", round_=11)
    world.run(2)
    assert world.orders() == []
    assert world.gates() == []
    assert not [key for key in world.store if "/obs/" in key]


def test_leftovers_go_with_the_history_they_belong_to() -> None:
    world = World()
    for n in range(210):
        uid = f"old-{n}"
        procs = world.meets({"node-a": 1}, 1, uid=uid)
        world.run(1.2)
        world.ends(procs[0], code=0, closed=True)
        world.leaves("node-a", "finished", uid=uid)
        world.run(0.3)
    world.run(3)
    assert len(world.run_states()) <= 201
    assert len([key for key in world.store if key.endswith("/launch")]) <= 201
    assert len([key for key in world.store if "/rounds/" in key]) <= 201


def test_a_crash_before_attaching_is_ordered_like_any_other() -> None:
    """Its holder told of it; no beat ever did."""
    world, procs = joined()
    world.ends(procs[3], signal=9, held=True)
    world.run(0.3)
    world.asks(NODES, 2)
    world.run(0.3)
    second = world.meets(NODES, 2, asks=False, first_step=61)
    world.ends(second[3], code=1, held=True, unattached=True)
    world.run(2)
    assert [order.round for order in world.of_kind("restart")] == [1, 2]


def test_an_end_that_two_agents_tell_counts_once() -> None:
    world, procs = joined()
    world.ends(procs[3], signal=9, held=True)
    world.run(0.3)
    again = world.observe(r.WORKER_EXITED, "node-b", procs[3], code=1, held=True, unattached=True)
    world.run(5)
    [incident] = world.incidents()
    assert "killed by SIGKILL" in incident.summary
    assert again not in world.store
