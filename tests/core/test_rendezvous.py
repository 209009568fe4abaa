"""Stories of the rendezvous, told through agents that see everything at once."""

import time

import msgspec
import pytest
from rdzv_world import KEYS, UTC, Torchrun, World

from rankpulse.core import records as r
from rankpulse.core import rendezvous as rv


def established(world: World, nodes: str = "ab") -> list[Torchrun]:
    """A torchrun per node, all in round 1."""
    torchruns = [world.start(node) for node in nodes]
    world.run(10)
    assert {(tr.state, tr.after) for tr in torchruns} == {("in", 1)}, torchruns
    return torchruns


def places(world: World, uid: str, round_: int) -> list[str]:
    return [place.node for place in world.store.meetings[uid, round_].places]


def launch_of(world: World, uid: str) -> r.Launch:
    launch = world.store.get(KEYS.launch(uid))
    assert isinstance(launch, r.Launch)
    return launch


def answers(torchrun: Torchrun) -> tuple[str, str]:
    assert isinstance(torchrun.answer, rv.Refused), torchrun
    return torchrun.answer.kind, torchrun.answer.reason


# forming


def test_two_nodes_meet_and_know_their_ranks() -> None:
    world = World("ab")
    b, a = world.start("b"), world.start("a")
    world.run(4)
    uid = world.launches()[0].run_uid
    assert a.answer == rv.Met(uid, 1, 0, 2, "addr-a-2.2", 1001)
    assert b.answer == rv.Met(uid, 1, 1, 2, "addr-a-2.2", 1001)


def test_one_of_two_waits_and_says_for_what() -> None:
    world = World("ab")
    a = world.start("a")
    world.run(20)
    assert a.said[-1] == "1 of 2 nodes here (a)"


def test_nobody_waits_for_a_monitor_that_answers_at_once() -> None:
    world = World("ab")
    a, b = world.start("a"), world.start("b")
    world.run(1.0, 0.25)
    world.gate(world.launches()[0].run_uid, 1)
    world.run(0.5, 0.25)
    assert (a.state, b.state) == ("in", "in")


def test_the_first_round_calls_for_more_than_the_least() -> None:
    world = World("abcd", min_nodes=2, max_nodes=4)
    first = [world.start(node, last_call_s=20.0) for node in "ab"]
    world.run(15)
    assert first[0].said[-1] == "2 of 4 nodes here (a, b); last call for more"
    third = world.start("c", last_call_s=20.0)
    world.run(15)
    assert third.state == "asking"
    world.run(10)
    assert places(world, third.run_uid, 1) == ["a", "b", "c"]


def test_who_comes_when_all_are_here_is_a_spare_and_disturbs_nothing() -> None:
    world = World("abc")
    a, b = established(world)
    c = world.start("c", timeout_s=60.0)
    world.run(300)
    assert (a.state, b.state, c.state) == ("in", "in", "asking")
    assert c.said[-1] == "round 1 goes on without this node (a, b): a spare until the next"


# again


def test_a_member_that_asks_again_brings_all_together() -> None:
    world = World("ab")
    a, b = established(world)
    world.rejoin(a)
    world.run(10)
    assert (a.after, b.after) == (2, 2)
    assert world.store.meetings[a.run_uid, 2].reason == "a asks for the next round"


def test_an_order_brings_all_together_once() -> None:
    world = World("ab")
    a, _ = established(world)
    world.order(a.run_uid, 1)
    world.run(60)
    assert world.last_round(a.run_uid) == 2
    assert world.store.meetings[a.run_uid, 2].reason == "hang"


def test_a_spare_takes_the_place_of_a_node_without_power() -> None:
    world = World("abc")
    a, b = established(world)
    c = world.start("c")
    world.run(5)
    world.power_cut("b")
    world.run(60)
    assert (a.state, a.after) == ("in", 1), "silence is no verdict: the monitor's order is"
    world.order(a.run_uid, 1)
    world.run(10)
    assert places(world, a.run_uid, 2) == ["a", "c"]
    assert (a.after, c.after, b.state) == (2, 2, "dead")


def test_an_order_without_a_node_waits_for_no_keep_alive_of_it() -> None:
    world = World("abc")
    a, _ = established(world)
    c = world.start("c")
    world.run(5)
    world.power_cut("b")
    world.order(a.run_uid, 1, "b is dead", without=("b",))
    world.gate(a.run_uid, 2, lost=("b",))
    world.run(3)
    assert places(world, a.run_uid, 2) == ["a", "c"], "its presence stands for a while yet"
    assert (a.after, c.after) == (2, 2)


