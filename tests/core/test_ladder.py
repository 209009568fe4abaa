"""The ladder: which rung follows when, and stories in which an order brings nothing."""

from itertools import pairwise

import pytest
from core_world import World
from ladder_world import ANSWER_S, DRILL, NODES, ROUND_S, WEBHOOK_S, acknowledged, carried_out, held, hooked, trail
from silence_world import SilenceWorld, settings

from rankpulse.core import events as ev
from rankpulse.core import ladder
from rankpulse.core import records as r
from rankpulse.core.ladder import Patience, Standing, climb
from rankpulse.core.settings import Settings

PATIENCE = Patience(answer_s=10.0, round_s=60.0, webhook_s=100.0)
GLOO = "[gloo/transport/tcp/pair.cc:534] Connection closed by peer [127.0.0.1]:1"

# --- the next rung, by what stands


@pytest.mark.parametrize(
    ("stands", "rung"),
    [
        (Standing(), None),
        (Standing(order_s=9.9, living=3), None),
        (Standing(order_s=10.0, living=3), "kill"),
        (Standing(order_s=10.0, unanswered=("a",)), "kill"),
        (Standing(order_s=59.0), None),
        (Standing(order_s=60.0), "page"),
        (Standing(order_s=60.0, actuator=True), "webhook"),
        (Standing(order_s=60.0, living=1, actuator=True), "kill"),
        (Standing(order_s=59.0, living=1, actuator=True, barred="not armed", spent="not armed"), "kill"),
        (Standing(order_s=60.0, living=1, actuator=True, barred="not armed", spent="not armed"), "page"),
        (Standing(order_s=65.0, kill_s=5.0, actuator=True), None),
        (Standing(order_s=70.0, kill_s=10.0, living=1, actuator=True), "webhook"),
        (Standing(order_s=70.0, kill_s=10.0, actuator=True, heir="job-2"), "page"),
        (Standing(order_s=70.0, kill_s=10.0, actuator=True, spent="it fails at step 3 again"), "page"),
        (Standing(order_s=99.0, webhook_s=99.9, actuator=True), None),
        (Standing(webhook_s=100.0, actuator=True), "page"),
        (Standing(order_s=999.0, webhook_s=999.0, living=1, paged=True, actuator=True), None),
    ],
)
def test_the_next_rung(stands: Standing, rung: str | None) -> None:
    found = climb(stands, PATIENCE)
    assert (found.name if found is not None else None) == rung
    assert found is None or found.reason


def test_no_rung_is_taken_twice_and_none_is_below_the_last() -> None:
    seen, stands = [""], Standing(order_s=0.0, unanswered=("a",), living=1, actuator=True)
    for second in range(400):
        stands = stands._replace(
            order_s=float(second),
            kill_s=None if stands.kill_s is None else stands.kill_s + 1,
            webhook_s=None if stands.webhook_s is None else stands.webhook_s + 1,
        )
        rung = climb(stands, PATIENCE)
        if rung is not None:
            seen.append(rung.name)
            began = {"kill": {"kill_s": 0.0}, "webhook": {"webhook_s": 0.0}, "page": {"paged": True}}
            stands = stands._replace(**began[rung.name])
    assert seen == ["", "kill", "webhook", "page"]
    assert all(ladder.RUNGS.index(lower) < ladder.RUNGS.index(higher) for lower, higher in pairwise(seen))


# --- stories


def test_an_order_that_is_carried_out_and_brings_a_round_is_all_there_is() -> None:
    world, order = held()
    carried_out(world, order)
    world.asks(NODES, 2)
    world.meets(NODES, 2, asks=False, first_step=61)
    world.run(ANSWER_S + ROUND_S + 5)
    [incident] = world.incidents()
    assert (incident.rung, incident.outcome, incident.acked) == ("order", "recovered", 2)
    assert [order.kind for order in world.orders() if order.round == 1] in ([], ["restart"])


def test_a_node_that_does_not_say_that_it_obeyed_has_its_workers_killed_once() -> None:
    world, order = held()
    acknowledged(world, order, "node-a")
    world.run(ANSWER_S - 1)
    assert world.of_kind("kill") == []
    world.run(5)
    [kill] = world.of_kind("kill")
    assert (kill.incident, kill.round, kill.nodes) == (order.incident, 1, ("node-a", "node-b"))
    assert {m.rank for m in kill.members} == {0, 1, 2}
    assert "not known to be carried out by node-b" in kill.reason
    assert [incident.rung for incident in world.incidents()] == ["kill"]
    world.run(ANSWER_S + 5)
    assert len(world.of_kind("kill")) == 1


