"""Stories told to the engine, with the answer an on-call would want."""

from core_world import UTC, Proc, World

from rankpulse.core import events as ev
from rankpulse.core import records as r

NODES = {"node-a": 2, "node-b": 2}
GLOO = "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1"


def trained(**kwargs: object) -> tuple[World, list]:
    """A world in which a two-node job has trained long enough to be known."""
    world = World()
    procs = world.launch(NODES, meeting="m1", **kwargs)
    world.run(30)
    assert world.incidents() == []
    return world, procs


def test_a_healthy_job_is_left_alone() -> None:
    world, _ = trained()
    world.run(120)
    assert world.incidents() == []
    [state] = world.run_states()
    assert (state.outcome, state.round) == ("running", 1)
    assert len([key for key in world.store if "/roster/" in key]) == 1


def test_crash_is_named_at_once_and_torchelastics_restart_is_adopted() -> None:
    world, procs = trained()
    world.ends(procs[3], signal=9)
    world.tick()
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.state) == ("worker_dead", "adopt", "open")
    assert [(m.rank, m.node) for m in incident.culprits] == [(3, "node-b")]
    assert "SIGKILL" in incident.summary
    assert "node-b" in incident.summary

    world.run(0.3)
    world.ends(procs[0], code=1, error="RuntimeError", message=GLOO)
    world.ends(procs[1], signal=15)
    world.ends(procs[2], signal=15)
    world.run(2)
    world.launch(NODES, meeting="m2", first_step=61)
    world.run(3)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome, incident.restarts) == ("closed", "recovered", 1)
    assert incident.cascade == (0, 1, 2)
    assert incident.resumed_from_step == 60
    assert world.orders() == []
    world.run(60)
    assert len(world.incidents()) == 1
    assert {s.round for s in world.run_states()} == {2}


def test_a_victim_heard_first_does_not_take_the_blame() -> None:
    world, procs = trained()
    world.ends(procs[0], code=1, error="RuntimeError", message=GLOO)
    world.run(0.3)
    assert world.incidents() == []
    world.ends(procs[2], signal=9)
    world.run(1)
    [incident] = world.incidents()
    assert [m.rank for m in incident.culprits] == [2]


def test_an_exception_of_its_own_is_told_soon_and_corrected_by_a_death_that_comes_later() -> None:
    world, procs = trained()
    world.ends(procs[0], code=1, error="ValueError", message="no such shard")
    world.run(0.1)
    assert world.incidents() == [], "its cause may be on its way"
    world.run(0.2)
    [incident] = world.incidents()
    assert [m.rank for m in incident.culprits] == [0]
    world.ends(procs[2], signal=9)
    world.run(0.2)
    [incident] = world.incidents()
    assert (incident.klass, [m.rank for m in incident.culprits]) == ("worker_dead", [2])
    assert any(line.text.startswith("corrected: ") for line in incident.trail)


def test_an_exit_code_without_a_word_waits_for_its_cause() -> None:
    world, procs = trained()
    world.ends(procs[0], code=1)
    world.run(0.5)
    assert world.incidents() == []
    world.run(0.5)
    [incident] = world.incidents()
    assert [m.rank for m in incident.culprits] == [0]


def test_victims_alone_are_an_honest_unknown_until_the_cause_is_heard() -> None:
    world, procs = trained()
    world.ends(procs[0], code=1, error="RuntimeError", message=GLOO)
    world.run(2)
    [incident] = world.incidents()
    assert (incident.klass, incident.culprits, incident.action) == ("unknown", (), "page")
    world.ends(procs[2], signal=11)
    world.run(0.2)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("worker_dead", "adopt")
    assert "SIGSEGV" in incident.summary


def test_same_port_every_round_still_gives_new_rounds() -> None:
    world, procs = trained()
    for proc in procs:
        world.ends(proc, signal=9 if proc.rank == 1 else 15)
    world.run(1)
    world.launch(NODES, meeting="m1", first_step=50)
    world.run(3)
    [incident] = world.incidents()
    assert (incident.restarts, incident.outcome) == (1, "recovered")
    assert {s.round for s in world.run_states()} == {2}


def test_ctrl_c_is_no_incident() -> None:
    world, procs = trained()
    for proc in procs:
        world.ends(proc, code=1, error="KeyboardInterrupt")
        world.run(0.1)
    world.run(1)
    world.launcher_ends(procs[0])
    world.run(0.2)
    world.launcher_ends(procs[2])
    world.run(5)
    assert world.incidents() == []
    [state] = world.run_states()
    assert state.outcome == "stopped_by_user"
    assert not [key for key in world.store if "/obs/" in key]


