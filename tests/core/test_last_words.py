"""Survivors are asked to save before their round is ended: when, when not and why, and what the story says of it."""

from typing import Any

import msgspec
import pytest
from core_world import DRILL, World
from ladder_world import ANSWER_S, NODES, acknowledged, trail
from numbers_world import all_tell
from numbers_world import trained as with_numbers
from silence_world import SilenceWorld, settings

from rankpulse.core import last_words
from rankpulse.core import records as r
from rankpulse.core.evidence import Position
from rankpulse.core.last_words import Words, absent, asked
from rankpulse.core.progress import RankProgress
from rankpulse.core.settings import Settings
from rankpulse.core.views import RoundView

LIMIT_S = 4.0
WAIT_S = ANSWER_S + LIMIT_S + last_words.SLACK_S


def offers(world: World, within_s: float = LIMIT_S, node: str = "node-a") -> None:
    """The trainer of rank 0 says that its job can do it."""
    proc = next(p for p in world.procs if p.node == node and p.alive)
    world.observe(r.CHECKPOINT, node, proc, event="last_words", times=1, within_s=within_s)


def trained(settings: Settings = DRILL, within_s: float = LIMIT_S) -> World:
    world = World(settings)
    world.arm()
    world.meets(NODES, 1)
    world.run(5)
    offers(world, within_s)
    world.run(5)
    return world


def crashed(settings: Settings = DRILL, within_s: float = LIMIT_S) -> tuple[World, r.Order]:
    """A worker was killed and is held, and the order is given."""
    world = trained(settings, within_s)
    world.ends(world.procs[3], signal=9, held=True)
    world.run(0.3)
    [order] = world.of_kind("restart")
    return world, order


def tells(world: World, order: r.Order, node: str, words: Words) -> None:
    world.observe(r.ORDER_DONE, node, order_id=order.order_id, killed=0, **last_words.told(words))


def incident(world: World) -> r.Incident:
    [found] = [one for one in world.incidents() if one.run_uid]
    return found


def end_round(world: World, order: r.Order) -> None:
    for proc in [proc for proc in world.procs if proc.alive]:
        world.ends(proc, signal=15, order_id=order.order_id)


def goes_on(world: World, step: int, skipped: int = 0, number: int = 2) -> None:
    """The next round meets, loads that step, and trains."""
    world.asks(NODES, number)
    world.run(0.3)
    procs = world.meets(NODES, number, first_step=step + 1, asks=False)
    detail = {"bytes": 1, "load_s": 0.1, "verify_s": 0.1, "level": "full", "skipped": skipped, "resharded_from": 0}
    world.observe(r.CHECKPOINT, "node-a", procs[0], event="loaded", times=1, step=step, **detail)
    world.run(3)


# --- the decision


def one(klass: str = "worker_dead", **changes: Any) -> r.Incident:
    return r.Incident(id="i1", klass=klass, state="open", opened_at=0.0, run_uid="u", round=2, **changes)


OFFERED = r.CheckpointState(run_uid="u", last_words_s=6.0, last_words_round=2)


@pytest.mark.parametrize(
    ("incident", "others", "state", "most_s", "within_s", "reason"),
    [
        (one(), (), OFFERED, 15.0, 6.0, "offers them within 6 s"),
        (one(), (), OFFERED, 2.0, 2.0, "offers them within 6 s"),
        (one(), (one("sidecar_dead"),), OFFERED, 15.0, 6.0, "offers them"),
        (one(), (), OFFERED, 0.0, 0.0, "policy.last_words_max_s is 0"),
        (one(), (), None, 15.0, 0.0, "does not offer them: CheckpointManager(last_words=True)"),
        (one(), (), r.CheckpointState(run_uid="u", saves=3), 15.0, 0.0, "does not offer them"),
        (one(), (), msgspec.structs.replace(OFFERED, last_words_round=1), 15.0, 0.0, "round 2 has not come so far"),
        (one("operator_restart", resume_before_step=40), (), OFFERED, 15.0, 0.0, "from before step 40"),
        (one("non_finite"), (), OFFERED, 15.0, 0.0, "numbers are not finite (incident i1)"),
        (one("silent_corruption"), (), OFFERED, 15.0, 0.0, "the state itself is what is wrong"),
        (one("operator_restart"), (one("non_finite"),), OFFERED, 15.0, 0.0, "the state itself is what is wrong"),
    ],
)
def test_who_is_asked_for_how_long_and_why_not(
    incident: r.Incident,
    others: tuple[r.Incident, ...],
    state: r.CheckpointState | None,
    most_s: float,
    within_s: float,
    reason: str,
) -> None:
    ask = asked(incident, others, state, most_s)
    assert ask.within_s == within_s
    assert reason in ask.reason