def test_workers_that_live_on_after_the_order_are_killed() -> None:
    world, order = held()
    acknowledged(world, order, *NODES)
    world.run(ANSWER_S + 1)
    [kill] = world.of_kind("kill")
    assert "3 workers live on" in kill.reason


def test_a_silent_node_cannot_answer_and_is_not_waited_for() -> None:
    world, order = held()
    for proc in [proc for proc in world.procs if proc.alive and proc.node == "node-a"]:
        world.ends(proc, signal=15, order_id=order.order_id)
    acknowledged(world, order, "node-a")
    world.silent.add("node-b")
    world.run(ANSWER_S + 3)
    assert world.of_kind("kill") == []


@pytest.mark.parametrize("webhook", [True, False])
def test_without_a_next_round_a_webhook_is_told_and_then_a_person(*, webhook: bool) -> None:
    world, order = held(hooked() if webhook else DRILL)
    carried_out(world, order)
    world.run(ROUND_S + 2)
    [incident] = world.incidents()
    assert (incident.rung, incident.state) == ("webhook" if webhook else "page", "open")
    world.run(WEBHOOK_S + 2)
    [incident] = world.incidents()
    assert incident.rung == "page"
    assert world.of_kind("kill") == []
    told = [line for line in trail(world) if line.startswith(("webhook:", "page:"))]
    assert len(told) == (2 if webhook else 1), told


def test_a_leader_that_dies_at_any_tick_costs_no_rung_and_doubles_none() -> None:
    """Each of them has its time anew under the next."""
    world, _ = held(hooked())
    epoch = 1
    while (rung := world.incidents()[0].rung) != "page":
        assert epoch < 20, trail(world)
        epoch += 1
        world.successor(epoch)
        world.run({"order": ANSWER_S, "kill": ROUND_S, "webhook": WEBHOOK_S}[rung] + 8)
    assert len(world.of_kind("restart")) == len(world.of_kind("kill")) == 1
    lines = trail(world)
    assert [line.split(":")[0] for line in lines if line.startswith(("kill:", "webhook:", "page:"))] == [
        "kill", "webhook", "page",
    ]  # fmt: skip
    assert len([line for line in lines if "given: end the workers" in line]) == 1


def test_acknowledgements_are_told_once_whoever_leads_and_go_when_the_incident_is_over() -> None:
    world, order = held()
    acknowledged(world, order, "node-a", killed=1)
    world.run(0.3)
    world.successor(2)
    world.run(0.3)
    acknowledged(world, order, "node-b")
    world.run(0.3)
    lines = [line for line in trail(world) if "carried out" in line]
    assert lines == [
        "node-a carried out the order: 1 workers had to be killed",
        "node-b carried out the order: none had to be killed",
    ]
    assert [key for key in world.store if "/obs/" in key]
    carried_out(world, order)
    world.meets(NODES, 2, first_step=61)
    world.run(5)
    assert not [key for key in world.store if "/obs/" in key and b"order_done" in world.store[key][0]]


def test_blindness_gives_a_rung_its_time_anew() -> None:
    world, order = held()
    carried_out(world, order)
    world.run(ROUND_S - 5)
    world.engine.step(ev.SightLost("store", world.now))
    world.run(20)
    assert world.incidents()[0].rung == "order"
    world.engine.step(ev.SightBack(world.now))
    world.run(ROUND_S - 5)
    assert world.incidents()[0].rung == "order"
    world.run(20)
    assert world.incidents()[0].rung == "page"


def test_while_the_breaker_is_open_nobody_is_killed() -> None:
    world, _ = held()
    world.put(world.keys.breaker(), r.Breaker(open=True, author="monitor", reason="half is silent", at=0.0))
    world.run(ANSWER_S + 5)
    assert world.of_kind("kill") == []
    assert [line for line in trail(world) if "no order to kill" in line and "half is silent" in line]