def test_a_torchrun_that_outlives_its_run_is_watched_again_when_it_meets_anew() -> None:
    world, procs = trained()
    for proc in procs[:2]:
        world.ends(proc, code=1, error="KeyboardInterrupt")
    world.launcher_ends(procs[0])
    for proc in procs[2:]:
        world.ends(proc, code=1, error="RuntimeError", message=GLOO)
    world.run(50)
    assert [state.outcome for state in world.run_states()] == ["stopped_by_user"]
    again = world.launch(NODES, meeting="m2", launchers={"node-a": "another"})
    world.run(30)
    assert sorted(state.outcome for state in world.run_states()) == ["running", "stopped_by_user"]
    world.ends(again[2], signal=9)
    world.run(1)
    [incident] = world.incidents()
    assert incident.culprits[0].pid == again[2].pid


def test_sigkill_after_the_grace_of_a_stop_is_no_crash() -> None:
    world, procs = trained()
    world.ends(procs[0], signal=15)
    world.run(30)
    for proc in procs[1:]:
        world.ends(proc, signal=9)
    world.run(0.5)
    world.launcher_ends(procs[0])
    world.launcher_ends(procs[2])
    world.run(3)
    assert world.incidents() == []
    assert world.run_states()[0].outcome == "stopped_by_user"


def test_one_worker_terminated_while_the_job_goes_on_is_a_crash() -> None:
    world, procs = trained()
    world.ends(procs[2], signal=15)
    world.run(0.2)
    for proc in (procs[0], procs[1], procs[3]):
        world.ends(proc, signal=15)
    world.run(1)
    assert world.incidents() == []
    world.launch(NODES, meeting="m2", first_step=40)
    world.run(3)
    [incident] = world.incidents()
    assert incident.klass == "worker_dead"
    assert [m.rank for m in incident.culprits] == [2]
    assert incident.outcome == "recovered"


def test_another_node_joining_is_no_failure() -> None:
    world, procs = trained()
    for proc in procs:
        world.ends(proc, signal=15)
    world.run(1)
    world.launch({**NODES, "node-c": 2}, meeting="m2", first_step=40)
    world.run(10)
    assert world.incidents() == []


def test_clean_end_is_finished() -> None:
    world, procs = trained()
    for proc in procs:
        world.ends(proc, code=0, closed=True)
        world.run(0.3)
    world.run(1)
    assert world.incidents() == []
    assert world.run_states()[0].outcome == "finished"


def test_clean_end_is_known_to_a_monitor_that_was_not_there() -> None:
    world, procs = trained()
    for proc in procs[:2]:
        world.ends(proc, code=0, closed=True)
    world.run(1)
    world.successor(2)
    for proc in procs[2:]:
        world.ends(proc, code=0, closed=True)
    world.run(8)
    assert world.incidents() == []
    assert world.run_states()[0].outcome == "finished"


def test_same_label_launched_again_is_another_run() -> None:
    world, procs = trained()
    for proc in procs:
        world.ends(proc, code=0, closed=True)
    world.run(1)
    world.launch(NODES, meeting="m1", launchers={"node-a": "x", "node-b": "y"})
    world.run(5)
    assert sorted(state.outcome for state in world.run_states()) == ["finished", "running"]


def test_jitter_is_one_incident_without_restart() -> None:
    world, _ = trained()
    for stall in (3.0, 5.0, 8.0, 4.0):
        world.silent = {"node-a", "node-b"}
        world.run(stall)
        world.silent = set()
        world.run(4.0)
    world.run(20)
    [incident] = world.incidents()
    assert (incident.klass, incident.culprits, incident.action) == ("control_plane_delay", (), "none")
    assert incident.summary == "control plane late, job progressing"
    assert (incident.state, incident.outcome, incident.restarts) == ("closed", "passed", 0)
    assert world.orders() == []


def test_one_node_with_a_late_path_has_an_alibi() -> None:
    world, _ = trained()
    world.silent = {"node-b"}
    world.run(5)
    assert world.incidents() == []
    world.run(10)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("sidecar_dead", "none")
    assert "which needed the ranks of node-b" in " ".join(incident.reasons)
    world.silent = set()
    world.run(3)
    assert world.incidents()[0].outcome == "passed"


