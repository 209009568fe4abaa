"""What goes wrong while an order is on its way: takeovers, late words, used-up budgets, second thoughts of people."""

import msgspec
import pytest
from core_world import DRILL, World
from ladder_world import ANSWER_S, NODES, ROUND_S, WEBHOOK_S, acknowledged, carried_out, held, hooked, trail
from ladder_world import DRILL as PATIENT

from rankpulse.core import records as r


def paused(world: World, *, over: bool = False) -> None:
    if over:
        world.erase(world.keys.run_mode("job-1"))
        return
    mode = r.RunMode(run_uid="job-1", mode="paused", author="bob", reason="a debugger", at=0.0)
    world.put(world.keys.run_mode("job-1"), mode)


def requests(world: World) -> list[str]:
    return [key for key in world.store if "/requests/" in key]


def test_nodes_that_answered_while_nobody_led_are_not_killed_by_the_next_leader() -> None:
    world, order = held()
    world.run(ANSWER_S - 1)
    carried_out(world, order)  # folded by nobody: the leader is dead
    world.successor(2)
    world.run(ANSWER_S + 5)
    assert world.of_kind("kill") == []
    assert [line for line in trail(world) if "carried out the order" in line]


def test_words_that_come_after_the_kill_and_a_takeover_end_the_ladder_there() -> None:
    world, order = held(hooked())
    world.run(ANSWER_S + 1)
    [kill] = world.of_kind("kill")
    world.successor(2)
    world.run(1)
    acknowledged(world, order, *NODES)
    acknowledged(world, kill, *NODES, killed=3)
    for proc in [proc for proc in world.procs if proc.alive]:
        world.ends(proc, signal=9, order_id=kill.order_id)
    world.asks(NODES, 2)
    world.meets(NODES, 2, asks=False, first_step=61)
    world.run(ROUND_S + WEBHOOK_S)
    [incident] = world.incidents()
    assert (incident.rung, incident.outcome, incident.restarts) == ("kill", "recovered", 1)
    assert world.posts == []


def test_a_word_about_an_order_that_nobody_gave_counts_for_none() -> None:
    world, order = held()
    acknowledged(world, msgspec.structs.replace(order, order_id="i0009-0009"), *NODES)
    world.run(ANSWER_S + 1)
    assert len(world.of_kind("kill")) == 1
    assert not [line for line in trail(world) if "carried out the order" in line]


def test_a_budget_that_this_very_order_used_up_still_lets_its_workers_be_killed_and_then_calls_a_person() -> None:
    settings = msgspec.structs.replace(PATIENT, policy=msgspec.structs.replace(PATIENT.policy, orders_per_run=1))
    world, _ = held(hooked(settings))
    world.run(ANSWER_S + 1)
    assert len(world.of_kind("kill")) == 1
    world.run(ROUND_S + 5)
    [incident] = world.incidents()
    assert incident.rung == "page"
    assert "the budget of restart orders without progress is used up" in incident.trail[-1].text
    assert [post for post in world.posts if "restart" in post.outgoing.event] == []


@pytest.mark.parametrize("spent", ["orders_per_fleet", "orders_per_node"])
def test_the_budget_of_others_that_runs_out_meanwhile_stops_no_ladder(spent: str) -> None:
    world, _ = held()
    policy = msgspec.structs.replace(PATIENT.policy, **{spent: 0})
    world.settings = msgspec.structs.replace(PATIENT, policy=policy)
    world.successor(2)
    world.run(ANSWER_S + 5)
    assert len(world.of_kind("restart")) == len(world.of_kind("kill")) == 1


def test_a_person_who_asks_again_and_again_while_the_order_is_on_its_way_gets_no_second() -> None:
    world, order = held()
    for _ in range(3):
        world.ask("restart", uid="job-1")
        world.run(0.5)
    assert requests(world) == []
    assert world.of_kind("restart") == [order]
    assert len([line for line in world.said if "is being restarted already" in line]) == 3


def test_a_person_and_the_policy_in_one_tick_make_one_order_whoever_takes_over() -> None:
    world = World(settings=DRILL)
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(10)
    world.ends(procs[3], signal=9, held=True)
    world.ask("restart", uid="job-1")
    world.tick()
    world.successor(2)
    world.run(5)
    assert len(world.of_kind("restart")) == 1
    assert len(world.incidents()) == 1


def test_a_run_that_is_paused_right_after_its_order_is_not_killed_and_goes_on_where_it_was_once_resumed() -> None:
    world, order = held()
    paused(world)
    world.run(ANSWER_S + 5)
    assert world.of_kind("kill") == []
    paused(world, over=True)
    world.run(2)
    assert [kill.incident for kill in world.of_kind("kill")] == [order.incident]
    assert len(world.of_kind("restart")) == 1


def test_a_run_that_is_paused_in_the_tick_of_its_failure_is_given_no_order_and_its_holders_are_let_go() -> None:
    world = World(settings=DRILL)
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(10)
    world.ends(procs[3], signal=9, held=True)
    paused(world)
    world.run(5)
    assert (world.of_kind("restart"), len(world.of_kind("release"))) == ([], 1)


def test_a_job_that_finishes_while_its_order_is_on_its_way_is_over_and_pages_nobody() -> None:
    """The order came too late: its workers had ended well."""
    world = World(settings=hooked())
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(10)
    world.ask("restart", uid="job-1")
    world.run(0.3)
    for proc in procs:
        world.ends(proc, code=0, closed=True)
    for node in NODES:
        world.leaves(node, "finished")
    world.run(ANSWER_S + ROUND_S + WEBHOOK_S)
    assert [state.outcome for state in world.run_states()] == ["finished"]
    [incident] = world.incidents()
    assert (incident.state, incident.outcome) == ("closed", "run_ended")
    assert (world.of_kind("kill"), [p for p in world.posts if "restart" in p.outgoing.event]) == ([], [])


def test_the_time_of_day_may_jump_as_it_likes_in_the_middle_of_a_ladder(monkeypatch: pytest.MonkeyPatch) -> None:
    import core_world

    world, order = held()
    acknowledged(world, order, "node-a")
    monkeypatch.setattr(core_world, "UTC", core_world.UTC + 7200.0)
    world.run(ANSWER_S - 1)
    assert world.of_kind("kill") == []
    monkeypatch.setattr(core_world, "UTC", core_world.UTC - 14400.0)
    world.run(3)
    assert len(world.of_kind("kill")) == 1
    carried_out(world, world.of_kind("kill")[0])
    world.meets(NODES, 2, first_step=61)
    world.run(5)
    [incident] = world.incidents()
    assert incident.outcome == "recovered"
    assert incident.time_to_recover_s is not None
    assert 0 <= incident.time_to_recover_s < 60


def test_a_second_failure_while_the_first_is_being_restarted_has_one_order_more_and_not_two() -> None:
    """The new round dies before its first step: nobody has recovered, and each round is ended once."""
    world, order = held()
    carried_out(world, order)
    world.asks(NODES, 2)
    procs = world.meets(NODES, 2, asks=False, first_step=61)
    world.ends(procs[0], signal=9, held=True)
    world.run(DRILL.policy.backoff_s + 12)
    world.successor(2)
    world.run(3)
    assert [one.round for one in world.of_kind("restart")] == [1, 2]
    assert [(i.round, i.state, i.outcome) for i in world.incidents()] == [(1, "closed", "superseded"), (2, "open", "")]
