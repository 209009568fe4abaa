"""Silent nodes, told both ways: what is dead is given up in time, what is not is left alone."""

import pytest
from silence_world import SilenceWorld, settings

from rankpulse.core import events as ev
from rankpulse.core import records as r

EIGHT = {f"n{n}": 2 for n in range(8)}
TWELVE = {f"n{n:02d}": 1 for n in range(12)}
RACKS = {f"n{n:02d}": f"rack-{n // 4}" for n in range(12)}
RACK = ("n00", "n01", "n02", "n03")


def trained(nodes: dict[str, int] = EIGHT, **kwargs: object) -> SilenceWorld:
    """Nodes whose job has trained long enough to be known, under the preset `fast`."""
    world = SilenceWorld(**kwargs)  # type: ignore[arg-type]
    world.joins(nodes)
    world.run(40)
    assert world.incidents() == []
    assert world.probes == []
    return world


# --- witnessed: peers stand still


@pytest.mark.parametrize("unreachable", [False, True])
def test_a_dead_node_whose_peers_wait_is_convicted_in_six_seconds(unreachable: bool) -> None:
    world = trained(unreachable=unreachable)
    world.die("n3")
    assert world.until(8, "node_dead") is not None
    [incident] = world.incidents()
    assert (incident.nodes, incident.action, incident.round) == (("n3",), "page", 1)
    assert [m.node for m in incident.culprits] == ["n3", "n3"]
    assert incident.cascade == tuple(rank for rank in range(16) if rank not in (6, 7))
    assert "without the dead" in incident.action_reason
    assert world.state_of("n3") == "convicted"
    assert bool(world.probes) is not unreachable
    world.run(120)
    assert len(world.incidents()) == 1


def test_a_frozen_node_that_comes_back_in_time_is_nobodys_incident() -> None:
    world = trained()
    world.die("n3")
    world.run(4)
    assert world.state_of("n3") == "suspect"
    world.thaw("n3")
    world.run(60)
    assert world.incidents() == []
    assert world.state_of("n3") == "trusted"


def test_one_that_comes_back_after_its_conviction_was_a_mistake_and_counts_as_such() -> None:
    world = trained()
    world.die("n3")
    world.run(12)
    world.thaw("n3")
    world.run(70)
    [incident] = world.incidents()
    assert (incident.klass, incident.state, incident.outcome) == ("node_dead", "closed", "passed")
    learned = world.engine.folder.memory.stored
    assert learned is not None
    assert (learned.healed, learned.deaths) == (1, 0)
    assert 10 < learned.healed_s[0] < 15


def test_a_machine_that_comes_back_without_its_workers_is_still_dead_to_its_job() -> None:
    world = trained()
    world.die("n3")
    world.run(10)
    world.machines["n3"] = ev.REFUSED  # it boots
    world.run(10)
    for proc in world.procs:
        proc.alive = proc.alive and proc.node != "n3"
    world.machines.pop("n3")
    world.silent.discard("n3")
    world.inc["n3"], world.seq["n3"] = 2, 0
    world.run(10)
    [incident] = world.incidents()
    assert (incident.klass, incident.state) == ("node_dead", "open")


# --- unwitnessed: no peer can tell


def test_in_an_evaluation_a_node_is_dead_when_looks_get_nothing_back() -> None:
    world = trained()
    for proc in world.procs:
        proc.phase = "evaluate"
    world.run(3)
    world.die("n3")
    took = world.until(12, "node_dead")
    assert took is not None
    assert took <= 8.5
    assert "direct looks get nothing back" in " ".join(world.incidents()[0].reasons)


def test_without_looks_nobody_knows_in_an_evaluation_and_the_first_witness_corrects_it() -> None:
    world = trained(unreachable=True)
    for proc in world.procs:
        proc.phase = "evaluate"
    world.run(3)
    world.die("n3")
    assert world.until(12, "unknown") is not None
    assert world.klasses() == ["unknown"]
    for proc in world.procs:
        proc.phase = "train"
    world.run(10)
    [incident] = world.incidents()
    assert (incident.klass, incident.run_uid, incident.round) == ("node_dead", "job-1", 1)
    assert any("corrected" in line.text for line in incident.trail)