def test_ranks_that_run_on_their_own_give_no_alibi() -> None:
    world = World()
    procs = world.launch(NODES, meeting="m1")
    for _ in range(80):
        world.run(0.5)
        for proc in procs[:2]:
            proc.step += 1
    world.silent = {"node-b"}
    world.run(18)
    assert [i.klass for i in world.incidents()] == ["unknown"]


def test_an_agent_restarted_within_seconds_is_not_worth_an_incident() -> None:
    world, _ = trained()
    world.silent = {"node-b"}
    world.run(6)
    world.inc["node-b"], world.seq["node-b"], world.silent = 2, 0, set()
    world.run(20)
    assert world.incidents() == []


def test_a_silent_node_whose_job_stands_still_is_dead() -> None:
    world, _ = trained()
    world.silent, world.training = {"node-b"}, False
    world.run(25)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("node_dead", "page")
    assert [m.rank for m in incident.culprits] == [2, 3]
    assert incident.cascade == (0, 1)


def test_store_gone_for_a_minute_says_blind_and_nothing_else() -> None:
    world, _ = trained()
    world.silent, world.canary = {"node-a", "node-b"}, False
    world.run(60)
    assert world.engine.snapshot(world.now)["blind"] is True
    world.canary = True
    world.run(3)
    world.silent = set()
    world.run(20)
    assert world.incidents() == []
    assert world.engine.snapshot(world.now)["blind"] is False
    assert world.engine.snapshot(world.now)["blind_seconds_total"] > 50


def test_monitor_asleep_blames_nobody() -> None:
    world, _ = trained()
    world.now += 30.0
    world.run(20)
    assert world.incidents() == []


def test_a_new_leader_forgets_nothing_and_doubles_nothing() -> None:
    world, procs = trained()
    world.ends(procs[3], signal=9)
    world.tick()
    world.successor(2)
    world.run(2)
    for proc in procs[:3]:
        world.ends(proc, signal=15)
    world.launch(NODES, meeting="m2", first_step=20)
    world.run(4)
    [incident] = world.incidents()
    assert (incident.outcome, incident.restarts, incident.epoch) == ("recovered", 1, 1)
    world.successor(3)
    world.run(30)
    assert len(world.incidents()) == 1


def test_a_death_while_no_monitor_ran_is_found_once() -> None:
    world, procs = trained()
    for proc in procs:
        # written while nobody looked: into the store only
        engine, world.engine = world.engine, World().engine
        world.ends(proc, signal=9 if proc.rank == 1 else 15)
        world.engine = engine
    world.successor(2)
    world.launch(NODES, meeting="m2", first_step=33)
    world.run(5)
    [incident] = world.incidents()
    assert [m.rank for m in incident.culprits] == [1]
    assert incident.resumed_from_step == 32
    assert not [key for key in world.store if "/obs/" in key]


def test_erasing_waits_until_the_record_that_cites_it_stands_in_the_store() -> None:
    world, procs = trained()
    world.ends(procs[3], signal=9)
    first = world.engine.tick(world.now, UTC)
    written = [action for action in first if not isinstance(action, ev.Say)]
    assert [type(action.record).__name__ for action in written if isinstance(action, ev.Write)] == ["Incident", "Spent"]
    assert len(written) == 2
    again = world.engine.tick(world.now + 0.1, UTC)
    assert not [action for action in again if isinstance(action, ev.Erase)], "the write has not come back yet"
    for action in first:
        world.apply(action)
    assert [a for a in world.engine.tick(world.now + 0.2, UTC) if isinstance(a, ev.Erase)]


def test_a_round_that_passed_once_is_still_watched() -> None:
    world, procs = trained()
    procs[1].state, world.training = "T", False
    world.run(15)
    procs[1].state, world.training = "S", True
    world.run(5)
    assert [i.outcome for i in world.incidents()] == ["passed"]
    world.ends(procs[3], signal=9)
    world.run(1)
    assert [(i.klass, i.state) for i in world.incidents()] == [("collective_hang", "closed"), ("worker_dead", "open")]


def test_an_order_does_not_outlive_its_reason() -> None:
    world, procs = trained()
    world.arm()
    procs[1].state, world.training = "T", False
    world.refuse_writes = True
    world.run(15)
    procs[1].state, world.training = "S", True
    world.run(3)
    world.refuse_writes = False
    world.relist()
    world.run(5)
    assert world.orders() == []
    assert all(incident.state == "closed" for incident in world.incidents())


