"""Which silent nodes share an incident, who leaves it, and what it says of those that are left."""

from silence_world import SilenceWorld, settings

from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.incidents import OPEN

TWELVE = {f"n{n:02}": 1 for n in range(12)}


def trained(nodes: dict[str, int] = TWELVE, *, phase: str = "", **kwargs: object) -> SilenceWorld:
    world = SilenceWorld(**kwargs)  # type: ignore[arg-type]
    world.joins(nodes)
    world.run(40)
    for proc in world.procs:
        proc.phase = phase or proc.phase
    if phase:
        world.run(30)
    return world


def unseen(world: SilenceWorld, *nodes: str) -> None:
    """Neither the store nor looks tell of them."""
    world.silent.update(nodes)
    world.machines.update(dict.fromkeys(nodes, "unable"))


def still_open(world: SilenceWorld) -> list[r.Incident]:
    return [i for i in world.incidents() if i.state == OPEN]


def test_agents_that_are_seen_better_one_after_another_page_once() -> None:
    world = trained({f"n{n:02}": 1 for n in range(60)})
    away = [f"n{n:02}" for n in range(30)]
    unseen(world, *away)
    world.run(35)
    assert ("sidecar_dead", 30) in [(i.klass, len(i.nodes)) for i in still_open(world)]
    for node in away:
        del world.machines[node]
        world.run(0.5)
    world.run(20)
    [paged] = [i for i in world.incidents() if i.action == "page"]
    assert (paged.klass, sorted(paged.nodes)) == ("agent_cut_off", away)
    assert "and 26 more answer" in paged.summary
    [before] = [i for i in world.incidents() if i.klass == "sidecar_dead"]
    assert (before.state, before.outcome) == ("closed", "superseded")
    assert paged.id in before.trail[-1].text


def test_an_incident_of_a_node_that_joins_the_conviction_of_its_round_is_over() -> None:
    world = trained(phase="evaluate")
    world.training = False
    for node in ("n00", "n01"):
        unseen(world, node)
        world.run(12)
    world.run(28)
    assert [i.nodes for i in still_open(world)] == [("n00",), ("n01",)]
    for node in ("n00", "n01"):
        world.machines[node] = ev.SILENT
        world.run(5)
    world.run(60)
    [dead] = still_open(world)
    assert (dead.klass, dead.run_uid != "", dead.nodes) == ("node_dead", True, ("n00", "n01"))
    assert [i.outcome for i in world.incidents() if i.id != dead.id] == ["superseded"]


def test_incidents_of_nodes_that_are_convicted_together_become_one() -> None:
    world = trained(phase="evaluate", racks=dict.fromkeys(("n00", "n01", "n02"), "r"))
    world.training = False
    unseen(world, "n00")
    world.run(4)
    world.silent.add("n01")
    world.machines["n01"] = ev.REFUSED
    world.run(40)
    assert [i.klass for i in still_open(world)] == ["unknown", "sidecar_dead"]
    world.machines.update(n00=ev.SILENT, n01=ev.SILENT)
    world.run(120)
    assert [(i.klass, i.nodes) for i in still_open(world)] == [("node_dead", ("n00", "n01"))]


def test_a_round_does_not_take_over_what_is_told_of_others_as_well() -> None:
    world = trained(phase="evaluate", settings=settings(hang_prior_s=100.0))
    world.training = False
    unseen(world, "n00", "n01")
    world.run(100)
    [shared] = world.incidents()
    world.machines["n00"] = ev.REFUSED
    world.run(10)
    fleet, of_round = world.incidents()
    assert (fleet.id, fleet.run_uid, fleet.nodes) == (shared.id, "", ("n01",))
    assert fleet.summary == "n01 is silent; whether it lives cannot be told from here"
    assert (of_round.run_uid != "", of_round.nodes) == (True, ("n00",))


def test_a_second_node_of_which_the_same_is_said_of_a_round_is_named_in_its_incident() -> None:
    world = trained(phase="evaluate", settings=settings(hang_prior_s=100.0))
    world.training = False
    unseen(world, "n00", "n01")
    world.run(100)
    for node in ("n00", "n01"):
        world.machines[node] = ev.REFUSED
        world.run(10)
    [incident] = still_open(world)
    assert (incident.run_uid != "", incident.nodes) == (True, ("n00", "n01"))
    assert all(node in incident.summary for node in incident.nodes)


def test_one_that_is_back_and_is_lost_again_with_another_is_another_cause() -> None:
    world = trained()
    world.cut("n00", "n01")
    world.run(40)
    world.silent.discard("n00")
    world.run(60)
    [first] = world.incidents()
    assert (first.nodes, first.summary.split(" answers")[0]) == (("n01",), "the agent on n01")
    assert not any("n00" in reason for reason in first.reasons)
    world.cut("n00", "n05")
    world.run(40)
    assert [(i.klass, i.nodes) for i in still_open(world)] == [
        ("agent_cut_off", ("n01",)),
        ("agent_cut_off", ("n00", "n05")),
    ]


def test_one_that_was_back_for_a_moment_only_draws_nobody_into_the_incident_of_before() -> None:
    world = trained()
    world.cut("n00", "n01")
    world.run(40)
    world.silent.discard("n00")
    world.run(3)
    world.cut("n00", "n05")
    world.run(40)
    assert [(i.klass, i.nodes) for i in still_open(world)] == [
        ("agent_cut_off", ("n00", "n01")),
        ("agent_cut_off", ("n05",)),
    ]


def test_those_that_come_back_one_by_one_within_seconds_stay_named() -> None:
    world = trained()
    away = ("n00", "n01", "n02", "n03")
    world.cut(*away)
    world.run(40)
    for node in away:
        world.silent.discard(node)
        world.run(1)
    world.run(5)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome, incident.nodes) == ("closed", "passed", away)


def test_what_is_said_of_those_that_are_left_names_nobody_else() -> None:
    world = trained()
    world.cut("n00", "n01", "n02")
    world.run(35)
    world.machines["n01"] = ev.REFUSED
    world.run(20)
    [left] = [i for i in world.incidents() if i.klass == "agent_cut_off"]
    assert left.summary.startswith("the agents on n00, n02 answer")
    assert left.reasons
    assert not any("n01" in reason for reason in left.reasons)
    assert any("n01" in line.text for line in left.trail)


def test_of_very_many_those_that_are_not_named_stay_counted() -> None:
    world = trained({f"n{n}": 1 for n in range(160)})
    away = [f"n{n}" for n in range(70)]
    world.cut(*away)
    world.run(60)
    [cut_off] = [i for i in world.incidents() if i.klass == "agent_cut_off"]
    assert (len(cut_off.nodes), "and 66 more answer" in cut_off.summary) == (64, True)
    world.machines["n0"] = ev.REFUSED
    world.run(30)
    [cut_off] = [i for i in world.incidents() if i.klass == "agent_cut_off"]
    assert (len(cut_off.nodes), "and 65 more answer" in cut_off.summary) == (64, True)
    assert "n0" not in cut_off.nodes
    assert [i.nodes for i in world.incidents() if i.klass == "sidecar_dead"] == [("n0",)]