def test_the_only_node_of_a_job_is_dead_when_looks_get_nothing_back() -> None:
    world = SilenceWorld()
    world.joins({"n0": 2})
    for node in ("x", "y", "z"):
        world.inc[node] = 1
    world.run(40)
    world.die("n0")
    assert world.until(12, "node_dead") is not None


def test_a_job_whose_steps_are_long_is_waited_for() -> None:
    world = trained(steps_per_beat=0)
    for _ in range(25):
        for proc in world.procs:
            proc.step += 1
        world.run(20)
    world.silent.add("n3")
    world.machines["n3"] = ev.SILENT
    world.run(15)
    assert world.incidents() == []
    assert world.until(40, "node_dead") is not None


# --- what speaks for a node


def test_a_node_that_answers_is_cut_off_from_the_store_and_its_job_is_seen_all_the_same() -> None:
    world = trained()
    world.cut("n3")
    world.run(19)
    assert world.incidents() == []
    world.run(10)
    [incident] = world.incidents()
    assert (incident.klass, incident.nodes, incident.action) == ("agent_cut_off", ("n3",), "page")
    assert "not touched" in incident.action_reason
    steps = {rank["step"] for rank in world.engine.snapshot(world.now)["runs"]["job-1"]["ranks"]}
    assert max(steps) - min(steps) <= 3
    world.silent.clear()
    world.run(5)
    assert [(i.state, i.outcome) for i in world.incidents()] == [("closed", "passed")]


def test_an_agent_that_stood_still_and_goes_on_is_not_cut_off() -> None:
    """It answers a moment before its beats come; that its machine lived in this silence says nothing of its path."""
    world = trained()
    world.silent.add("n3")
    world.machines["n3"] = ev.ACCEPTED
    world.run(40)
    del world.machines["n3"]
    world.run(4)
    world.silent.clear()
    world.run(5)
    assert [(i.klass, i.state) for i in world.incidents()] == [("sidecar_dead", "closed")]


def test_a_hang_is_found_while_one_agent_is_cut_off() -> None:
    world = trained()
    world.cut("n3")
    world.run(5)
    world.training = False
    world.procs[1].state = "T"
    world.run(20)
    assert "collective_hang" in world.klasses()
    assert "node_dead" not in world.klasses()


@pytest.mark.parametrize("answer", [ev.REFUSED, ev.ACCEPTED])
def test_a_machine_that_lives_is_never_dead(answer: str) -> None:
    world = trained()
    world.silent.add("n3")
    world.machines["n3"] = answer
    world.run(40)
    assert world.klasses() == ["sidecar_dead"]
    world.training = False
    world.run(60)
    assert "node_dead" not in world.klasses()
    told = [i for i in world.incidents() if i.klass == "unknown"]
    assert [i.nodes for i in told] == [("n3",)]
    assert answer in " ".join(told[0].reasons)


def test_a_silent_node_whose_job_goes_on_is_told_of_and_not_excused_for_ever() -> None:
    world = trained(settings=settings(silence_ceiling_s=120.0))
    world.silent.add("n3")
    world.machines["n3"] = ev.SILENT
    world.run(60)
    [incident] = world.incidents()
    assert (incident.klass, incident.action) == ("sidecar_dead", "none")
    assert world.state_of("n3") == "excused"
    world.run(70)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.nodes) == ("unknown", "page", ("n3",))
    world.run(60)
    assert len(world.incidents()[0].trail) < 10
    world.silent.clear()
    world.run(5)
    assert world.incidents()[0].outcome == "passed"


def test_an_alibi_is_used_up_when_the_job_then_stands_still() -> None:
    world = trained()
    world.silent.add("n3")
    world.machines["n3"] = ev.SILENT
    world.run(15)
    assert world.incidents() == []
    world.training = False
    took = world.until(10, "node_dead")
    assert took is not None


# --- many at once


@pytest.mark.parametrize("racks", [RACKS, {}])
def test_a_lost_rack_is_one_decision(racks: dict[str, str]) -> None:
    world = trained(TWELVE, racks=racks)
    world.die(*RACK)
    took = world.until(30, "node_dead")
    assert took is not None
    assert 15.0 < took <= 18.0
    dead = [i for i in world.incidents() if i.klass == "node_dead"]
    assert [i.nodes for i in dead] == [RACK]
    world.run(60)
    assert [i.klass for i in world.incidents()].count("node_dead") == 1