def test_where_nobody_may_be_killed_a_person_is_told_that_no_round_formed() -> None:
    """The brake was pulled after the order, and one node never said that it obeyed."""
    world, order = held(hooked())
    acknowledged(world, order, "node-a")
    world.put(world.keys.arm(), r.Arm(armed=False, author="ann", reason="wait", at=0.0))
    world.run(ANSWER_S + ROUND_S + 5)
    assert (world.of_kind("kill"), world.incidents()[0].rung) == ([], "page")


def test_nobody_is_paged_for_a_paused_run_whose_next_round_does_not_form_until_it_is_resumed() -> None:
    world, order = held(hooked())
    carried_out(world, order)
    world.put(world.keys.run_mode("job-1"), r.RunMode(run_uid="job-1", mode="paused", author="bob", reason="x", at=0.0))
    world.run(ROUND_S + 30)
    assert world.incidents()[0].rung == "order"
    world.erase(world.keys.run_mode("job-1"))
    world.run(2)
    assert world.incidents()[0].rung == "webhook"


def test_a_scheduler_that_retries_too_is_noticed_and_nothing_is_doubled() -> None:
    world, order = held(hooked())
    carried_out(world, order)
    world.run(1)
    world.meets({"node-c": 2, "node-d": 2}, 1, uid="job-2")
    world.run(1)
    text = "run job-2 has begun under the same label: does a scheduler retry, too?"
    assert [line for line in trail(world) if line == text] == [text]
    assert [line for line in world.said if line.endswith(text)] == [f"run job-1 is being restarted, and {text}"]
    world.run(ROUND_S + 5)
    [incident] = [incident for incident in world.incidents() if incident.run_uid == "job-1"]
    assert incident.rung == "page"
    assert "a scheduler retries: run job-2 has begun under its label" in incident.trail[-1].text
    assert [post for post in world.posts if "restart" in post.outgoing.event] == []
    assert len(world.orders()) == 1


def test_a_job_of_another_user_by_the_same_label_is_no_retry() -> None:
    world, order = held()
    carried_out(world, order)
    other = r.Launch(run_uid="job-2", label="job", owner=1001, min_nodes=1, max_nodes=2, at=0.0)
    world.put(world.keys.launch("job-2"), other)
    world.meets({"node-c": 2, "node-d": 2}, 1, uid="job-2")
    world.run(2)
    assert [line for line in trail(world) if "job-2" in line] == []


# --- a run that ends


def ended(settings: Settings, *, armed: bool = True, outcome: str = "failed", code: int = 1) -> World:
    """Torchelastic's restarts are used up: a worker fails, and the run is closed."""
    world = World(settings=settings)
    if armed:
        world.arm()
    procs = world.meets(NODES, 1)
    world.run(10)
    world.ends(procs[3], code=code, error="OSError", message="disk full")
    for proc in procs[:3]:
        world.ends(proc, signal=15)
    world.leaves("node-b", outcome, "rank 3 ended with exit code 1")
    world.leaves("node-a", "gone", "the run is closed")
    world.run(15)
    return world


def test_a_run_that_torchelastic_gave_up_is_told_to_the_webhook_and_waits_for_its_heir() -> None:
    world = ended(hooked())
    [incident] = world.incidents()
    assert (incident.state, incident.rung) == ("open", "webhook")
    assert [line for line in trail(world) if line.startswith("webhook: the run has ended")]
    world.successor(2)
    world.run(10)
    assert world.incidents()[0].rung == "webhook"
    world.asks(NODES, 1, uid="job-2")
    world.meets(NODES, 1, uid="job-2", asks=False)
    world.run(2)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome, incident.rung) == ("closed", "run_ended", "webhook")
    assert "run job-2 has begun under the same label" in trail(world)
    assert world.orders() == []


def test_a_webhook_that_brings_no_job_ends_in_a_page() -> None:
    world = ended(hooked())
    world.run(WEBHOOK_S + 5)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome, incident.rung) == ("closed", "run_ended", "page")


def test_where_no_webhook_takes_restarts_a_person_is_told_at_once() -> None:
    world = ended(DRILL)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome, incident.rung) == ("closed", "run_ended", "page")


def test_unless_armed_nobody_starts_the_job_again() -> None:
    world = ended(hooked(), armed=False)
    [incident] = world.incidents()
    assert (incident.state, incident.rung) == ("closed", "")