def test_an_order_without_a_node_needs_no_monitor_any_more() -> None:
    world = World("abc", min_nodes=2, max_nodes=3)
    a, _, c = established(world, "abc")
    world.agent_down("b")
    world.order(a.run_uid, 1, without=("b",))
    world.run(6)
    assert places(world, a.run_uid, 2) == ["a", "c"], "fewer may go on where that is allowed"
    assert c.after == 2


def test_without_a_spare_the_survivors_wait_and_say_for_what() -> None:
    world = World("abc")
    a, _ = established(world)
    world.power_cut("b")
    world.order(a.run_uid, 1, without=("b",))
    world.run(6)
    assert a.said[-1] == "1 of 2 nodes here (a); missing: b (is lost: another must take its place)"
    c = world.start("c")
    world.run(4)
    assert (a.after, c.after) == (2, 2)


def test_a_node_that_is_lost_after_the_order_is_taken_out_by_the_policy() -> None:
    world = World("abc")
    a, _ = established(world)
    c = world.start("c")
    world.run(5)
    world.power_cut("b")
    world.order(a.run_uid, 1)
    world.gate(a.run_uid, 2)
    world.run(4)
    assert a.after == 1, "it may only be slow to stop its workers"
    world.gate(a.run_uid, 2, lost=("b",))
    world.run(2)
    assert (a.after, c.after) == (2, 2)


def test_who_was_taken_for_lost_and_comes_back_is_not_refused() -> None:
    world = World("ab")
    a, b = established(world)
    b.stuck = True
    world.order(a.run_uid, 1, without=("b",))
    world.run(8)
    b.stuck = False
    world.run(2)
    assert b.said[-1] == "round 2 forms without this node, which was taken for lost"
    world.gate(a.run_uid, 2, lost=())
    world.run(4)
    assert (a.after, b.after) == (2, 2), "as soon as the monitor hears it, it is in"


def test_who_was_taken_for_lost_closes_nothing_for_the_others() -> None:
    world = World("abc")
    a, b = established(world)
    world.order(a.run_uid, 1, without=("b",))
    b.state, b.outcome = "leaving", "failed"
    world.run(4)
    assert not launch_of(world, a.run_uid).closed
    c = world.start("c")
    world.run(4)
    assert (a.after, c.after) == (2, 2)


def test_fewer_go_on_when_a_torchrun_is_gone_and_the_least_is_there() -> None:
    world = World("abc", min_nodes=2, max_nodes=3)
    a, b, c = established(world, "abc")
    b.state = "dead"
    world.run(10)
    assert places(world, a.run_uid, 2) == ["a", "c"]
    late = world.start("b")
    world.run(60)
    assert (late.state, c.after) == ("asking", 2), "a late node waits for the next round"
    world.rejoin(a)
    world.run(10)
    assert places(world, a.run_uid, 3) == ["a", "c", "b"], "members keep their order, newcomers follow"


def test_a_straggler_is_waited_for_but_not_for_ever() -> None:
    world = World("abc", min_nodes=2, max_nodes=3)
    a, b, _ = established(world, "abc")
    b.stuck = True
    world.rejoin(a)
    world.run(60)
    assert a.said[-1] == "2 of 3 nodes here (a, c); missing: b (still stopping its workers)"
    world.run(60)
    assert places(world, a.run_uid, 2) == ["a", "c"]
    b.stuck = False
    world.run(10)
    assert (b.state, b.join, a.after) == ("asking", 2, 2), "it comes late and waits as a spare"


def test_an_agent_that_is_away_for_a_moment_is_waited_for() -> None:
    world = World("abc", min_nodes=2, max_nodes=3)
    a, b, _ = established(world, "abc")
    world.store.write((), (KEYS.presence("b"),))
    world.agent_down("b")
    world.rejoin(a)
    world.run(3)
    assert a.said[-1] == "2 of 3 nodes here (a, c); missing: b (its agent is away)"
    world.agent_up("b")
    world.run(10)
    assert places(world, a.run_uid, 2) == ["a", "b", "c"]
    assert b.after == 2


def test_after_an_outage_of_the_store_nobody_is_taken_for_dead() -> None:
    world = World("abc", min_nodes=2, max_nodes=3)
    a, b, _ = established(world, "abc")
    world.outage(True)
    world.run(60)
    world.rejoin(a)
    world.outage(False)
    for agent in world.agents.values():
        agent.lease_ends = 0.0
    world.pass_time(0.1)  # all presences have ended, and the agents come back one by one
    world.turn(world.agents["a"])
    world.turn(world.agents["c"])
    world.run(10)
    assert places(world, a.run_uid, 2) == ["a", "b", "c"]
    assert b.after == 2


