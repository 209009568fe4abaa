"""A run that trains on with numbers that are not finite, from the first word to the last, over leaders and rounds."""

from typing import Any

import msgspec
import pytest
from core_world import DRILL, World
from numbers_world import CONSENT, NODES, all_tell, bad, news, next_round, saves, tells, trained

from rankpulse.core import codec, numbers
from rankpulse.core import records as r
from rankpulse.core.settings import Settings
from rankpulse.core.slot_numbers import COUNTED, LOSS_NAN


def test_by_default_it_is_told_and_the_job_is_left_alone() -> None:
    world = trained(DRILL)
    all_tell(world, 118)
    world.run(30)
    [incident] = world.incidents()
    assert (incident.klass, incident.state, incident.action) == ("non_finite", "open", "none")
    assert incident.summary == "loss nan since step 118, on all 4 ranks at the same step"
    assert (incident.bad_step, incident.culprits, incident.resume_before_step) == (118, (), -1)
    assert "policy.restart_on_non_finite is off" in incident.action_reason
    assert world.orders() == []


def test_who_was_first_is_named_where_the_others_were_later() -> None:
    world = trained(DRILL)
    tells(world, "node-b", {2: 118, 3: 117})
    tells(world, "node-a", {0: 118, 1: 118})
    world.run(1)
    [incident] = world.incidents()
    assert [member.rank for member in incident.culprits] == [3]
    assert incident.nodes == ("node-b",)
    assert incident.bad_step == 117
    assert "since step 117, first reported by rank 3 on node-b" in incident.summary
    assert "3 other ranks after it" in incident.summary


def test_one_rank_alone_is_named_and_so_is_nobody_where_only_one_hands_over_numbers() -> None:
    alone, only = trained(DRILL), trained(DRILL)
    tells(alone, "node-a", {0: 0, 1: 118})
    tells(only, "node-a", {0: 118})
    for world in (alone, only):
        world.run(1)
    assert [m.rank for m in alone.incidents()[0].culprits] == [1]
    assert "1 other rank with finite numbers" in alone.incidents()[0].summary
    assert only.incidents()[0].culprits == ()
    assert only.incidents()[0].summary == "loss nan since step 118, as rank 0 reports it"


def test_it_passes_when_every_node_reports_finite_numbers_again() -> None:
    world = trained(DRILL)
    all_tell(world, 118)
    world.run(2)
    tells(world, "node-a", {0: 0})
    world.run(2)
    assert world.incidents()[0].state == "open", "node-b has not told so"
    tells(world, "node-b", {2: 0})
    world.run(DRILL.detect.quiet_s - 1)
    assert world.incidents()[0].state == "open", "it may come again"
    world.run(2)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome) == ("closed", "passed")
    assert news(world) == [], "nothing is left in the store"


def test_one_that_comes_and_goes_is_one_incident() -> None:
    world = trained(DRILL)
    for again in range(10):
        tells(world, "node-a", {0: 118 + again, 1: 0})
        world.run(3)
        tells(world, "node-a", {0: 0})
        world.run(5)
    [incident] = world.incidents()
    assert (incident.state, incident.bad_step) == ("open", 127)
    assert len(incident.trail) < 10


def test_with_consent_it_goes_on_from_before_the_first_bad_step() -> None:
    world = trained()
    all_tell(world, 118)
    world.run(3)
    [order] = world.of_kind("restart")
    assert (order.round, order.resume_before_step) == (1, 118)
    world.steps_per_beat = 1
    next_round(world, 2, first_step=101)
    world.run(0.5)
    assert world.incidents()[0].state == "open", "a row takes three steps"
    world.run(10)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome, incident.resumed_from_step) == ("closed", "recovered", 100)
    assert world.gates()[-1].go
    assert world.gates()[-1].resume_before_step == 118
    world.run(60)
    assert len(world.of_kind("restart")) == 1
    assert news(world) == []


def test_nothing_is_ordered_before_every_node_can_have_told() -> None:
    world = trained()
    tells(world, "node-a", {0: 119, 1: 119})
    world.run(0.4)
    [incident] = world.incidents()
    assert (incident.action, world.orders()) == ("wait", [])
    tells(world, "node-b", {2: 118, 3: 117})
    world.run(2)
    [order] = world.of_kind("restart")
    assert order.resume_before_step == 117


def test_the_same_step_again_stops_the_run_and_pages() -> None:
    world = trained()
    all_tell(world, 118)
    world.run(3)
    next_round(world, 2, first_step=101)
    world.run(10)
    assert world.incidents()[0].outcome == "recovered"
    world.successor(2)  # it knows from the store alone
    all_tell(world, 118)
    world.run(3)
    second = world.incidents()[-1]
    assert (second.round, second.action, second.bad_step) == (2, "stop", 118)
    assert "step 118 is not finite again (as in round 1)" in second.action_reason
    order = next(order for order in world.of_kind("restart") if order.round == 2)
    assert order.resume_before_step == -1
    for proc in [p for p in world.procs if p.alive]:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.asks(NODES, 3)
    world.run(3)
    gate = world.gates()[-1]
    assert (gate.round, gate.go) == (3, False)
    for node in NODES:
        world.leaves(node, "failed", "rendezvous closed", round_=3)
    world.run(60)
    assert [(i.klass, i.state, i.outcome) for i in world.incidents()] == [
        ("non_finite", "closed", "recovered"), ("non_finite", "closed", "run_ended"),
    ]  # fmt: skip
    assert world.run_states()[0].outcome == "failed"


