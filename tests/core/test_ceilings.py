"""A job that is silent for hours is told of once, whatever was learned, configured, or meant by its silence."""

import pytest
from core_world import World

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.engine import Engine
from rankpulse.core.settings import parse

NODES = {"node-a": 2, "node-b": 2}
HOURS = parse({"preset": "drill", "detect": {"phase_ceiling_s": 120.0, "hang_prior_s": 80_000.0}})


def still(world: World, seconds: float) -> None:
    world.training = False
    world.run(seconds, step_s=0.5)


def only(world: World) -> r.Incident:
    [incident] = world.incidents()
    return incident


@pytest.mark.parametrize(
    ("phase", "state", "words"),
    [
        ("paused", "S", "4 of 4 ranks are paused on purpose"),
        ("closed", "S", "every rank has closed its pulse and none has ended"),
        ("train", "t", "rank 0 is held by a debugger"),
        ("idle", "S", "it stands in idle"),
        ("evaluate", "S", "it stands in evaluate"),
    ],
)
def test_whatever_it_does_instead_a_person_is_told_once_and_it_closes_when_it_moves(
    phase: str, state: str, words: str
) -> None:
    world = World(HOURS)
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(20)
    for proc in procs:
        proc.phase, proc.state = phase, state
    still(world, 110)
    assert world.incidents() == []
    still(world, 300)
    incident = only(world)
    assert (incident.klass, incident.action, incident.state, incident.culprits) == ("unknown", "page", "open", ())
    assert words in incident.summary
    assert "phase_ceiling_s" in " ".join(incident.reasons)
    assert world.of_kind("restart") == []
    procs[2].phase, procs[2].state = "train", "S"
    procs[2].step += 1
    world.run(2)
    assert only(world).outcome == "passed"


def test_the_silence_that_was_told_of_raises_no_deadline() -> None:
    world = World(HOURS)
    procs = world.meets(NODES, 1)
    world.run(60)
    [run] = world.engine.folder.fleet.runs.values()
    before = run.clocks.deadline_s("train")
    for proc in procs:
        proc.phase = "paused"
    still(world, 200)
    for proc in procs:
        proc.phase = "train"
    world.training = True
    world.run(30)
    assert only(world).outcome == "passed"
    assert run.clocks.deadline_s("train") == pytest.approx(before, abs=0.5)


def test_it_is_told_again_when_it_happens_again() -> None:
    world = World(HOURS)
    procs = world.meets(NODES, 1)
    for _ in range(2):
        for proc in procs:
            proc.phase = "train"
        world.training = True
        world.run(20)
        for proc in procs:
            proc.phase = "paused"
        still(world, 140)
    assert [i.state for i in world.incidents()] == ["closed", "open"]


def test_a_round_that_nobody_was_ever_seen_in_is_told_of_too() -> None:
    """Its workers never attach, or never start: no beat speaks of them."""
    world = World(HOURS)
    world.meets(NODES, 1)
    world.procs.clear()
    world.inc.update(dict.fromkeys(NODES, 1))
    still(world, 200)
    assert "none of its ranks was ever seen" in only(world).summary


def test_ranks_whose_agent_has_left_hide_nobodys_silence() -> None:
    world = World(HOURS)
    world.meets(NODES, 1)
    world.run(20)
    world.observe(r.AGENT_STOPPING, "node-a")
    world.silent.add("node-a")
    still(world, 300)
    told = [i for i in world.incidents() if i.run_uid]
    assert [i.klass for i in told] == ["unknown"]
    assert "2 of 4 ranks are not seen" in " ".join(told[0].reasons)


def test_a_new_leader_says_nothing_twice_and_counts_from_when_it_sees() -> None:
    world = World(HOURS)
    procs = world.meets(NODES, 1)
    world.run(20)
    for proc in procs:
        proc.phase = "paused"
    still(world, 140)
    first = only(world)
    world.successor(2)
    still(world, 300)
    assert only(world).id == first.id


def test_a_standby_that_takes_over_has_counted_all_along() -> None:
    world = World(HOURS)
    procs = world.meets(NODES, 1)
    world.run(20)
    leader, standby = world.engine, Engine(world.settings, world.keys)
    world.engine = standby
    world.relist()
    standby.step(ev.SightBack(world.now))
    world.engine = leader
    told, ticked = leader.step, leader.tick
    leader.step = lambda event: (standby.step(event), told(event))[1]  # type: ignore[method-assign]
    leader.tick = lambda *at: (standby.tick(*at), ticked(*at))[1]  # type: ignore[method-assign]
    for proc in procs:
        proc.phase = "paused"
    still(world, 100)
    world.engine = standby
    standby.step(ev.TookOffice(2, world.now))
    still(world, 30)
    assert only(world).klass == "unknown"


def test_a_monitor_that_was_not_there_counts_from_when_it_came() -> None:
    world = World(HOURS)
    procs = world.meets(NODES, 1)
    world.run(20)
    for proc in procs:
        proc.phase = "paused"
    still(world, 100)
    world.successor(2)
    still(world, 100)
    assert world.incidents() == []
    still(world, 40)
    assert only(world).klass == "unknown"


def test_a_round_that_is_hung_already_has_its_incident() -> None:
    world = World(parse({"preset": "drill", "detect": {"phase_ceiling_s": 60.0}}))
    procs = world.meets(NODES, 1)
    world.run(30)
    procs[1].state = "T"
    still(world, 200)
    assert only(world).klass == "collective_hang"