def test_who_lost_power_while_waiting_is_not_put_into_the_first_round() -> None:
    world = World("abc", min_nodes=2, max_nodes=3)
    world.start("a"), world.start("b")
    world.run(2)
    world.power_cut("a")
    world.run(14)
    c = world.start("c")
    world.run(40)
    assert places(world, c.run_uid, 1) == ["b", "c"]


def test_whoever_forms_a_round_leaves_out_a_node_that_was_cordoned_while_it_waited() -> None:
    world = World("abc", min_nodes=2, max_nodes=3)
    a, _, _ = (world.start(node) for node in "abc")
    world.run(1)
    world.cordon("b")
    for _ in range(80):  # b's own agent sleeps and cannot tell it
        world.turn(world.agents["a"])
        world.pass_time(0.1)
    world.run(40)
    assert places(world, a.run_uid, 1) == ["a", "c"]


def test_a_round_whose_meeting_was_not_seen_is_not_made_again() -> None:
    world = World("ab")
    a, b = established(world)
    agent = world.agents["a"]
    world.rejoin(a)
    world.rejoin(b)
    world.run(1)
    key, launch = KEYS.launch(a.run_uid), launch_of(world, a.run_uid)
    world.store.write(((key, msgspec.structs.replace(launch, round=5)),))
    world.look(agent, rv.Txn(((key, 0),), ()))
    step = rv.decide(agent.view, a.me(), world.now(agent) + 60, UTC, world.timing, "x")
    assert step == rv.Step(rv.Waiting("the record of round 5 has not been seen yet"), None, a.asked_at + a.timeout_s)


def test_who_waits_in_a_launch_that_lost_its_label_follows_the_label() -> None:
    world = World("ac")
    a = world.start("a")
    world.run(2)
    world.agent_down("a")
    world.run(20)
    c = world.start("c")
    world.run(10)
    old, new = sorted(world.launches(), key=lambda launch: launch.outcome == "")
    assert old.outcome == "abandoned"
    world.agent_up("a")
    world.run(10)
    assert a.run_uid == c.run_uid == new.run_uid
    assert {(tr.state, tr.after) for tr in (a, c)} == {("in", 1)}


def test_who_waits_in_a_launch_that_is_given_up_founds_the_next() -> None:
    """It came in the very moment in which the last of the others left."""
    world = World("ab")
    b = world.start("b")
    world.turn(world.agents["b"])
    world.turn(world.agents["a"])
    a = world.start("a")
    world.see(world.agents["b"], 1_000_000)
    (uid,) = [launch.run_uid for launch in world.launches()]
    last = rv.leave(world.agents["b"].view, uid, "b", b.launcher, "gone", "", UTC)
    assert last is not None
    world.turn(world.agents["a"])
    assert world.store.commit(last, world.agents["b"].view, "b")
    b.state = "left"
    b2 = world.start("b")
    world.run(20)
    assert (a.state, b2.state) == ("in", "in")
    assert a.run_uid == b2.run_uid != uid


def test_the_second_in_line_steps_in_for_an_agent_that_cannot_write() -> None:
    world = World("ab")
    world.start("a"), world.start("b")
    world.run(1)
    b = next(tr for tr in world.torchruns if tr.node == "b")
    for _ in range(20):
        world.turn(world.agents["b"])  # a's agent sleeps
        world.pass_time(0.5)
    assert b.state == "in"


def test_who_was_frozen_for_many_rounds_comes_back_as_a_spare() -> None:
    world = World("abc", min_nodes=2, max_nodes=3)
    a, b, c = established(world, "abc")
    world.agent_down("b")
    world.run(20)
    for _ in range(6):
        world.rejoin(a)
        world.run(10)
    assert (a.after, c.after, b.state, b.after) == (7, 7, "in", 1)
    meetings = [m.round for m in world.store.all(r.Meeting) if isinstance(m, r.Meeting)]
    assert sorted(meetings) == [1, 5, 6, 7], "the last three, and the one that b's join is listed in"
    world.agent_up("b")
    world.run(20)
    assert (b.state, b.join) == ("asking", 2)
    world.rejoin(a)
    world.run(10)
    assert places(world, a.run_uid, 8) == ["a", "c", "b"]
    world.rejoin(a)
    world.run(10)
    assert len(world.store.all(r.Meeting)) == 3