def test_nobody_waits_for_a_rank_on_a_broken_device() -> None:
    """What it holds is not to be trusted, though it lives."""
    members = {rank: r.Member(rank, f"n{rank // 2}", rank % 2, 10 + rank, 1) for rank in range(6)}
    progress = {rank: RankProgress(3) for rank in range(6)}
    progress[1].state = "T"
    view = RoundView(1, "m", 6, 0.0, members=members, progress=progress)
    broken = one("gpu_fault", culprits=(members[0],))
    assert absent(broken, view, {"n2"}) == (0, 1, 4, 5)
    assert absent(one("collective_hang", culprits=(members[0],)), view, ()) == (1,)


@pytest.mark.parametrize(
    "words",
    [
        Words(),
        Words("saved", 120, (2, 3)),
        Words("saved", 0),
        Words("refused", reason="nobody who is left holds all of w0 (rank 3)"),
        Words("unanswered", reason="rank 0: no answer within 5 s"),
    ],
)
def test_what_an_agent_writes_is_read_again(words: Words) -> None:
    assert last_words.read(last_words.told(words)) == words


@pytest.mark.parametrize(
    "detail",
    [
        {"last_words": "saved"},
        {"last_words": "saved", "last_words_step": -4},
        {"last_words": "saved", "last_words_step": True},
        {"last_words": "asked", "last_words_step": 4},
        {"last_words": 7},
    ],
)
def test_what_no_agent_writes_says_nothing(detail: dict[str, r.Scalar]) -> None:
    assert last_words.read(detail) == Words()
    absent = last_words.read(
        {"last_words": "saved", "last_words_step": 1, "last_words_absent": "2,x,-1,³,99999999999,4"}
    )
    assert absent == Words("saved", 1, (2, 4))


# --- stories


def test_those_that_lived_saved_and_the_job_goes_on_from_there() -> None:
    world, order = crashed()
    assert (order.last_words_s, order.absent) == (LIMIT_S, (3,))
    assert incident(world).last_words == "asked"
    end_round(world, order)
    step = max(proc.step for proc in world.procs) - 1
    tells(world, order, "node-a", Words("saved", step, (3,)))
    tells(world, order, "node-b", Words("unanswered", reason="rank 2: no answer within 5 s"))
    world.run(0.3)
    goes_on(world, step)
    found = incident(world)
    assert (found.outcome, found.last_words, found.last_words_step) == ("recovered", "saved", step)
    assert (found.resumed_from_step, found.lost_steps) == (step, 1)
    story = "\n".join(trail(world))
    assert "after last words of those that live (up to 4 s)" in story
    assert f"last words: step {step}, without rank 3" in story
    assert "no last words of node-b: rank 2: no answer within 5 s" in story
    assert f"round 2 resumed from last words of step {step}, verified (full)" in story


def test_what_was_refused_is_told_with_its_reason_once() -> None:
    world, order = crashed()
    end_round(world, order)
    for node in NODES:
        tells(world, order, node, Words("refused", reason="nobody who is left holds all of w0 (rank 3)"))
    world.run(0.3)
    goes_on(world, 4)
    found = incident(world)
    assert (found.last_words, found.last_words_step) == ("refused", -1)
    lines = [line for line in trail(world) if "last words" in line]
    assert lines.count("last words refused: nobody who is left holds all of w0 (rank 3)") == 1
    assert any("resumed from the checkpoint of step 4" in line for line in trail(world))


@pytest.mark.parametrize(
    ("policy", "within_s", "why"),
    [
        ({"last_words_max_s": 0.0}, LIMIT_S, "policy.last_words_max_s is 0"),
        ({}, 0.0, "the job does not offer them: CheckpointManager(last_words=True)"),
    ],
)
def test_where_nobody_is_asked_the_story_says_why(policy: dict[str, float], within_s: float, why: str) -> None:
    changed = msgspec.structs.replace(DRILL, policy=msgspec.structs.replace(DRILL.policy, **policy))
    world, order = crashed(changed, within_s)
    world.run(0.3)
    assert (order.last_words_s, order.absent, incident(world).last_words) == (0.0, (), "")
    assert f"no last words are asked for: {why}" in trail(world)


def test_what_an_earlier_round_offered_does_not_count() -> None:
    """Before its first steps a round has agreed on nothing."""
    world, order = crashed()
    end_round(world, order)
    acknowledged(world, order, *NODES)
    world.run(0.3)
    goes_on(world, 4)
    world.run(20)
    world.ends([proc for proc in world.procs if proc.alive][3], signal=9, held=True)
    world.run(0.3)
    second = world.of_kind("restart")[-1]
    assert (second.round, second.last_words_s) == (2, 0.0)