def test_a_rack_that_pauses_and_comes_back_one_by_one_convicts_nobody() -> None:
    world = trained(TWELVE, racks=RACKS)
    world.die(*RACK)
    world.run(14)
    for node in ("n01", "n00", "n03"):
        world.machines.pop(node)
        world.silent.discard(node)
        world.run(1)
    world.run(3)
    world.thaw("n02")
    world.run(60)
    assert world.incidents() == []


def test_the_last_of_a_rack_that_stays_away_is_dead() -> None:
    world = trained(TWELVE, racks=RACKS)
    world.die(*RACK)
    world.run(10)
    world.thaw("n00", "n01", "n03")
    world.training = False
    world.run(10)
    [incident] = world.incidents()
    assert (incident.klass, incident.nodes) == ("node_dead", ("n02",))


def test_silence_of_nearly_all_stops_actions_and_convicts_nobody() -> None:
    world = trained()
    world.arm()
    for proc in world.procs:
        proc.phase = "evaluate"
    world.run(3)
    world.die(*[f"n{n}" for n in range(6)])
    world.run(40)
    assert world.klasses() == ["control_plane_delay", "breaker_open"]
    assert "actions stop" in world.incidents()[0].summary
    shown = world.engine.snapshot(world.now)
    assert "6 of 8 nodes" in shown["actions_stopped"]
    assert shown["blind"] is False
    world.thaw(*[f"n{n}" for n in range(6)])
    world.run(60)
    ended = [(i.klass, i.outcome) for i in world.incidents()]
    assert ended == [("control_plane_delay", "passed"), ("breaker_open", "")], "only a person closes it"
    assert world.engine.snapshot(world.now)["actions_stopped"].startswith("the breaker is open: 6 of 8 nodes")
    world.ask("breaker_close", reason="the switch is back")
    world.run(1)
    assert world.engine.snapshot(world.now)["actions_stopped"] == ""


def test_three_nodes_of_two_racks_are_not_given_up_without_a_witness() -> None:
    world = trained(TWELVE, racks=RACKS)
    for proc in world.procs:
        proc.phase = "evaluate"
    world.run(3)
    world.die("n00", "n01", "n05")
    world.run(60)
    assert world.klasses() == ["control_plane_delay"]
    assert "too many are silent at once" in " ".join(world.incidents()[0].reasons)
    for proc in world.procs:
        proc.phase = "train"
    world.run(30)
    dead = [i for i in world.incidents() if i.klass == "node_dead"]
    assert {node for i in dead for node in i.nodes} == {"n00", "n01", "n05"}
    assert len(dead) == 1


def test_many_agents_that_lose_the_store_at_once_page_once() -> None:
    world = trained(TWELVE)
    away = ("n00", "n04", "n05", "n06")
    world.cut(*away)
    world.run(40)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.nodes) == ("agent_cut_off", "page", away)
    assert len(incident.trail) < 10
    world.silent.clear()
    world.run(5)
    assert [(i.state, i.outcome) for i in world.incidents()] == [("closed", "passed")]


def test_of_very_many_not_all_are_named_but_counted() -> None:
    world = trained({f"n{n}": 1 for n in range(80)}, unreachable=True)
    world.silent.update(f"n{n}" for n in range(70))
    world.run(40)
    [incident] = [i for i in world.incidents() if i.klass == "sidecar_dead"]
    assert len(incident.nodes) == 64
    assert "and 66 more" in incident.summary
    world.run(20)
    assert [i for i in world.incidents() if i.klass == "sidecar_dead"] == [incident]


def test_agents_that_die_at_different_times_are_different_incidents() -> None:
    world = trained(TWELVE)
    for nodes in (("n00", "n01"), ("n07",)):
        world.silent.update(nodes)
        world.machines.update(dict.fromkeys(nodes, ev.REFUSED))
        world.run(15)
    world.run(25)
    assert [(i.klass, i.nodes) for i in world.incidents()] == [
        ("sidecar_dead", ("n00", "n01")),
        ("sidecar_dead", ("n07",)),
    ]