def test_a_job_that_was_started_again_in_vain_is_not_started_again() -> None:
    world = ended(hooked())
    world.meets(NODES, 1, uid="job-2")
    world.run(10)
    second = [proc for proc in world.procs if proc.row.run_uid == "job-2"]
    world.ends(second[3], code=1, error="OSError", message="disk full")
    for proc in second[:3]:
        world.ends(proc, signal=15)
    world.leaves("node-b", "failed", "rank 3 ended with exit code 1", uid="job-2")
    world.leaves("node-a", "gone", "the run is closed", uid="job-2")
    world.run(15)
    newest = next(i for i in world.incidents() if i.run_uid == "job-2")
    first = next(i for i in world.incidents() if i.run_uid == "job-1")
    assert first.fault_step >= newest.fault_step, "it made no progress"
    assert (newest.state, newest.rung) == ("closed", "page")
    assert [line for line in newest.trail if f"when that was done in incident {first.id}" in line.text]


def test_whoever_stops_a_job_gets_no_webhook() -> None:
    world = World(settings=hooked())
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(10)
    for proc in procs:
        world.ends(proc, signal=15)
    for node in NODES:
        world.leaves(node, "failed", "was asked to end by SIGTERM")
    world.run(20)
    assert [state.outcome for state in world.run_states()] == ["stopped_by_user"]
    assert [i.rung for i in world.incidents() if i.rung] == []


@pytest.mark.parametrize("told", ["gone", "failed"])
def test_a_job_that_is_cancelled_while_it_is_being_restarted_is_not_started_from_outside(told: str) -> None:
    """Its workers are dead by our order; all that the cancelling ends are torchruns that wait for the next round."""
    world, order = held(hooked())
    carried_out(world, order)
    world.asks(NODES, 2)
    world.run(1)
    for node in NODES:
        if told == "gone":
            world.torchrun(node, 2, left="its torchrun has ended", outcome="gone")
        else:
            world.leaves(node, "failed", "SignalException: Process 9000 got signal: 15", round_=2)
    world.run(120)
    [incident] = world.incidents()
    assert (incident.state, incident.outcome, incident.rung) == ("closed", "run_ended", "page")
    assert [line for line in trail(world) if "it may have been cancelled" in line]


def test_a_job_whose_workers_do_not_heed_its_cancelling_is_not_started_from_outside() -> None:
    """torchrun kills them when its patience is over: nobody sees that they were asked."""
    world = World(settings=hooked())
    world.arm()
    procs = world.meets(NODES, 1)
    world.run(10)
    for proc in procs:
        world.ends(proc, signal=9)
    for node in NODES:
        world.torchrun(node, 1, left="its torchrun has ended", outcome="gone")
    world.run(120)
    [incident] = world.incidents()
    assert (world.orders(), incident.rung) == ([], "page")


def test_a_job_that_was_stopped_as_it_would_fail_again_is_not_started_from_outside() -> None:
    world = World(settings=hooked())
    world.arm()
    for round_ in (1, 2):
        procs = world.meets(NODES, round_)
        world.run(0.6)
        world.ends(procs[3], code=1, error="ValueError", message="no such token")
        for proc in procs[:3]:
            world.ends(proc, signal=15)
        world.run(1)
        world.asks(NODES, round_ + 1)
        world.run(0.5)
    gate = next(gate for gate in world.gates() if gate.round == 3)
    assert not gate.go
    world.lists(closed=gate.reason, outcome="failed")
    for node in NODES:
        world.torchrun(node, 3, left="refused (closed): the run is closed", outcome="gone")
    world.run(15)
    newest = max(world.incidents(), key=lambda incident: incident.round)
    assert (newest.state, newest.action, newest.rung) == ("closed", "stop", "")
    assert [key for key in world.store if "restart" in key] == []


# --- a node that is lost


def lost(**detect: float) -> SilenceWorld:
    """Two nodes train, a third waits; then one dies, and the other stands still."""
    world = SilenceWorld(settings=settings("fast", **detect))
    world.arm()
    world.states("node-c")
    world.joins(NODES)
    world.torchrun("node-c", 1)
    world.run(40)
    world.die("node-b")
    return world