def test_when_all_members_lost_power_the_spares_go_on() -> None:
    world = World("abcd")
    a, _ = established(world)
    c, d = world.start("c"), world.start("d")
    world.run(5)
    world.power_cut("a")
    world.power_cut("b")
    world.run(50)
    assert (c.state, d.state) == ("asking", "asking"), "agents that are away for a while end no round"
    world.run(60)
    assert places(world, a.run_uid, 2) == ["c", "d"]


# gates and cordons


def test_a_cordoned_node_is_refused_with_author_and_reason() -> None:
    world = World("ab")
    world.cordon("b")
    b = world.start("b")
    world.run(2)
    assert answers(b) == ("cordoned", "b is cordoned by eve: broken fan")


def test_a_member_that_was_cordoned_stays_out_and_closes_nothing() -> None:
    world = World("abc")
    a, b = established(world)
    c = world.start("c")
    world.run(2)
    world.cordon("b")
    world.run(30)
    assert b.state == "in", "a cordon ends no round"
    world.order(a.run_uid, 1)
    world.run(10)
    assert answers(b)[0] == "cordoned"
    b.state, b.outcome = "leaving", "failed"  # as torchrun does after a refusal
    world.run(10)
    assert places(world, a.run_uid, 2) == ["a", "c"]
    assert (c.after, launch_of(world, a.run_uid).closed) == (2, "")


def test_the_gate_leaves_a_node_out_or_ends_the_run() -> None:
    world = World("abc")
    a, b = established(world)
    c = world.start("c")
    world.run(2)
    world.rejoin(a)
    world.rejoin(b)
    world.gate(a.run_uid, 2, without=("b",))
    world.run(10)
    assert answers(b) == ("cordoned", "b has to stay out: policy")
    assert places(world, a.run_uid, 2) == ["a", "c"]
    world.rejoin(a)
    world.gate(a.run_uid, 3, go=False)
    world.run(10)
    for torchrun in (a, c):
        assert answers(torchrun) == ("closed", "the run is closed (failed): policy")


def test_the_word_that_arrives_last_is_heard() -> None:
    """The gate is written after the decision and before the write."""
    world = World("ab")
    world.start("a"), world.start("b")
    world.run(4, 0.5)
    world = World("ab")
    a, b = world.start("a"), world.start("b")
    world.run(2)
    agent = world.agents["a"]
    step = rv.decide(agent.view, a.me(), world.now(agent) + 10, UTC, world.timing, "x")
    assert step.txn is not None
    assert "round 1" in step.txn.why
    world.gate(world.launches()[0].run_uid, 1, without=("b",))
    assert not world.store.commit(step.txn, agent.view, "a")
    world.run(10)
    assert (answers(b)[0], a.state) == ("cordoned", "asking")


# endings


def test_a_finished_run_leaves_no_key_behind_and_sends_its_spares_home() -> None:
    world = World("abc")
    a, b = established(world)
    c = world.start("c")
    world.run(5)
    a.state, a.outcome = "leaving", "finished"
    world.run(2)
    assert b.state == "in", "its workers end by themselves"
    assert answers(c) == ("finished", "the run is closed (finished): a: finished")
    b.state, b.outcome = "leaving", "finished"
    world.run(60)
    assert [key for key in world.store.items if "/agents/" not in key] == []


def test_a_failed_member_closes_the_run_a_failed_spare_does_not() -> None:
    world = World("abcd")
    a, b = established(world)
    c, d = world.start("c"), world.start("d")
    world.run(5)
    c.state, c.outcome = "leaving", "failed"
    world.run(5)
    assert launch_of(world, a.run_uid).closed == ""
    a.state, a.outcome = "leaving", "failed"
    world.run(5)
    assert launch_of(world, a.run_uid).outcome == "failed"
    assert answers(d)[0] == "closed"
    world.rejoin(b)
    world.run(5)
    assert answers(b)[0] == "closed"


def test_who_missed_a_round_cannot_close_the_run_for_those_who_are_in_it() -> None:
    world = World("abc", min_nodes=2, max_nodes=3)
    a, b, _ = established(world, "abc")
    agent = world.agents["b"]
    closing = rv.leave(agent.view, b.run_uid, "b", b.launcher, "failed", "exit code 1", UTC)
    assert closing is not None
    assert [type(record) for _, record in closing.puts] == [r.Joiner, r.Launch]
    world.store.write((), (KEYS.presence("b"),))
    world.agent_down("b")
    world.rejoin(a)
    world.run(20)
    assert places(world, a.run_uid, 2) == ["a", "c"]
    assert not world.store.commit(closing, agent.view, "b")
    world.look(agent, closing)  # it reads its guards again, and not the new meeting
    closing = rv.leave(agent.view, b.run_uid, "b", b.launcher, "failed", "exit code 1", UTC)
    assert closing is not None
    assert not world.store.commit(closing, agent.view, "b"), "the newest round is not known yet"
    world.look(agent, closing)
    leaving = rv.leave(agent.view, b.run_uid, "b", b.launcher, "failed", "exit code 1", UTC)
    assert leaving is not None
    assert [type(record) for _, record in leaving.puts] == [r.Joiner]
    assert world.store.commit(leaving, agent.view, "b")