def test_of_agents_that_were_lost_together_each_is_seen_better_by_itself() -> None:
    world = trained(TWELVE)
    world.cut("n00", "n01", "n02")
    world.run(35)
    world.machines["n01"] = ev.REFUSED
    world.run(20)
    told = {i.nodes: i.klass for i in world.incidents()}
    assert told == {("n00", "n02"): "agent_cut_off", ("n01",): "sidecar_dead"}
    assert all(len(i.trail) < 10 for i in world.incidents())


# --- who watches


def test_no_look_while_blind_or_not_leading() -> None:
    world = trained()
    world.die("n3")
    world.canary = False
    world.run(3)
    seen = len(world.probes)
    world.run(20)
    assert len(world.probes) == seen
    assert world.engine.snapshot(world.now)["actions_stopped"].startswith("blind")
    world.canary = True
    world.engine.step(ev.LeftOffice("lost", world.now))
    world.run(20)
    assert len(world.probes) == seen
    assert world.incidents() == []


def test_looks_are_spaced_and_bounded() -> None:
    world = SilenceWorld()
    world.joins({f"n{n:03d}": 1 for n in range(100)})
    world.run(30)
    world.die(*[f"n{n:03d}" for n in range(80)])
    before = world.now
    world.run(10)
    asked: dict[str, list[float]] = {}
    for probe in world.probes:
        asked.setdefault(probe.node, []).append(probe.number)
    assert len(asked) == 80, "in turns, where they are more than are looked at once"
    assert len(world.probes) <= 64 * (world.now - before) / world.settings.probe.interval_s
    assert len({probe.number for probe in world.probes}) == len(world.probes)


def test_a_node_that_died_while_no_monitor_ran_and_whose_lease_is_over_is_found() -> None:
    world = trained()
    engine, world.engine = world.engine, SilenceWorld().engine  # nobody looks
    world.die("n3")
    world.erase(world.keys.beat("n3"))
    world.run(30)
    world.engine = engine
    world.successor(2)
    took = world.until(30, "node_dead")
    assert took is not None
    assert took < 20
    [incident] = world.incidents()
    assert incident.nodes == ("n3",)


def test_a_node_that_died_while_no_monitor_ran_and_is_not_needed_any_more_is_not_missed() -> None:
    world = trained()
    engine, world.engine = world.engine, SilenceWorld().engine
    world.erase(world.keys.beat("n3"))
    world.silent.add("n3")
    world.engine = engine
    for proc in world.procs:
        if proc.alive:
            world.ends(proc, code=0, closed=True)
    for node in EIGHT:
        world.leaves(node, "finished")
    world.run(5)
    world.successor(2)
    world.run(60)
    assert world.incidents() == []


def test_a_new_leader_waits_anew_and_does_not_tell_it_twice() -> None:
    world = trained()
    world.die("n3")
    world.run(5)
    world.successor(2)
    world.run(6.5)
    assert world.incidents() == []
    world.run(10)
    assert world.klasses() == ["node_dead"]
    world.successor(3)
    world.run(60)
    assert world.klasses() == ["node_dead"]
    world.thaw("n3")
    world.run(10)
    assert [i.outcome for i in world.incidents()] == ["passed"]


def test_a_new_leader_that_can_look_at_nobody_believes_the_witnesses_that_the_last_one_knew() -> None:
    """It has never seen the ranks move, let alone keep step; and a third knows no less than the second."""
    world = trained(unreachable=True)
    world.die("n3")
    world.run(3)
    world.successor(2)
    world.run(3)
    world.successor(3)
    world.run(30)
    assert world.klasses() == ["node_dead"]
    [incident] = world.incidents()
    assert (incident.nodes, incident.confidence) == (("n3",), 0.8)


def test_a_dead_node_that_is_left_out_of_the_next_round_is_not_told_of_again() -> None:
    world = trained()
    world.die("n3")
    world.run(10)
    rest = {node: count for node, count in EIGHT.items() if node != "n3"}
    for proc in world.procs:
        if proc.node != "n3":
            world.ends(proc, signal=15)
    world.run(1)
    world.training = True
    world.meets(rest, 2, first_step=30)
    world.run(90)
    assert [(i.klass, i.outcome) for i in world.incidents()] == [("node_dead", "recovered")]
    world.erase(world.keys.beat("n3"))
    world.run(70)
    assert "n3" not in world.engine.snapshot(world.now)["nodes"]
    learned = world.engine.folder.memory.stored
    assert learned is not None
    assert learned.deaths == 1
    assert len(learned.restart_s) == 1


