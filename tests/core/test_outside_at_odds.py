"""Jobs that somebody else starts again: who is an heir, and who only looks like one; leaders that come in between."""

import msgspec
import pytest
from core_world import DRILL, Proc, World
from ladder_world import ANSWER_S, NODES, ROUND_S, WEBHOOK_S, carried_out, held, hooked, trail

from rankpulse.core import records as r

OTHERS = {"node-c": 2, "node-d": 2}


def restarts_told(world: World) -> int:
    return len({post.outgoing.event for post in world.posts if post.outgoing.event.endswith("-restart")})


def fails(world: World, procs: list[Proc]) -> None:
    """A launch without our rendezvous fails, and torchelastic gives up."""
    world.ends(procs[3], code=1, error="OSError", message="disk full")
    for proc in procs[:3]:
        world.ends(proc, signal=15)
    for proc in (procs[0], procs[2]):
        world.launcher_ends(proc)


@pytest.mark.parametrize("takeover", [False, True])
def test_a_plain_job_that_its_scheduler_has_started_already_is_not_started_again(*, takeover: bool) -> None:
    """It failed and began anew while nobody led, or while the leader looked on."""
    world = World(settings=hooked())
    world.arm()
    first = world.launch(NODES, meeting="one", run_id="llama")
    world.run(10)
    second = world.launch(OTHERS, meeting="two", run_id="llama")
    if takeover:
        for node in OTHERS:
            world.beat(node)
    else:
        world.run(1)
    fails(world, first)
    if takeover:
        world.successor(2)
    world.run(WEBHOOK_S + 30)
    assert all(proc.alive for proc in second)
    [incident] = world.incidents()
    assert (incident.rung, incident.state) == ("page", "closed")
    assert "a scheduler retries" in " ".join(line.text for line in incident.trail)
    assert restarts_told(world) == 0


def test_the_heir_comes_while_nobody_leads_and_the_next_leader_closes_and_tells_nobody_more() -> None:
    world, order = held(hooked())
    carried_out(world, order)
    world.run(ROUND_S + 2)
    assert world.incidents()[0].rung == "webhook"
    world.meets(OTHERS, 1, uid="job-2")
    world.successor(2)
    world.run(WEBHOOK_S + 10)
    assert restarts_told(world) <= 1
    assert len(world.of_kind("restart")) == 1


def test_a_round_that_forms_after_the_webhook_was_told_is_recovery_and_no_page() -> None:
    world, order = held(hooked())
    carried_out(world, order)
    world.run(ROUND_S + 2)
    assert world.incidents()[0].rung == "webhook"
    world.asks(NODES, 2)
    world.meets(NODES, 2, asks=False, first_step=61)
    world.run(10)
    [incident] = world.incidents()
    assert (incident.rung, incident.outcome) == ("webhook", "recovered")
    world.run(WEBHOOK_S + 10)
    assert not [line for line in trail(world) if line.startswith("page:")]


def test_the_breaker_that_opens_between_order_and_kill_ends_the_ladder_and_its_closing_resumes_it() -> None:
    world, _ = held()
    world.put(world.keys.breaker(), r.Breaker(open=True, author="monitor", reason="half is silent", at=0.0))
    world.successor(2)
    world.run(ANSWER_S + 5)
    assert world.of_kind("kill") == []
    world.ask("breaker_close")
    world.run(ANSWER_S + 5)
    assert (len(world.of_kind("restart")), len(world.of_kind("kill"))) == (1, 1)


def test_ten_leaders_one_after_another_in_a_standing_job_forget_no_budget() -> None:
    """Each lives for one restart of a job that makes no step: the budget ends it, whoever counts."""
    settings = msgspec.structs.replace(DRILL, policy=msgspec.structs.replace(DRILL.policy, backoff_s=1.0))
    world = World(settings=settings)
    world.arm()
    world.training = False
    procs = world.meets(NODES, 1)
    for number in range(1, 9):
        world.run(3)
        world.ends(procs[number % 4], signal=9, held=True)
        world.run(settings.policy.backoff_s * 2**number + 12 if number < 5 else 20)
        if len(world.of_kind("release")):
            break
        [order] = [one for one in world.of_kind("restart") if one.round == number]
        for proc in [p for p in world.procs if p.alive]:
            world.ends(proc, signal=15, order_id=order.order_id)
        world.asks(NODES, number + 1)
        procs = world.meets(NODES, number + 1, asks=False)
        world.successor(number + 1)
    assert number == settings.policy.orders_per_run + 1, [i.action for i in world.incidents()]


@pytest.mark.parametrize("takeover", [False, True])
def test_another_job_by_the_same_label_that_began_before_is_no_heir(*, takeover: bool) -> None:
    world = World(settings=hooked())
    world.arm()
    world.launch(OTHERS, meeting="zero", run_id="llama")
    world.run(8)
    first = world.launch(NODES, meeting="one", run_id="llama")
    world.run(10)
    fails(world, first)
    if takeover:
        world.successor(2)
    world.run(20)
    assert [incident.rung for incident in world.incidents()] == ["webhook"]