@pytest.mark.parametrize("change", ["closed", "formed", "gate", "left"])
def test_a_meeting_is_not_made_when_what_it_rests_on_has_changed(change: str) -> None:
    world = World("ab")
    a, b = world.start("a"), world.start("b")
    world.run(2)
    uid, agent = world.launches()[0].run_uid, world.agents["a"]
    txn = rv.decide(agent.view, a.me(), world.now(agent) + 10, UTC, world.timing, "x").txn
    assert txn is not None
    assert [type(record) for _, record in txn.puts] == [r.Meeting, r.Launch]
    joiner = world.store.get(KEYS.joiner(uid, "b", b.launcher))
    assert isinstance(joiner, r.Joiner)
    news: dict[str, tuple[str, r.Record]] = {
        "closed": (KEYS.launch(uid), msgspec.structs.replace(launch_of(world, uid), closed="x", outcome="failed")),
        "formed": txn.puts[0],
        "gate": (KEYS.gate(uid, 1), r.Gate(run_uid=uid, round=1, go=True, reason="", epoch=1, at=UTC)),
        "left": (KEYS.joiner(uid, "b", b.launcher), msgspec.structs.replace(joiner, left="gone", outcome="gone")),
    }
    world.store.write((news[change],))
    assert not world.store.commit(txn, agent.view, "a")


def test_a_run_that_everybody_left_without_a_word_is_abandoned_and_swept() -> None:
    world = World("ab")
    a, b = established(world)
    a.state = b.state = "dead"
    world.run(60)
    assert [key for key in world.store.items if "/agents/" not in key] == []


def test_too_few_nodes_for_too_long_is_a_timeout_that_says_who_is_missing() -> None:
    world = World("abc", min_nodes=3, max_nodes=3)
    a, b, _ = established(world, "abc")
    world.torchruns[2].state = "dead"
    a.timeout_s = 50.0
    world.run(70)
    kind, reason = answers(a)
    assert b.state == "asking"
    assert kind == "timeout"
    assert reason.startswith("no round in 50 s: 2 of 3 nodes here (a, b); missing: c (has left: gone)")


# labels and launches


def test_the_same_label_after_the_end_is_a_new_run() -> None:
    world = World("ab")
    a, b = established(world)
    a.state, a.outcome, b.state, b.outcome = "leaving", "finished", "leaving", "finished"
    world.run(1)
    again, other = world.start("a"), world.start("b")
    world.run(10)
    assert again.run_uid == other.run_uid != a.run_uid
    assert again.after == 1


def test_two_first_torchruns_race_for_a_label_and_end_in_one_run() -> None:
    world = World("ab")
    a, b = world.start("a"), world.start("b")
    steps = [
        (agent, rv.decide(agent.view, tr.me(), world.now(agent), UTC, world.timing, f"uid-{agent.node}"))
        for tr, agent in ((a, world.agents["a"]), (b, world.agents["b"]))
    ]
    done = [world.store.commit(step.txn, agent.view, agent.node) for agent, step in steps if step.txn]
    assert done == [True, False]
    world.run(10)
    assert a.run_uid == b.run_uid == "uid-a"


def test_after_a_power_cut_everywhere_the_same_label_is_a_new_run() -> None:
    world = World("ab")
    established(world)
    world.power_cut("a")
    world.power_cut("b")
    world.run(60)
    world.agent_up("a")
    new_a = world.start("a")
    world.run(3)
    world.agent_up("b")
    new_b = world.start("b")
    world.run(30)
    assert new_a.run_uid == new_b.run_uid
    assert (new_a.state, new_b.state) == ("in", "in")
    assert launch_of(world, new_a.run_uid).closed == ""


def test_presences_that_are_missing_for_a_moment_make_no_second_launch() -> None:
    world = World("abc")
    a, _ = established(world)
    for node in "ab":
        world.store.write((), (KEYS.presence(node),))
    c = world.start("c")
    world.turn(world.agents["c"])
    assert c.said == ["looking whether the last launch of this label still lives"]
    world.run(20)
    assert launch_of(world, a.run_uid).closed == ""
    assert c.said[-1].startswith("round 1 goes on without this node")


