"""Silences that something seems to excuse, and ranks that nobody tells of: none goes unnoticed, and none is misread."""

import math

import msgspec
import pytest
from silence_world import SilenceWorld, settings

from rankpulse.core import cost_rule
from rankpulse.core import events as ev
from rankpulse.core import records as r
from rankpulse.core.fleet_learned import FleetMemory
from rankpulse.core.settings import preset

FOUR = dict.fromkeys("abcd", 1)


def training(world: SilenceWorld, seconds: float = 80.0) -> SilenceWorld:
    world.joins(FOUR)
    world.run(seconds)
    return world


@pytest.mark.parametrize("look", [ev.UNABLE, ev.SILENT])
def test_a_lost_sidecar_is_no_dead_node_at_the_first_hiccup_of_its_job(look: str) -> None:
    """The job went on without its beats for a minute; then it stalls for some seconds, for whatever reason."""
    world = training(SilenceWorld(settings=settings("fast")))
    world.silent.add("b")
    world.machines["b"] = look
    world.run(60)
    world.training = False
    world.run(4)
    world.training = True
    world.run(30)
    assert "node_dead" not in world.klasses()


@pytest.mark.parametrize("phase", ["checkpoint", "evaluate"])
def test_nor_while_its_job_saves_or_evaluates(phase: str) -> None:
    world = training(SilenceWorld(settings=settings("fast")))
    world.silent.add("b")
    world.machines["b"] = ev.SILENT
    world.run(60)
    for proc in world.procs:
        proc.phase = phase
    world.run(20)
    for proc in world.procs:
        proc.phase = "train"
    world.run(30)
    assert "node_dead" not in world.klasses()


def test_one_that_dies_while_its_peers_go_on_for_a_while_is_found_when_they_stand_still() -> None:
    """Local steps vouch for it wrongly: its time counts from the last of them."""
    world = training(SilenceWorld(settings=settings("fast")))
    world.silent.add("b")
    world.machines["b"] = ev.SILENT
    world.run(20)
    world.training = False
    took = world.until(30, "node_dead")
    assert took is not None
    assert took <= 7.0 + 3.0


def test_a_conviction_ends_when_the_job_goes_on_and_a_later_hang_is_told_of() -> None:
    world = training(SilenceWorld(settings=settings("fast")))
    world.silent.add("b")
    world.machines["b"] = ev.SILENT
    world.training = False
    assert world.until(20, "node_dead") is not None
    world.training = True
    world.run(30)
    (dead,) = [i for i in world.incidents() if i.klass == "node_dead"]
    assert (dead.state, dead.outcome) == ("closed", "passed")


@pytest.mark.parametrize("inc", [1, 2])
def test_ranks_that_vanish_from_the_beats_of_their_node_are_told_of(inc: int) -> None:
    world = training(SilenceWorld(settings=settings(hang_prior_s=60.0)))
    for proc in world.procs:
        proc.alive &= proc.node != "b"
    world.inc["b"] = inc
    world.seq["b"] = 0 if inc == 2 else world.seq["b"]
    world.training = False
    world.run(120, step_s=0.25)
    (found,) = world.incidents()
    assert found.klass == "collective_hang"
    assert [member.node for member in found.culprits] == ["b"]


def test_all_ranks_vanished_is_a_silence_that_the_ceiling_knows() -> None:
    world = training(SilenceWorld(settings=settings(phase_ceiling_s=300.0)))
    for proc in world.procs:
        proc.alive = False
    world.run(400, step_s=0.5)
    assert world.klasses() == ["unknown"]


@pytest.mark.parametrize("look", [ev.REFUSED, ev.ACCEPTED])
def test_a_dead_machine_for_which_something_answers_is_told_of(look: str) -> None:
    world = SilenceWorld(settings=settings(silence_ceiling_s=60.0))
    for node in "abcd":
        world.states(node)
    world.meets({"b": 8}, 1)
    world.inc.update(dict.fromkeys("acd", 1))
    world.run(80)
    world.die("b")
    world.machines["b"] = look
    world.run(120, step_s=0.25)
    assert "unknown" in world.klasses()


def test_a_goodbye_excuses_a_node_that_its_job_needs_for_as_long_as_its_lease_lasts() -> None:
    world = training(SilenceWorld())
    world.observe(r.AGENT_STOPPING, "b")
    world.die("b")
    world.run(40)
    assert world.incidents() == []
    world.erase(world.keys.beat("b"))
    assert world.until(60, "node_dead", step_s=0.25) is not None


def test_an_agent_that_goes_on_after_its_goodbye_has_not_left() -> None:
    world = training(SilenceWorld())
    world.observe(r.AGENT_STOPPING, "b")
    world.run(30)
    world.die("b")
    assert world.until(60, "node_dead", step_s=0.25) is not None


def test_what_an_agent_says_when_looked_at_cannot_hide_its_beats_to_come() -> None:
    world = training(SilenceWorld())
    folder = world.engine.folder
    beat = world.told("b")
    assert not folder.beats.looked(msgspec.structs.replace(beat, seq=beat.seq + 10_000_000), world.now)
    assert folder.beats.looked(msgspec.structs.replace(beat, seq=beat.seq + 1), world.now)


def test_times_follow_from_what_can_be_whatever_stands_in_the_store() -> None:
    memory = FleetMemory(preset("default").detect)
    memory.seen(
        r.FleetLearned(
            at=0.0, node_days=math.nan, deaths=-10**12, healed=-5, healed_s=(math.nan, -1.0, math.inf, 4.0) * 60_000,
            restart_s=(1e308, -1e308, math.nan, 60.0),
        )
    )  # fmt: skip
    assert memory.stored is not None
    assert set(memory.stored.healed_s) == {4.0}
    assert memory.stored.restart_s == (60.0,)
    assert all(cost_rule.LEAST_S <= seconds <= cost_rule.MOST_S for seconds in memory.times[:3])


def test_rounds_that_form_together_are_written_in_one_order_whatever_the_hash_seed() -> None:
    world = SilenceWorld()
    for number in range(6):
        nodes = {f"{name}{number}": 1 for name in "ab"}
        for node in nodes:
            world.states(node)
        world.meets(nodes, 1, uid=f"job-{number}")
    world.run(5)
    written = [a.key for a in world.actions if isinstance(a, ev.Write) and "/roster/" in a.key]
    assert len(written) == 6
    assert written == sorted(written)