def test_a_lost_node_is_left_out_by_the_order_and_the_policys_word() -> None:
    world = lost()
    took_s = world.until(20, "node_dead")
    assert took_s is not None
    world.run(0.3)
    [order] = world.of_kind("restart")
    assert (order.without, order.nodes) == (("node-b",), ("node-a", "node-b"))
    [incident] = world.incidents()
    assert (incident.action, incident.order_id) == ("restart_without", order.order_id)
    world.asks(["node-a"], 2)
    world.run(0.3)
    gate = next(gate for gate in world.gates() if gate.round == 2)
    assert (gate.go, gate.lost, gate.without) == (True, ("node-b",), ())
    world.successor(2)
    world.run(1)
    gate = next(gate for gate in world.gates() if gate.round == 2)
    assert gate.lost == ("node-b",), "whoever leads: it was not heard again"
    assert len(world.of_kind("restart")) == 1


@pytest.mark.parametrize(
    "after_s", [*(0.5 * n for n in range(4)), *(round(6.5 + 0.1 * n, 1) for n in range(16)), 9, 12, 18]
)
def test_a_leader_that_dies_at_any_moment_leaves_one_restart(after_s: float) -> None:
    """Of the loss of a node: neither none nor two, and one incident."""
    world = lost()
    world.run(after_s)
    asked = bool(world.of_kind("restart"))
    world.successor(2)
    while not asked and not world.of_kind("restart") and world.now < 1100.0:  # the new leader has to find it silent
        world.run(0.5)
    world.run(8)  # less than nodes have to answer
    [order] = world.of_kind("restart")
    assert (order.without, order.epoch) == (("node-b",), 1 if asked else 2)
    [incident] = [incident for incident in world.incidents() if incident.run_uid]
    assert (incident.klass, incident.action) == ("node_dead", "restart_without")
    acknowledged(world, order, "node-a")
    for proc in [proc for proc in world.procs if proc.node == "node-a"]:
        world.ends(proc, signal=15, order_id=order.order_id)
    world.asks(["node-a"], 2)
    world.run(0.3)
    assert next(gate for gate in world.gates() if gate.round == 2).lost == ("node-b",)
    world.training = True
    world.meets({"node-a": 2, "node-c": 2}, 2, asks=False, first_step=40)
    world.run(10)
    assert [(i.outcome, i.restarts) for i in world.incidents() if i.run_uid] == [("recovered", 1)]
    assert world.of_kind("kill") == []


def test_a_new_leader_orders_only_once_it_has_found_the_node_silent_itself() -> None:
    world = lost()
    world.refuse_writes = True
    while world.engine.book.open() == []:
        world.run(0.1)
    world.refuse_writes = False
    world.thaw("node-b")
    world.successor(2)
    world.run(20)
    assert world.orders() == []
    assert world.incidents() == []


def test_a_round_that_was_ended_already_loses_a_node_afterwards() -> None:
    """Its peers lost their connections and were held: the order came first, what had become of the node later."""
    world = lost()
    for proc in [proc for proc in world.procs if proc.node == "node-a"]:
        world.ends(proc, code=1, error="RuntimeError", message=GLOO, held=True)
    world.run(2)
    [order] = world.of_kind("restart")
    assert order.without == ()
    acknowledged(world, order, "node-a")
    world.asks(["node-a"], 2)
    world.run(0.5)
    assert next(gate for gate in world.gates() if gate.round == 2).lost == ()
    assert world.until(30, "node_dead") is not None
    world.run(0.5)
    assert next(gate for gate in world.gates() if gate.round == 2).lost == ("node-b",)
    [incident] = world.incidents()
    assert (incident.klass, incident.action, incident.order_id) == ("node_dead", "restart", order.order_id)
    world.thaw("node-b")
    world.run(3)
    assert next(gate for gate in world.gates() if gate.round == 2).lost == (), "it is back before the round has met"


def test_a_node_whose_agent_is_gone_is_lost_to_the_next_round_soon() -> None:
    world = lost()
    world.machines["node-b"] = ev.REFUSED
    for proc in [proc for proc in world.procs if proc.node == "node-a"]:
        world.ends(proc, code=1, error="RuntimeError", message=GLOO, held=True)
    world.run(1.5)
    [_] = world.of_kind("restart")
    world.asks(["node-a"], 2)
    world.run(3)
    assert next(gate for gate in world.gates() if gate.round == 2).lost == (), "it may only be starting again"
    world.run(4)
    assert next(gate for gate in world.gates() if gate.round == 2).lost == ("node-b",)