def test_a_launch_of_which_nobody_is_there_gives_its_label_up() -> None:
    world = World("abc", min_nodes=1, max_nodes=1)
    (a,) = established(world, "a")
    world.agent_down("a")
    world.run(20)
    c = world.start("c")
    world.run(20)
    assert (c.state, c.run_uid != a.run_uid) == ("in", True)
    assert launch_of(world, a.run_uid).outcome == "abandoned"
    world.agent_up("a")
    world.run(20)
    assert a.state == "in", "its round goes on"


@pytest.mark.parametrize("change", ["label", "old launch", "presence"])
def test_a_label_is_not_taken_over_when_what_that_rests_on_has_changed(change: str) -> None:
    world = World("abc")
    a, _ = established(world)
    world.power_cut("a")
    world.power_cut("b")
    world.run(30)
    agent, c = world.agents["c"], world.start("c")
    txn = rv.decide(agent.view, c.me(), world.now(agent), UTC, world.timing, "run-new").txn
    assert txn is not None
    assert isinstance(dict(txn.puts)[KEYS.launch("run-new")], r.Launch)
    label_key = KEYS.label(rv.label_name("job", 0))
    news: dict[str, tuple[str, r.Record]] = {
        "label": (label_key, r.Label(label="job", owner=0, run_uid="run-other", at=UTC)),
        "old launch": (KEYS.launch(a.run_uid), launch_of(world, a.run_uid)),
        "presence": (KEYS.presence("b"), r.Presence(node="b", inc=2, at=UTC)),
    }
    world.store.write((news[change],))
    assert not world.store.commit(txn, agent.view, "c")


def test_a_label_whose_launch_was_not_seen_yet_is_not_taken_over() -> None:
    """Keys are read one by one after a write was refused."""
    world = World("ab")
    a = world.start("a")
    world.turn(world.agents["a"])
    agent, b = world.agents["b"], world.start("b")
    for _ in range(3):
        step = rv.decide(agent.view, b.me(), world.now(agent), UTC, world.timing, "run-b")
        if step.txn is None:
            break
        assert not world.store.commit(step.txn, agent.view, "b"), "one look too few"
        world.look(agent, step.txn)
    assert step.answer == rv.Waiting("looking whether the last launch of this label still lives")
    assert rv.sweep(agent.view, "b", frozenset([b.launcher]), UTC) == [], "nor is it swept"
    world.run(10)
    assert a.run_uid == b.run_uid != ""


def test_a_run_whose_round_was_not_seen_yet_is_not_taken_over_however_long_that_lasts() -> None:
    world = World("abc")
    a, _ = established(world)
    agent, c = world.agents["c"], world.start("c")
    agent.view = rv.View(KEYS)
    agent.known.clear()
    agent.view.relisted(frozenset(), world.now(agent))
    label_key = KEYS.label(rv.label_name("job", 0))
    world.look(agent, rv.Txn(((label_key, 0), (KEYS.launch(a.run_uid), 0)), ()))
    step = rv.decide(agent.view, c.me(), world.now(agent) + 60, UTC, world.timing, "run-c")
    assert step.txn is not None
    assert [type(record) for _, record in step.txn.puts] == [r.Joiner]
    assert step.txn.puts[0][0].startswith(KEYS.rdzv() + a.run_uid)


def test_a_torchrun_that_ended_while_its_agent_was_away_is_missed_by_the_next() -> None:
    world = World("ab", min_nodes=1, max_nodes=2)
    a, b = world.start("a", last_call_s=5.0), world.start("b", last_call_s=5.0)
    world.run(10)
    world.agent_down("b")
    b.state = "dead"
    world.run(30)
    assert (a.state, a.after) == ("in", 1)
    world.agent_up("b")
    world.run(20)
    assert (b.state, a.after) == ("buried", 2)
    assert places(world, a.run_uid, 2) == ["a"]


def test_a_torchrun_started_again_takes_the_place_of_its_dead_self() -> None:
    world = World("ab")
    a, b = established(world)
    b.state = "buried"  # dead, and nobody has noticed yet
    again = world.start("b")
    world.turn(world.agents["b"])
    b.state = "dead"
    world.run(20)
    assert places(world, a.run_uid, 2) == ["a", "b"]
    assert (again.state, again.after, a.after) == ("in", 2, 2)