def test_another_step_is_another_restart_until_it_gets_no_further() -> None:
    world = trained(msgspec.structs.replace(
        CONSENT, policy=msgspec.structs.replace(CONSENT.policy, orders_per_run=2)
    ))  # fmt: skip
    for number, first in enumerate((118, 117), 1):
        all_tell(world, first)
        world.run(3)
        assert world.of_kind("restart")[-1].resume_before_step == first
        next_round(world, number + 1, first_step=101)
        world.run(10)
    all_tell(world, 116)
    world.run(3)
    last = world.incidents()[-1]
    assert (last.round, last.action) == (3, "page")
    assert "budget" in last.action_reason
    assert [bool(i.order_id) for i in world.incidents()] == [True, True, False]


def test_a_checkpoint_between_the_last_finite_numbers_and_the_first_others_is_not_trusted() -> None:
    """Numbers are handed over every tenth step: what was saved at step 105 may hold a NaN of step 103."""
    world = trained(saved=105)
    all_tell(world, 110, finite=100)
    world.run(5)
    [order] = world.of_kind("restart")
    assert order.resume_before_step == 101
    [incident] = world.incidents()
    assert incident.bad_step == 110
    assert any("finite last at step 100" in reason for reason in incident.reasons)
    next_round(world, 2, first_step=101, before=110)
    world.run(3)
    all_tell(world, 120, finite=-1)
    world.run(15)
    assert world.of_kind("restart")[-1].resume_before_step == 101, "the same checkpoint: nothing later was seen well"


def test_a_checkpoint_that_holds_it_already_is_not_resumed_from_again() -> None:
    """The very first step of the round came out so: whatever it loaded was saved too late."""
    world = trained(first_step=101)
    all_tell(world, 101, finite=-1)
    world.run(3)
    [order] = world.of_kind("restart")
    assert order.resume_before_step == 100
    assert "what it resumed from may hold it already" in "\n".join(world.incidents()[0].reasons)


@pytest.mark.parametrize(
    ("saved", "oldest", "what", "why"),
    [
        (0, 0, LOSS_NAN, "told of no checkpoint before step 118"),
        (130, 120, LOSS_NAN, "none older than that of step 120"),
        (100, -1, LOSS_NAN | COUNTED, "count their steps anew"),
    ],
)
def test_where_nothing_could_be_resumed_from_a_person_is_told(saved: int, oldest: int, what: int, why: str) -> None:
    world = trained(saved=0)
    if saved:
        saves(world, saved, oldest)
    world.run(2)
    all_tell(world, 118, what=what)
    world.run(30)
    [incident] = world.incidents()
    assert (incident.action, world.of_kind("restart")) == ("page", [])
    assert why in incident.action_reason


def test_a_plain_launch_is_told_of() -> None:
    world = World(CONSENT)
    world.arm()
    world.launch(NODES, meeting="m1")
    world.run(10)
    saves(world, 100)
    all_tell(world, 118)
    world.run(10)
    [incident] = world.incidents()
    assert (incident.action, world.orders()) == ("page", [])
    assert "does not meet through rankpulse's rendezvous" in incident.action_reason


def test_unarmed_a_person_is_asked_and_then_it_is_done() -> None:
    world = trained(arm=False)
    all_tell(world, 118)
    world.run(10)
    [incident] = world.incidents()
    assert (incident.action, world.orders()) == ("observe", [])
    world.arm()
    world.run(2)
    assert len(world.of_kind("restart")) == 1


@pytest.mark.parametrize("settings", [DRILL, CONSENT])
def test_a_runs_own_word_goes_before_the_clusters(settings: Settings) -> None:
    world, wanted = trained(settings), settings is DRILL
    mode = r.RunMode(run_uid="job-1", mode="armed", author="ann", reason="mine", at=0.0, restart_on_non_finite=wanted)
    world.put(world.keys.run_mode("job-1"), mode)
    all_tell(world, 118)
    world.run(10)
    assert bool(world.of_kind("restart")) is wanted


def test_a_paused_run_is_left_alone() -> None:
    world = trained()
    mode = r.RunMode(run_uid="job-1", mode="paused", author="ann", reason="debugging", at=0.0, then="armed")
    world.put(world.keys.run_mode("job-1"), mode)
    all_tell(world, 118)
    world.run(10)
    [incident] = world.incidents()
    assert (incident.action, world.orders()) == ("none", [])