def test_disarming_recalls_what_was_not_ordered_yet() -> None:
    world, procs = trained()
    world.arm()
    procs[1].state, world.training = "T", False
    world.refuse_writes = True
    world.run(15)
    world.refuse_writes = False
    world.put(world.keys.arm(), r.Arm(armed=False, author="ann", reason="wait", at=0.0))
    world.relist()
    world.run(3)
    assert world.orders() == []
    assert [i.action for i in world.incidents()] == ["observe"]


def test_what_was_decided_but_never_written_is_decided_again_in_the_next_term() -> None:
    for relist in (False, True):
        world, procs = trained()
        world.refuse_writes = True
        world.ends(procs[3], signal=9)
        world.run(0.5)
        world.engine.step(ev.LeftOffice("lost", world.now))
        world.run(2)
        if relist:
            world.relist()
        world.refuse_writes = False
        world.engine.step(ev.TookOffice(2, world.now))
        world.run(2)
        [incident] = world.incidents()
        assert [m.rank for m in incident.culprits] == [3]
        assert incident.epoch == 2


def test_a_crash_reported_late_is_no_stop_by_the_user() -> None:
    world, procs = trained()
    world.ends(procs[2], code=1, error="RuntimeError", message=GLOO)
    world.ends(procs[3], signal=15)
    world.run(1)
    world.launcher_ends(procs[2])
    world.run(5)
    world.ends(procs[0], signal=9)
    world.ends(procs[1], signal=15)
    world.run(1)
    world.launcher_ends(procs[0])
    world.run(3)
    [incident] = world.incidents()
    assert incident.klass == "worker_dead"
    assert [m.rank for m in incident.culprits] == [0]
    assert world.run_states()[0].outcome == "failed"


def test_ctrl_c_with_a_rank_that_lost_its_peers_first_is_still_a_stop() -> None:
    world, procs = trained()
    world.ends(procs[2], code=1, error="RuntimeError", message=GLOO)
    world.run(0.2)
    for proc in (procs[3], procs[0], procs[1]):
        world.ends(proc, code=1, error="KeyboardInterrupt")
    world.run(0.3)
    world.launcher_ends(procs[0])
    world.launcher_ends(procs[2])
    world.run(3)
    assert world.incidents() == []
    assert world.run_states()[0].outcome == "stopped_by_user"


def test_a_node_that_dies_in_bad_weather_is_found() -> None:
    world = World()
    nodes = {f"node-{letter}": 2 for letter in "abcd"}
    world.launch(nodes, meeting="m1")
    world.run(30)
    world.silent = {"node-a", "node-b"}
    world.run(5)
    world.silent, world.training = {"node-b"}, False
    world.run(60)
    found = {incident.klass: incident for incident in world.incidents()}
    assert {m.node for m in found["node_dead"].culprits} == {"node-b"}
    assert found["control_plane_delay"].state == "closed"


def test_a_hang_in_a_round_that_had_not_recovered_is_acted_upon() -> None:
    world, procs = trained()
    world.arm()
    world.ends(procs[3], signal=9)
    for proc in procs[:3]:
        world.ends(proc, signal=15)
    world.run(1)
    again = world.launch(NODES, meeting="m2", first_step=1)
    again[3].phase = "init"  # three ranks make a step, one never does: it stands still
    world.run(3)
    world.training = False
    for proc in again:
        proc.phase = "train"
    again[3].state = "T"
    world.run(20)
    assert [order.round for order in world.of_kind("restart")] == [2]
    assert [i.outcome for i in world.incidents()] == ["superseded", ""]


def test_a_rank_that_leaves_early_while_the_others_wait_is_named() -> None:
    world, procs = trained()
    world.ends(procs[1], code=0, closed=True)
    world.training = False
    world.run(30)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("collective_hang", "page")
    assert [m.rank for m in incident.culprits] == [1]


def test_tidying_up_after_the_training_is_no_hang() -> None:
    world, procs = trained()
    for proc in procs[1:]:
        world.ends(proc, code=0, closed=True)
    world.training = False
    world.run(120)
    assert world.incidents() == []


