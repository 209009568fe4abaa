"""Gates and cordons: the policy's word on a round that is about to form, and who may not be in it."""

from core_world import World

from rankpulse.core import events as ev
from rankpulse.core import records as r

NODES = {"node-a": 2, "node-b": 2}


def test_the_first_round_is_answered_at_once() -> None:
    world = World()
    world.asks(["node-a"], 1)
    world.tick()
    [gate] = world.gates()
    assert (gate.run_uid, gate.round, gate.go, gate.without) == ("job-1", 1, True, ())
    assert gate.reason == "nothing speaks against it"


def test_a_cordoned_node_stays_out_and_the_gate_says_why() -> None:
    world = World()
    world.ask("cordon", node="node-b", reason="bad link")
    world.ask("cordon", node="elsewhere", reason="rack moved")
    world.run(0.2)
    assert world.engine.snapshot(world.now)["cordons"]["node-b"]["reason"] == "bad link"
    world.asks(NODES, 1)
    world.run(0.2)
    [gate] = world.gates()
    assert (gate.go, gate.without) == (True, ("node-b",))
    assert "node-b is cordoned by ann: bad link" in gate.reason


def test_a_cordon_that_is_lifted_before_the_round_met_lifts_the_gate_too() -> None:
    world = World()
    world.ask("cordon", node="node-b")
    world.asks(NODES, 1)
    world.run(0.2)
    assert world.gates()[0].without == ("node-b",)
    world.ask("uncordon", node="node-b")
    world.run(0.5)
    [gate] = world.gates()
    assert (gate.go, gate.without) == (True, ())


def test_maintenance_that_begins_while_a_round_waits_keeps_the_node_out_of_it() -> None:
    """Agents know of cordons, and of nobody in maintenance but by the gate."""
    world = World()
    world.lists(nodes=3)
    world.asks(["node-a"], 1)
    world.run(1)
    assert world.gates()[0].without == ()
    world.ask("maintenance", node="node-b", reason="new disk")
    world.run(1)
    assert world.gates()[0].without == (), "it has no part in it"
    world.torchrun("node-b", 1)
    world.run(1)
    [gate] = world.gates()
    assert (gate.go, gate.without) == (True, ("node-b",))
    assert "node-b is in maintenance, by ann: new disk" in gate.reason
    written = world.revision
    world.run(5)
    assert world.gates() == [gate]
    assert world.revision - written <= 5 * 2, "beats alone"


def test_requests_about_nodes_are_answered_in_words_and_erased() -> None:
    world = World()
    world.ask("uncordon", node="node-b")
    world.ask("cordon", node="node-b", reason="first")
    world.ask("cordon", node="node-b", reason="second")
    world.ask("cordon", node="../leader")
    world.ask("drain", node="node-c")
    world.run(1)
    text = "\n".join(world.said)
    assert "refused: node-b is not cordoned" in text
    assert "refused: node-b is cordoned already, by ann: first" in text
    assert "use letters, digits" in text
    assert "'drain' is not a kind this monitor knows" in text
    assert not [key for key in world.store if "/requests/" in key]
    assert [key for key in world.store if "/cordons/" in key] == [world.keys.cordon("node-b")]
    world.ask("uncordon", node="node-b")
    world.ask("cordon", node="node-b", reason="third")
    world.run(1)
    assert world.engine.snapshot(world.now)["cordons"]["node-b"]["reason"] == "third"


def test_a_cordon_survives_its_leader_and_is_not_written_again_once_lifted() -> None:
    world = World()
    world.ask("cordon", node="node-b")
    world.run(0.2)
    world.successor(2)
    world.run(0.2)
    assert "node-b" in world.engine.snapshot(world.now)["cordons"]
    world.ask("uncordon", node="node-b")
    world.run(5)
    assert not [key for key in world.store if "/cordons/" in key]


def test_a_standing_round_and_a_spare_ask_for_no_gate() -> None:
    world = World()
    world.meets(NODES, 1)
    world.run(1)
    world.asks(["node-c"], 1)
    world.run(5)
    assert world.gates() == []


def test_the_next_round_waits_for_the_verdict_on_the_last_but_not_long() -> None:
    world = World()
    procs = world.meets(NODES, 1)
    world.run(5)
    world.ends(procs[0], code=1, error="RuntimeError", message="Connection closed by peer")
    world.asks(NODES, 2)
    world.run(0.3)
    assert world.gates() == [], "whoever went first may be on the way"
    world.run(0.6)
    [gate] = world.gates()
    assert (gate.round, gate.go) == (2, True)
    world = World()
    procs = world.meets(NODES, 1)
    world.run(5)
    world.ends(procs[0], signal=15)  # is it a stop? that takes a while to know
    world.asks(NODES, 2)
    world.run(1.4)
    assert world.gates() == []
    world.run(0.4)
    assert [g.round for g in world.gates()] == [2]


def test_a_gate_is_never_taken_back_by_another_leader() -> None:
    world = World()
    world.asks(NODES, 1)
    world.run(0.2)
    [before] = world.gates()
    world.ask("cordon", node="node-b")
    world.successor(2)
    world.run(2)
    assert world.gates() == [before]


def test_all_members_gone_lets_a_spare_ask() -> None:
    world = World()
    procs = world.meets(NODES, 1)
    world.asks(["node-c"], 1)
    world.run(5)
    for proc in procs:
        world.ends(proc, signal=15)
    for node in NODES:
        world.leaves(node, "gone")
    world.run(2)
    assert [(g.round, g.go) for g in world.gates()] == [(2, True)]


def test_a_closed_launch_is_given_no_gate() -> None:
    world = World()
    world.lists(closed="node-a: failed", outcome="failed")
    world.asks(NODES, 1)
    world.run(3)
    assert world.gates() == []


def test_gates_of_runs_that_nobody_knows_go() -> None:
    world = World()
    gate = r.Gate(run_uid="long-gone", round=3, go=True, reason="x", epoch=1, at=0.0)
    world.put(world.keys.gate("long-gone", 3), gate)
    world.run(0.2)
    assert world.gates() == []


def test_nothing_is_answered_by_one_who_does_not_lead() -> None:
    world = World()
    world.engine.step(ev.LeftOffice("lost", world.now))
    world.asks(NODES, 1)
    world.run(3)
    assert world.gates() == []


def test_a_run_by_the_name_of_a_plain_launch_is_ignored() -> None:
    world = World()
    world.launch(NODES, meeting="m1")
    world.run(3)
    [state] = world.run_states()
    world.asks(NODES, 1, uid=state.run_uid)
    world.run(3)
    assert world.gates() == []
    assert [s.run_id for s in world.run_states()] == ["none"]


def test_a_launch_that_never_met_is_forgotten() -> None:
    world = World()
    for n in range(5):
        uid = f"never-{n}"
        world.asks(["node-a"], 1, uid=uid)
        world.run(0.5)
        world.leaves("node-a", "gone", uid=uid)
        world.erase(world.keys.joiner(uid, "node-a", world.launcher("node-a")))
        world.erase(world.keys.launch(uid))
        world.run(0.5)
    assert world.engine.folder.fleet.runs == {}
    assert world.gates() == []