def test_other_node_counts_than_the_launch_has_are_a_mismatch() -> None:
    world = World("abc")
    established(world)
    c = world.start("c", min_nodes=3, max_nodes=3)
    world.run(20)
    assert answers(c) == (
        "mismatch",
        "this label's launch goes on with --nnodes 2:2, this torchrun asks for 3:3",
    )


def test_labels_are_their_owners_and_their_key_names_are_sound() -> None:
    names = {rv.label_name(label, owner) for label in ("none", "a b", "a-b", "é", "\ud800", "") for owner in (0, 1000)}
    assert len(names) == 12
    for name in names:
        assert KEYS.parse(KEYS.label(name)) is not None
    KEYS.label(rv.label_name("x" * 10_000, 2**32))


def test_nobody_enters_the_run_of_another_user() -> None:
    world = World("ab")
    a, _ = established(world)
    me = rv.Me("b", "9.9", 1000, "job", 2, 2, 5, "x", 1, 0.0, a.run_uid, 1)
    step = rv.decide(world.agents["b"].view, me, 0.0, UTC, world.timing, "x")
    assert isinstance(step.answer, rv.Refused)
    assert step.answer.kind == "mismatch"
    assert step.txn is None


# what cannot be read


@pytest.mark.parametrize("what", ["label", "launch", "next round"])
def test_garbage_is_refused_with_the_key_to_delete(what: str) -> None:
    world = World("ab")
    a, b = established(world)
    key = {
        "label": KEYS.label(rv.label_name("job", 0)),
        "launch": KEYS.launch(a.run_uid),
        "next round": KEYS.meeting(a.run_uid, 2),
    }[what]
    for agent in world.agents.values():
        agent.view.garbled(key, "Launch of schema 2, this version reads 1", 10_000)
    if what == "next round":
        world.rejoin(a)
        asker = a
    else:
        asker = world.start("b")
    before = dict(world.store.items)
    for _ in range(3):
        world.turn(world.agents[asker.node])
    kind, reason = answers(asker)
    assert kind == "corrupt"
    assert key in reason
    assert "schema 2" in reason
    assert world.store.items.get(key) == before.get(key)
    assert b.state in ("in", "stopping")


def test_a_cordon_that_cannot_be_read_keeps_its_node_out() -> None:
    world = World("ab")
    world.agents["a"].view.garbled(KEYS.cordon("a"), "Cordon of schema 2", 3)
    a = world.start("a")
    world.turn(world.agents["a"])
    assert answers(a) == ("cordoned", "a is cordoned by ?: cannot be read (Cordon of schema 2)")


# the view


def test_folding_twice_changes_nothing() -> None:
    world = World("ab")
    a, _ = established(world)
    view, now = world.agents["a"].view, world.now(world.agents["a"])
    seen = dict(view.runs[a.run_uid].joiners)
    view.relisted(frozenset(world.store.items), now + 100)
    for key, (record, modified) in world.store.items.items():
        view.put(key, record, modified, now + 100)
    assert view.runs[a.run_uid].joiners == seen, "with the time it was first seen"


def test_what_a_listing_does_not_hold_is_gone() -> None:
    world = World("ab")
    established(world)
    view = world.agents["a"].view
    view.relisted(frozenset(), world.now(world.agents["a"]))
    assert (view.runs, view.labels) == ({}, {})


# scale


def crowd(nodes: int) -> tuple[rv.View, rv.Me]:
    """A round of so many nodes, all but one of which ask for the next."""
    view = rv.View(KEYS)
    places = tuple(r.Place(f"n{n:04}", f"{n}.1", 1) for n in range(nodes))
    launch = r.Launch(run_uid="u", label="job", owner=0, min_nodes=nodes, max_nodes=nodes, at=UTC)
    meeting = r.Meeting(run_uid="u", round=1, places=places, address="x", port=1, at=UTC, reason="")
    label = r.Label(label="job", owner=0, run_uid="u", at=UTC)
    puts: list[tuple[str, r.Record]] = [
        (KEYS.label(rv.label_name("job", 0)), label),
        (KEYS.launch("u"), launch),
        (KEYS.meeting("u", 1), meeting),
    ]
    for n, (node, launcher, _) in enumerate(map(msgspec.structs.astuple, places)):
        puts.append((KEYS.presence(node), r.Presence(node=node, inc=1, at=UTC)))
        puts.append((KEYS.joiner("u", node, launcher), asking(node, launcher, 2 if n else 1)))
    view.relisted(frozenset(), 0.0)
    for revision, (key, record) in enumerate(puts, 1):
        view.put(key, record, revision, 0.0)
    return view, rv.Me("n0001", "1.1", 0, "job", nodes, nodes, 2, "x", 1, 0.0, "u", 1)