def test_a_stopped_rank_is_not_waited_for() -> None:
    world = trained()
    world.procs[1].state, world.training = "T", False
    for _ in range(40):
        world.run(0.5)
        for order in world.of_kind("collect"):
            at = {rank: (Position("w", 7 + (rank != 1), 7, "all_reduce"),) for rank in range(4)}
            if f"answered {order.order_id}" not in world.said:
                world.said.append(f"answered {order.order_id}")
                for node in NODES:
                    world.answers(order, node, at)
        if world.of_kind("restart"):
            break
    [order] = world.of_kind("restart")
    assert (order.last_words_s, order.absent) == (LIMIT_S, (1,))


def test_ranks_of_a_lost_node_are_not_waited_for() -> None:
    world = SilenceWorld(settings=settings("drill"))
    world.arm()
    world.joins({"node-a": 2, "node-b": 2, "node-c": 2})
    world.run(20)
    offers(world)
    world.run(5)
    world.die("node-c")
    world.run(60)
    [order] = world.of_kind("restart")
    assert (order.without, order.last_words_s, order.absent) == (("node-c",), LIMIT_S, (4, 5))


def test_numbers_that_are_not_finite_are_not_saved_once_more() -> None:
    world = with_numbers()
    offers(world)
    all_tell(world, 111)
    world.run(5)
    [order] = world.of_kind("restart")
    assert order.last_words_s == 0
    assert any(line.startswith("no last words are asked for: it is to go on from before step") for line in trail(world))


@pytest.mark.parametrize(
    ("kind", "skipped", "words"), [("last_words", 0, "saved"), ("sharded", 0, ""), ("last_words", 1, "")]
)
def test_what_survivors_saved_by_themselves_is_told_once_it_is_loaded(kind: str, skipped: int, words: str) -> None:
    """Torchelastic restarts by itself: no order asks anybody. The next failure knows nothing of it."""
    world = trained()
    world.ends(world.procs[3], signal=9)
    world.run(0.5)
    world.observe(r.CHECKPOINT, "node-a", world.procs[0], event="saved", times=1, step=30, kind=kind, verified=False)
    for proc in [proc for proc in world.procs if proc.alive]:
        world.ends(proc, signal=15)
    world.run(0.3)
    goes_on(world, 30, skipped)
    first = incident(world)
    assert (first.action, first.outcome, first.last_words) == ("adopt", "recovered", words)
    assert first.last_words_step == (30 if words else -1)
    second = [proc for proc in world.procs if proc.alive]
    world.ends(second[3], signal=9)
    for proc in second[:3]:
        world.ends(proc, signal=15)
    world.run(0.5)
    goes_on(world, 30, number=3)
    found = max(world.incidents(), key=lambda i: i.round)
    assert (found.round, found.outcome, found.last_words) == (2, "recovered", "")


def test_survivors_may_come_a_step_further_before_they_are_ended_and_save_that_too() -> None:
    world, order = crashed()
    for node in NODES:
        tells(world, order, node, Words("saved", 40, (3,)))
    world.observe(r.CHECKPOINT, "node-a", world.procs[0], event="saved", times=1, step=41, kind="last_words")
    end_round(world, order)
    world.run(0.3)
    goes_on(world, 41)
    found = incident(world)
    assert (found.outcome, found.last_words, found.last_words_step, found.resumed_from_step) == (
        "recovered", "saved", 41, 41
    )  # fmt: skip
    assert "last words: step 40, without rank 3" in trail(world)
    assert sum("resumed from" in line for line in trail(world)) == 1
    assert any("round 2 resumed from last words of step 41" in line for line in trail(world))


# --- the ladder


def test_no_rung_is_climbed_while_survivors_write() -> None:
    """They take all of the time that they have, and the grace after that."""
    world, order = crashed()
    world.run(WAIT_S - 1.0)
    assert [o.kind for o in world.orders()] == ["restart"]
    end_round(world, order)
    for node in NODES:
        tells(world, order, node, Words("saved", 20, (3,)))
    world.run(WAIT_S)
    assert [o.kind for o in world.orders()] == ["restart"]
    assert incident(world).rung == "order"


def test_agents_that_never_answer_hold_up_the_ladder_no_longer_than_that() -> None:
    world, _ = crashed()
    world.run(WAIT_S + 1.0)
    assert [o.kind for o in world.orders()] == ["kill", "restart"]
    assert f"not known to be carried out by node-a, node-b within {WAIT_S:g} s" in world.of_kind("kill")[0].reason


def test_whoever_leads_next_gives_them_the_same_time_and_orders_nothing_twice() -> None:
    world, order = crashed()
    world.run(3.0)
    world.successor(2)
    world.run(WAIT_S - 1.0)
    assert world.orders() == [order]
    end_round(world, order)
    for node in NODES:
        tells(world, order, node, Words("saved", 20, (3,)))
    world.run(0.3)
    assert incident(world).last_words == "saved"
    world.successor(3)
    world.run(0.5)
    assert sum("last words: step 20" in line for line in trail(world)) == 1