def test_a_worker_that_died_before_its_node_is_another_cause() -> None:
    world = trained()
    world.ends(world.procs[0], signal=9)
    world.run(1)
    world.die("n3")
    world.run(15)
    assert sorted(world.klasses()) == ["node_dead", "worker_dead"]
    dead = next(i for i in world.incidents() if i.klass == "node_dead")
    assert (dead.run_uid, dead.nodes) == ("", ("n3",))
    world.thaw("n3")
    world.run(10)
    dead = next(i for i in world.incidents() if i.klass == "node_dead")
    assert dead.outcome == "passed"


# --- what is not believed


def test_a_look_that_nobody_asked_for_or_of_an_older_agent_changes_nothing() -> None:
    world = trained()
    world.die("n3")
    world.run(4)
    node = world.engine.folder.fleet.nodes["n3"]
    before = (node.suspect.state, node.suspect.life_at, node.suspect.look)
    open_ = max(node.suspect.asked)
    world.engine.step(ev.Probed("n3", 10_000, ev.ANSWERED, None, "", world.now))
    world.engine.step(ev.Probed("nobody", open_, ev.ANSWERED, None, "", world.now))
    old = r.Beat(node="n3", inc=0, seq=99, at=0.0)
    world.engine.step(ev.Probed("n3", open_, ev.ANSWERED, old, "", world.now))
    other = r.Beat(node="n4", inc=1, seq=99, at=0.0)
    world.engine.step(ev.Probed("n3", open_, ev.ANSWERED, other, "", world.now))
    assert (node.suspect.state, node.suspect.life_at, node.suspect.look) == before
    world.engine.step(ev.Probed("n3", open_, ev.REFUSED, None, "", world.now))
    assert node.suspect.state == "excused"
    after = (node.suspect.state, node.suspect.life_at, node.suspect.look, list(node.suspect.trail))
    world.now += 1
    world.engine.step(ev.Probed("n3", open_, ev.SILENT, None, "", world.now))
    world.engine.step(ev.Probed("n3", open_, ev.REFUSED, None, "", world.now))
    assert (node.suspect.state, node.suspect.life_at, node.suspect.look, list(node.suspect.trail)) == after


# --- what is learned of silences


def healed(world: SilenceWorld) -> tuple[float, ...]:
    world.run(75)
    learned = world.engine.folder.memory.stored
    return learned.healed_s if learned is not None else ()


def test_a_freeze_is_learned_and_a_way_that_is_late_is_not() -> None:
    world = trained()
    world.die("n3")
    world.run(4)
    world.thaw("n3")
    [lasted_s] = healed(world)
    assert 4.0 <= lasted_s <= 5.5
    world = trained()
    world.silent.add("n3")  # the job goes on, and looks do not come through either
    world.machines["n3"] = ev.SILENT
    world.run(4)
    world.thaw("n3")
    assert healed(world) == ()


def test_a_silence_of_many_is_not_each_ones_own() -> None:
    world = trained(TWELVE, racks=RACKS)
    world.die(*RACK)
    world.run(6)
    world.thaw(*RACK)
    assert healed(world) == ()


# --- first beats, several runs


def test_the_first_beats_of_a_new_agent_get_the_whole_margin() -> None:
    world = trained()
    world.inc["n3"], world.seq["n3"] = 2, 0
    world.run(3)
    world.silent.add("n3")
    world.run(4.5)
    assert world.incidents() == []
    world.silent.discard("n3")
    world.run(30)
    assert world.incidents() == []


def test_a_node_that_two_runs_need_is_an_incident_of_each_unless_one_of_them_moves() -> None:
    for second_moves in (False, True):
        world = trained()
        world.meets({"n2": 1, "n3": 1}, 1, uid="job-2")
        world.run(40)
        world.die("n3")
        if second_moves:
            world.training = True  # of the one run only
            for proc in world.procs:
                proc.phase = "train" if proc.row.run_uid == "job-2" else "evaluate"
        world.run(15)
        dead = sorted(i.run_uid for i in world.incidents() if i.klass == "node_dead")
        assert dead == ([] if second_moves else ["job-1", "job-2"])