def asking(node: str, launcher: str, join: int) -> r.Joiner:
    return r.Joiner(run_uid="u", node=node, launcher=launcher, join=join, after=1, address="x", port=1, at=UTC)


def cost_s(nodes: int) -> float:
    view, me = crowd(nodes)
    best = 1.0
    for _ in range(5):
        began = time.perf_counter()
        assert isinstance(rv.decide(view, me, 1.0, UTC, rv.Timing(), "v").answer, rv.Waiting)
        assert rv.again(view, "u", 1) is not None
        best = min(best, time.perf_counter() - began)
    return best


def test_a_decision_costs_in_proportion_to_the_run() -> None:
    small, large = cost_s(64), cost_s(2048)
    assert large < 32 * 8 * max(small, 1e-4), (small, large)  # its square would be 32 * 32


def test_a_meeting_of_2048_fits_into_a_transaction() -> None:
    view, me = crowd(2048)
    view.put(KEYS.joiner("u", "n0000", "0.1"), asking("n0000", "0.1", 2), 10_000, 0.0)
    step = rv.decide(view, me, 100.0, UTC, rv.Timing(), "v")
    assert step.txn is not None
    assert len(step.txn.guards) <= 128
    assert len(step.txn.puts[0][1].places) == 2048  # type: ignore[attr-defined]


# what the next round resumes from


def limits(world: World, uid: str) -> list[tuple[int, int]]:
    meetings = [meeting for (of, _), meeting in sorted(world.store.meetings.items()) if of == uid]
    return [(meeting.resume_before_step, meeting.resume_before_round) for meeting in meetings]


def test_the_limit_of_an_order_is_in_the_meeting_and_told_to_every_node() -> None:
    world = World("ab")
    a, b = established(world)
    world.order(a.run_uid, 1, before=50)
    world.run(10)
    assert limits(world, a.run_uid) == [(-1, 0), (50, 1)]
    for torchrun in (a, b):
        assert isinstance(torchrun.answer, rv.Met)
        assert torchrun.answer.told()["resume_before_step"] == 50


def test_without_a_limit_torchrun_hears_no_word_that_an_older_one_would_not_know() -> None:
    world = World("ab")
    a, _ = established(world)
    assert isinstance(a.answer, rv.Met)
    assert set(a.answer.told()) == {"run_uid", "round", "rank", "nodes", "address", "port"}


def test_without_a_monitor_a_limit_is_handed_on_and_its_word_ends_it() -> None:
    world = World("ab")
    a, _ = established(world)
    world.order(a.run_uid, 1, before=50)
    world.run(10)
    world.rejoin(a)
    world.run(10)
    assert limits(world, a.run_uid) == [(-1, 0), (50, 1), (50, 1)]
    world.gate(a.run_uid, 4)
    world.rejoin(a)
    world.run(10)
    assert limits(world, a.run_uid)[3] == (-1, 0)


def test_a_limit_of_a_gate_reaches_a_round_without_an_order_and_an_order_knows_better() -> None:
    world = World("ab")
    a, _ = established(world)
    world.gate(a.run_uid, 2, before=(70, 1))
    world.rejoin(a)
    world.run(10)
    assert limits(world, a.run_uid)[1] == (70, 1)
    world.gate(a.run_uid, 3, before=(70, 1))
    world.order(a.run_uid, 2, before=30)
    world.run(10)
    assert limits(world, a.run_uid)[2] == (30, 2)


def test_an_order_that_comes_between_the_decision_and_its_write_is_not_passed_over() -> None:
    """Whoever forms the round has not seen it: the store refuses, and the decision is taken anew."""
    world = World("ab")
    a, b = established(world)
    world.rejoin(a)
    world.rejoin(b)
    world.run(1.0, 0.25)
    agent = world.agents["a"]
    step = rv.decide(agent.view, a.me(), world.now(agent) + 5.0, UTC, world.timing, "x")
    while not (step.txn and any(isinstance(record, r.Meeting) for _, record in step.txn.puts)):
        world.run(0.25, 0.25)
        step = rv.decide(agent.view, a.me(), world.now(agent) + 5.0, UTC, world.timing, "x")
        assert world.last_round(a.run_uid) == 1
    world.order(a.run_uid, 1, before=50)
    assert not world.store.commit(step.txn)
    world.run(10)
    assert limits(world, a.run_uid)[1] == (50, 1)