def test_hang_with_a_stopped_rank_is_observed_until_armed_then_ordered_once() -> None:
    world, procs = trained()
    procs[1].state, world.training = "T", False
    world.run(15)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("collective_hang", "observe")
    assert [m.rank for m in incident.culprits] == [1]
    assert incident.cascade == (0, 2, 3)
    assert world.orders() == []
    world.arm()
    world.run(2)
    [order] = world.orders()
    assert {m.pid for m in order.members} == {p.pid for p in procs}
    for proc in procs:
        world.ends(proc, signal=9, order_id=order.order_id)
    world.observe(r.ORDER_DONE, "node-a", order_id=order.order_id, killed=2)
    world.training = True
    world.launch(NODES, meeting="m2", first_step=20)
    world.run(4)
    [incident] = world.incidents()
    assert (incident.outcome, incident.restarts, incident.order_id) == ("recovered", 1, order.order_id)
    assert len(world.of_kind("restart")) == 1
    assert any("2 workers had to be killed" in line.text for line in incident.trail)


def test_hang_without_a_laggard_says_so_and_is_not_acted_upon() -> None:
    world, _ = trained()
    world.arm()
    world.training = False
    world.run(15)
    [incident] = world.incidents()
    assert (incident.klass, incident.culprits, incident.action) == ("unknown", (), "page")
    assert "no laggard" in " ".join(incident.reasons)
    world.training = True
    world.run(3)
    assert world.incidents()[0].outcome == "passed"
    assert world.orders() == []


def test_pauses_debuggers_and_checkpoints_are_no_hang() -> None:
    for phase, state in (("paused", "S"), ("checkpoint", "S"), ("train", "t")):
        world, procs = trained()
        for proc in procs:
            proc.phase, proc.state = phase, state
        world.training = False
        world.run(60)
        assert world.incidents() == [], (phase, state)


def test_restart_budget_without_progress_ends_in_a_page() -> None:
    world, procs = trained()
    world.arm()
    for round_ in range(2, 7):
        world.training = False
        procs[1].state = "T"
        world.run(15)
        order = world.orders()[-1]
        if order.round != round_ - 1:
            break
        for proc in procs:
            world.ends(proc, signal=9, order_id=order.order_id)
        procs = world.launch(NODES, meeting=f"m{round_}")
        for proc in procs:  # it comes up, makes its first step and hangs again before anything is learned anew
            proc.step = proc.first_step = -1
        world.run(2)
    assert len(world.orders()) <= 3


def test_a_round_that_fails_before_it_recovered_is_the_same_incident() -> None:
    world, procs = trained()
    world.ends(procs[3], signal=9)
    for proc in procs[:3]:
        world.ends(proc, signal=15)
    world.run(2)
    for round_ in (2, 3):
        procs = world.launch(NODES, meeting=f"m{round_}", first_step=0)
        world.training = False
        world.run(1)
        world.ends(procs[0], code=1, error="RuntimeError", message="connectFullMesh failed")
        world.ends(procs[1], signal=9)
        for proc in procs[2:]:
            world.ends(proc, signal=15)
        world.run(2)
    world.successor(2)
    world.training = True
    world.launch(NODES, meeting="m4", first_step=50)
    world.run(4)
    [incident] = world.incidents()
    assert [m.rank for m in incident.culprits] == [3]
    assert (incident.restarts, incident.outcome, incident.resumed_from_step) == (3, "recovered", 49)
    assert any("round 3 failed before it recovered" in line.text for line in incident.trail)
    assert not [key for key in world.store if "/obs/" in key]


def test_a_job_cannot_claim_another_runs_identity() -> None:
    """The agent vouches for run and round; what a slot says of them never comes here. Even so nobody is displaced."""
    world, _ = trained()
    [state] = world.run_states()
    [forger] = world.launch({"node-c": 1}, meeting="f1", launchers={"node-c": "f"})
    forger.row = r.RunRow("none", "f1", "f", 1, True, state.run_uid, 1)
    world.run(5)
    mine = world.engine.snapshot(world.now)["runs"][state.run_uid]
    assert {rank["node"] for rank in mine["ranks"]} == {"node-a", "node-b"}
    assert [line for line in world.said if "is that of a plain launch" in line]
    world.ends(forger, signal=9)
    world.run(3)
    assert world.incidents() == []


def test_a_record_that_breaks_the_fold_is_skipped_and_said() -> None:
    world, procs = trained()
    world.engine.folder._by_record[r.Arm] = lambda *_: 1 / 0
    world.put(world.keys.arm(), r.Arm(armed=True, author="a", reason="b", at=0.0))
    world.run(1)
    assert any("could not be folded" in line for line in world.said)
    world.ends(procs[3], signal=9)
    world.tick()
    assert len(world.incidents()) == 1


