"""The breaker: too much at once, and rankpulse stops acting until a person has looked."""

from collections.abc import Callable

import pytest
from silence_world import SilenceWorld

from rankpulse.core import codec
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.breaker import tripped

EIGHT = {f"n{n}": 2 for n in range(8)}
HALF = ("n0", "n1", "n2", "n3")


def names(count: int, letter: str = "n") -> set[str]:
    return {f"{letter}{number}" for number in range(count)}


@pytest.mark.parametrize(
    ("silent", "left_out", "watched", "opens"),
    [
        (0, 0, 0, False),
        (1, 0, 1, False),
        (1, 0, 2, False),
        (2, 0, 2, True),
        (4, 0, 10, False),
        (5, 0, 10, True),
        (0, 5, 10, True),
        (3, 2, 10, True),
        (0, 4, 10, False),
    ],
)
def test_more_than_a_share_and_two_open_it(silent: int, left_out: int, watched: int, opens: bool) -> None:
    why = tripped(names(silent), names(left_out, "c"), watched, 0.4)
    assert bool(why) == opens
    assert not opens or f"{silent + left_out} of {watched} nodes at once" in why


def test_one_node_that_is_silent_and_cordoned_counts_once() -> None:
    assert not tripped({"n0"}, {"n0"}, 2, 0.4)


def trained(*, racks: bool = False) -> SilenceWorld:
    world = SilenceWorld(racks={f"n{n}": f"rack-{n // 4}" for n in range(8)} if racks else {})
    world.arm()
    world.joins(EIGHT)
    world.run(40)
    assert world.incidents() == []
    return world


def opened(world: SilenceWorld) -> list[r.Incident]:
    return [incident for incident in world.incidents() if incident.klass == "breaker_open"]


@pytest.mark.parametrize("racks", [False, True])
def test_half_the_fleet_silent_at_once_is_not_restarted_and_pages(racks: bool) -> None:
    world = trained(racks=racks)
    world.die(*HALF)
    world.run(120)
    assert world.of_kind("restart") == []
    [incident] = opened(world)
    assert (incident.action, incident.state, incident.nodes) == ("page", "open", HALF)
    assert "4 of 8 nodes at once: 4 silent (n0, n1, n2, n3)" in incident.summary
    assert "rankpulse breaker close" in incident.action_reason


def test_an_opening_that_could_not_be_written_is_written_anew_and_told_once() -> None:
    world = trained()
    world.die(*HALF)
    world.refuse_writes = True
    while not world.engine.folder.modes.open:
        world.run(0.1)
    world.refuse_writes = False
    world.relist()
    world.run(60)
    [incident] = opened(world)
    assert incident.state == "open"
    assert codec.decode(r.Breaker, world.store[world.keys.breaker()][0]).open


def test_the_breaker_is_written_before_any_incident_of_its_tick() -> None:
    """A leader that dies in between must leave no reason to act on."""
    world = trained()
    world.die(*HALF)
    world.run(40)
    wrote = [action.record for action in world.actions if isinstance(action, ev.Write)]
    first = next(n for n, record in enumerate(wrote) if isinstance(record, r.Breaker))
    dead = [n for n, record in enumerate(wrote) if isinstance(record, r.Incident) and record.klass == "node_dead"]
    assert dead
    assert first < min(dead)


def closed_by_itself(world: SilenceWorld) -> None:
    world.run(300)


def closed_by_a_new_leader(world: SilenceWorld) -> None:
    world.successor(2)
    world.run(60)


def closed_by_arming(world: SilenceWorld) -> None:
    world.arm()
    world.run(30)


@pytest.mark.parametrize("attempt", [closed_by_itself, closed_by_a_new_leader, closed_by_arming])
def test_nothing_but_a_person_closes_it(attempt: Callable[[SilenceWorld], None]) -> None:
    world = trained()
    world.die(*HALF)
    world.run(40)
    world.thaw(*HALF)
    attempt(world)
    [incident] = opened(world)
    assert incident.state == "open"
    assert world.engine.folder.modes.open
    hang(world)
    assert world.of_kind("restart") == []
    assert any("the breaker is open" in i.action_reason for i in world.incidents() if i.run_uid)
    world.ask("breaker_close", reason="the switch is back")
    world.run(5)
    [incident] = opened(world)
    assert (incident.state, incident.outcome) == ("closed", "passed")
    assert "closed, by ann: the switch is back" in incident.trail[-1].text
    assert len(world.of_kind("restart")) == 1, "what still stands still is restarted now"


def hang(world: SilenceWorld) -> None:
    """A worker that is stopped: its job waits for it."""
    world.training = False
    world.procs[-1].state = "T"
    world.run(60)


def test_what_died_while_it_was_open_is_left_to_torchelastic() -> None:
    world = trained()
    world.put(world.keys.breaker(), r.Breaker(open=True, author="x", reason="test", at=0.0))
    world.ends(world.procs[3], signal=9, held=True)
    world.run(2)
    assert [order.kind for order in world.orders()] == ["release"]
    [incident] = [i for i in world.incidents() if i.run_uid]
    assert "the breaker is open: test; torchelastic" in incident.action_reason


def test_a_person_cannot_restart_past_an_open_breaker() -> None:
    world = trained()
    world.put(world.keys.breaker(), r.Breaker(open=True, author="x", reason="test", at=0.0))
    world.ask("restart", uid="job-1", reason="now")
    world.run(2)
    assert world.orders() == []
    assert any("refused: the breaker is open: test" in line for line in world.said)
    world.ask("breaker_close")
    world.ask("breaker_close")
    world.run(1)
    assert any("refused: the breaker is closed" in line for line in world.said)
    world.ask("restart", uid="job-1", reason="now")
    world.run(2)
    assert len(world.of_kind("restart")) == 1


def test_one_dead_node_of_two_opens_nothing() -> None:
    world = SilenceWorld()
    world.arm()
    world.joins({"n0": 2, "n1": 2})
    world.run(40)
    world.die("n1")
    world.run(60)
    assert opened(world) == []


def test_nodes_that_nobody_needs_may_fall_silent_together() -> None:
    world = trained()
    for node in ("a", "b", "c", "d", "e", "f", "g", "h"):
        world.states(node)
    world.run(30)
    world.silent.update("abcdefgh")
    world.machines.update(dict.fromkeys("abcdefgh", "silent"))
    world.run(60)
    assert opened(world) == []


def test_nodes_in_maintenance_are_not_counted() -> None:
    world = trained()
    for node in HALF:
        world.ask("maintenance", node=node, reason="new firmware")
    world.run(2)
    world.die(*HALF)
    world.run(20)
    assert opened(world) == []
    assert not [i for i in world.incidents() if i.klass in ("node_dead", "control_plane_delay")]


def test_half_the_fleet_that_is_really_gone_is_taken_into_maintenance_and_the_jobs_go_on() -> None:
    world = trained()
    world.put(
        world.keys.launch("job-1"), r.Launch(run_uid="job-1", label="job", owner=1, min_nodes=4, max_nodes=8, at=0.0)
    )
    world.die(*HALF)
    world.run(40)
    world.ask("breaker_close", reason="too soon")
    world.run(2)
    assert world.engine.folder.modes.open, "they are silent still"
    for node in HALF:
        world.ask("maintenance", node=node, reason="no power in rack 0")
        world.run(0.3)
    world.ask("breaker_close", reason="rack 0 has no power")
    world.run(10)
    assert not world.engine.folder.modes.open
    assert [order.without for order in world.of_kind("restart")] == [HALF]