def test_a_new_leader_believes_the_same_and_orders_once() -> None:
    world = trained()
    all_tell(world, 118)
    world.run(0.3)
    world.successor(2)
    world.run(5)
    [order] = world.of_kind("restart")
    [incident] = world.incidents()
    assert (order.incident, incident.order_id) == (incident.id, order.order_id)
    world.successor(3)
    world.run(5)
    assert len(world.of_kind("restart")) == len(world.incidents()) == 1


def test_a_new_leader_that_finds_nobody_telling_of_it_closes_it() -> None:
    world = trained(DRILL)
    all_tell(world, 118)
    world.run(1)
    world.refuse_writes = True
    for node, rank in (("node-a", 0), ("node-b", 2)):
        tells(world, node, {rank: 0})
    world.run(1)
    world.refuse_writes = False
    world.successor(2)
    world.run(10)
    assert [(i.state, i.outcome) for i in world.incidents()] == [("closed", "passed")]


def test_nothing_is_ordered_on_the_word_of_a_node_that_is_silent() -> None:
    world = trained(arm=False)
    tells(world, "node-b", {2: 118, 3: 118})
    world.run(5)
    world.silent = {"node-b"}
    world.run(4)
    world.arm()
    world.run(4)
    assert world.orders() == []
    world.silent = set()
    world.run(3)
    assert len(world.of_kind("restart")) == 1


def test_nothing_is_ordered_by_the_blind() -> None:
    world = trained(arm=False)
    all_tell(world, 118)
    world.run(5)
    world.canary = False
    world.run(5)
    world.arm()
    world.run(5)
    assert world.orders() == [], "it cannot see"
    world.canary = True
    world.run(5)
    assert len(world.of_kind("restart")) == 1


def test_a_crash_in_such_a_round_has_an_incident_of_its_own() -> None:
    world = trained(DRILL)
    all_tell(world, 118)
    world.run(2)
    world.ends(world.procs[3], signal=9, held=True)
    world.run(2)
    assert {(i.klass, i.action) for i in world.incidents()} == {("non_finite", "none"), ("worker_dead", "restart")}
    order = world.of_kind("restart")[0]
    assert order.resume_before_step == -1
    next_round(world, 2, first_step=101)
    world.run(10)
    assert {i.outcome for i in world.incidents()} == {"recovered"}
    all_tell(world, 118)
    world.run(5)
    assert world.incidents()[-1].action == "none"


def test_a_restart_for_another_reason_proves_nothing() -> None:
    """No limit was set by it: the same step again is no verdict yet."""
    world = trained()
    world.ends(world.procs[3], signal=9, held=True)
    all_tell(world, 118)
    world.run(2)
    [order] = world.of_kind("restart")
    assert order.resume_before_step == -1
    next_round(world, 2, first_step=101)
    world.run(10)
    all_tell(world, 118)
    world.run(5)
    order = world.of_kind("restart")[-1]
    assert (order.round, order.resume_before_step) == (2, 118)
    assert world.incidents()[-1].action == "restart"


def test_the_next_round_that_is_bad_as_well_has_the_incident_from_then_on() -> None:
    world = trained()
    all_tell(world, 118)
    world.run(3)
    next_round(world, 2, first_step=101)
    all_tell(world, 102, finite=101)
    world.run(3)
    first, second = world.incidents()
    assert (first.outcome, second.state, second.round) == ("superseded", "open", 2)
    assert world.of_kind("restart")[-1].resume_before_step == 102


@pytest.mark.parametrize("said", [{"how": "row"}, {"how": "x"}, {}, {"how": "row", "first": -5, "movers": "a"}])
def test_nonsense_is_erased_and_believed_of_nobody(said: dict[str, Any]) -> None:
    world = trained(DRILL)
    world.observe(r.NON_FINITE, "node-a", world.procs[0], **said)
    world.run(2)
    assert (world.incidents(), news(world)) == ([], [])


def test_it_goes_with_the_run() -> None:
    world = trained(DRILL)
    all_tell(world, 118)
    world.run(2)
    for proc in list(world.procs):
        world.ends(proc, code=0, closed=True)
    for node in NODES:
        world.leaves(node, "finished")
    world.run(60)
    assert [(i.klass, i.state, i.outcome) for i in world.incidents()] == [("non_finite", "closed", "run_ended")]
    assert news(world) == []


def test_two_thousand_nodes_that_tell_it_at_once_make_one_incident() -> None:
    world = World(DRILL)
    nodes = {f"n{number}": 1 for number in range(2000)}
    procs = world.meets(nodes, 1, first_step=91)
    world.run(2)
    for proc in procs:
        told = numbers.summed([(proc.rank, bad(95))])
        world.observe(r.NON_FINITE, proc.node, proc, **numbers.detail(told))
    world.run(0.5)
    [incident] = [i for i in world.incidents() if i.klass == "non_finite"]
    assert "on all 2000 ranks at the same step" in incident.summary
    assert len(codec.encode(incident)) < 40_000
    assert len(incident.trail) < 10