def test_history_is_bounded() -> None:
    world = World()
    for n in range(260):
        procs = world.launch({"node-a": 1}, meeting=f"h{n}", launchers={"node-a": f"l{n}"})
        world.run(1.2)
        world.ends(procs[0], code=0, closed=True)
        world.run(0.2)
    world.run(5)
    assert len(world.run_states()) <= 201
    assert len([key for key in world.store if "/roster/" in key]) <= 201
    assert len(world.engine.folder.fleet.runs) <= 201


def test_max_restarts_used_up_ends_the_run_as_failed() -> None:
    world, procs = trained()
    world.ends(procs[3], signal=9)
    for proc in procs[:3]:
        world.ends(proc, code=1, error="RuntimeError", message=GLOO)
    world.launcher_ends(procs[0])
    world.launcher_ends(procs[2])
    world.run(3)
    [incident] = world.incidents()
    assert (incident.klass, incident.outcome, incident.restarts) == ("worker_dead", "run_ended", 0)
    assert world.run_states()[0].outcome == "failed"


def test_without_torchelastic_a_crash_is_paged() -> None:
    world, procs = trained(elastic=False)
    world.ends(procs[3], signal=9)
    world.run(1)
    [incident] = world.incidents()
    assert incident.action == "page"


def test_an_operator_restarts_a_run() -> None:
    world, _ = trained()
    [state] = world.run_states()
    request = r.Request(id="q1", kind="restart", run_uid=state.run_uid, author="ann", reason="new image", at=0.0)
    world.put(world.keys.request("q1"), request)
    world.run(1)
    [order] = world.orders()
    assert (order.round, len(order.members)) == (1, 4)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("operator_restart", "restart")
    assert not [key for key in world.store if "/requests/" in key]
    bad = r.Request(id="q2", kind="restart", run_uid="nobody", author="ann", reason="x", at=0.0)
    world.put(world.keys.request("q2"), bad)
    world.run(1)
    assert any("no run nobody is going on" in line for line in world.said)


def test_two_jobs_with_one_label_on_the_same_nodes_are_two_runs() -> None:
    world = World()
    first = world.launch(NODES, meeting="m1")
    second = world.launch(NODES, meeting="n1", launchers={"node-a": "other-a", "node-b": "other-b"})
    world.run(20)
    assert len(world.run_states()) == 2
    world.ends(second[0], signal=9)
    world.run(1)
    [incident] = world.incidents()
    assert incident.culprits[0].pid == second[0].pid
    assert {p.pid for p in first}.isdisjoint({m.pid for m in incident.culprits})


def test_agent_that_said_goodbye_is_not_missed() -> None:
    world, _ = trained()
    world.observe(r.AGENT_STOPPING, "node-b")
    world.silent = {"node-b"}
    world.run(60)
    assert world.incidents() == []
    world.successor(2)
    world.run(30)
    assert world.incidents() == []


def test_a_late_sigkill_does_not_correct_the_right_culprit() -> None:
    world, procs = trained()
    world.ends(procs[1], code=1, error="ValueError", message="bad batch")
    world.run(30)
    world.ends(procs[0], signal=9)
    world.run(2)
    [incident] = world.incidents()
    assert [m.rank for m in incident.culprits] == [1]


def test_the_same_error_on_every_rank_is_the_programs_own() -> None:
    world, procs = trained()
    for proc in procs:
        world.ends(proc, code=1, error="ValueError", message="no such file")
        world.run(0.1)
    world.run(2)
    [incident] = world.incidents()
    assert [m.rank for m in incident.culprits] == [0, 1, 2, 3]
    assert incident.cascade == ()


def test_a_node_that_leaves_on_purpose_and_returns_is_no_crash() -> None:
    world, procs = trained()
    for proc in procs[2:]:
        world.ends(proc, signal=15)
    world.launcher_ends(procs[2])
    for proc in procs[:2]:
        world.ends(proc, code=1, error="RuntimeError", message=GLOO)
    world.run(0.5)
    world.launch(NODES, meeting="m2", launchers={"node-a": procs[0].row.launcher, "node-b": "second"}, first_step=50)
    world.run(60)
    assert [i.summary for i in world.incidents()] == []
    assert [(s.outcome, s.round) for s in world.run_states()] == [("running", 2)]


def test_a_newcomer_seen_first_at_a_meeting_is_one_run_with_those_who_meet_it() -> None:
    world, procs = trained()
    for proc in procs[2:]:
        world.ends(proc, signal=15)
    world.launcher_ends(procs[2])
    for proc in procs[:2]:
        world.ends(proc, signal=15)
    world.silent = {"node-a"}
    world.launch(NODES, meeting="m2", launchers={"node-a": procs[0].row.launcher, "node-b": "second"}, first_step=50)
    world.run(1.4)
    world.silent = set()
    world.run(5)
    [state] = world.run_states()
    assert (state.outcome, state.round) == ("running", 2)
    shown = world.engine.snapshot(world.now)["runs"][state.run_uid]
    assert [rank["rank"] for rank in shown["ranks"]] == [0, 1, 2, 3]
    assert len([key for key in world.store if "/roster/" in key]) == 2


def test_half_of_the_nodes_frozen_while_their_peers_wait_is_no_weather() -> None:
    world = World()
    world.launch({f"node-{letter}": 1 for letter in "abc"}, meeting="m1")
    world.run(30)
    world.silent, world.training = {"node-b", "node-c"}, False
    world.run(45)
    assert "node_dead" in {incident.klass for incident in world.incidents()}
    world.silent, world.training = set(), True
    world.run(20)
    assert not [i for i in world.incidents() if "job progressing" in i.summary]


def test_a_crash_that_no_agent_watched_ends_in_a_failed_run_and_swallows_no_other() -> None:
    world = World()
    first = world.launch({"node-a": 1}, meeting="q1", run_id="one", launchers={"node-a": ""})
    world.beat("node-a")
    first[0].alive = False
    world.ends(first[0], code=9)
    world.run(60)
    assert [s.outcome for s in world.run_states()] == ["failed"]
    second = world.launch({"node-a": 1}, meeting="q2", run_id="two", launchers={"node-a": ""})
    world.ends(second[0], code=9)
    world.run(60)
    assert [(s.run_id, s.outcome) for s in world.run_states()] == [("one", "failed"), ("two", "failed")]
    assert len(world.incidents()) == 2


def test_a_job_without_steps_recovers_too() -> None:
    world = World()
    procs = world.launch(NODES, meeting="m1", first_step=0)
    world.training = False
    world.run(30)
    world.ends(procs[3], signal=9)
    for proc in procs[:3]:
        world.ends(proc, signal=15)
    world.run(1)
    again = world.launch(NODES, meeting="m2", first_step=0)
    world.run(40)
    assert [(i.outcome, i.resumed_from_step) for i in world.incidents()] == [("recovered", None)]
    world.ends(again[0], signal=9)
    world.run(1)
    assert len(world.incidents()) == 2


def test_two_launchers_of_one_job_on_one_node_are_one_run() -> None:
    world = World()
    rows = [r.RunRow("job", "m1", launcher, 2, True) for launcher in ("torchrun-1", "torchrun-2")]
    world.procs = [Proc(rank, "node-a", 0, 500 + rank, 7, rows[rank], step=0) for rank in (0, 1)]
    world.arm()
    world.run(30)
    [state] = world.run_states()
    shown = world.engine.snapshot(world.now)["runs"][state.run_uid]
    assert [rank["rank"] for rank in shown["ranks"]] == [0, 1]
    world.procs[1].state, world.training = "T", False
    world.run(15)
    assert [i.klass for i in world.incidents()] == ["collective_hang"]
    assert len(world.of_kind("restart")) == 1


def test_a_crash_in_the_tick_that_would_end_the_incident_before_keeps_it_open() -> None:
    world, procs = trained()
    world.ends(procs[3], signal=9)
    for proc in procs[:3]:
        world.ends(proc, signal=15)
    world.run(1)
    again = world.launch(NODES, meeting="m2", first_step=20)
    for node in NODES:
        world.beat(node)  # every rank has made its step, and one is killed before anybody looks
    world.ends(again[1], signal=9)
    world.run(5)
    [incident] = world.incidents()
    assert incident.state == "open"
    assert any("round 2 failed before it recovered" in line.text for line in incident.trail)
    for proc in again:
        if proc.alive:
            world.ends(proc, signal=15)
    world.launch(NODES, meeting="m3", first_step=20)
    world.run(5)
    assert [(i.outcome, i.restarts) for i in world.incidents()] == [("recovered", 2)]
