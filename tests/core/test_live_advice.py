"""How often each run should save: from the ledger and its saves to one record that trainers follow."""

import math
from typing import Any

import msgspec
import pytest
from core_world import UTC, World
from hypothesis import given, settings
from hypothesis import strategies as st

from rankpulse.core import codec, live_advice
from rankpulse.core import records as r
from rankpulse.core.advice_keeping import AT_ONCE, LOOK_EVERY_S
from rankpulse.core.checkpoint_cost import exact
from rankpulse.core.failure_rate import mtbf
from rankpulse.core.interval_advice import WORTH_MOVING
from rankpulse.core.ledger_sums import OfRun, Totals
from rankpulse.core.live_advice import History, SaveCost, belief, gaps, guess_s, measured, recover_s

NODES = {"node-a": 2, "node-b": 2}
HOUR = 3600.0


def entry(fault_h: float, down_h: float = 0.1, **change: Any) -> r.LedgerEntry:
    made = r.LedgerEntry(
        id=f"i{fault_h}", klass="worker_dead", component="program", blame="program", outcome="recovered",
        action="restart", opened_at=UTC + fault_h * HOUR, closed_at=UTC + (fault_h + down_h) * HOUR,
        fault_at=UTC + fault_h * HOUR, run_uid="job-1", lost_s={"rendezvous": 60.0, "recomputation": 500.0},
    )  # fmt: skip
    return msgspec.structs.replace(made, **change)


def every(hours: float, count: int) -> tuple[r.LedgerEntry, ...]:
    return tuple(entry((number + 1) * hours) for number in range(count))


def history(failures: tuple[r.LedgerEntry, ...], ran_h: float, guess_h: float = 100.0) -> History:
    return History(failures, ran_h * HOUR, guess_h * HOUR)


# --- what follows from records


def test_the_time_between_failures_is_that_in_which_the_run_went_on() -> None:
    before, since = gaps(history((entry(10), entry(30, 1.0)), 41.0), UTC + 41 * HOUR)
    assert [gap / HOUR for gap in before] == pytest.approx([10.0, 19.9]), "the first is what is left of 41 hours"
    assert since / HOUR == pytest.approx(10.0)


@pytest.mark.parametrize("at_h", [20.0, 1e6, -1e6])
def test_no_clock_makes_more_time_than_monitors_have_counted(at_h: float) -> None:
    before, since = gaps(history((entry(10), entry(5), entry(1e5)), 12.0), UTC + at_h * HOUR)
    assert all(gap >= 0 and math.isfinite(gap) for gap in (*before, since))
    assert sum(before) + since <= 12.0 * HOUR + 1e-6
    assert len(before) == 3


def test_many_failures_outweigh_the_guess_and_none_for_long_does_as_well() -> None:
    often = mtbf(belief(history(every(2.0, 20), 41.0), UTC + 41 * HOUR)) / HOUR
    assert 1.4 < often < 2.8
    never = mtbf(belief(history((), 5000.0), UTC + 5000 * HOUR)) / HOUR
    assert never > 1000


def test_of_many_failures_the_newest_count_and_time_before_them_is_not_taken_for_time_without_any() -> None:
    many = every(2.0, 300)
    kept = live_advice.history(many, 601 * HOUR, 100 * HOUR, whole=True)
    before, since = gaps(kept, UTC + 601 * HOUR)
    assert len(before) == live_advice.FAILURES_MAX
    assert before == pytest.approx([1.9 * HOUR] * live_advice.FAILURES_MAX)
    assert since == pytest.approx(0.9 * HOUR)
    few = live_advice.history(many[:3], 601 * HOUR, 100 * HOUR, whole=False)
    assert len(gaps(few, UTC + 7 * HOUR)[0]) == 2, "the ledger has let some go: the first one is a mark"
    assert len(gaps(few._replace(whole=True), UTC + 7 * HOUR)[0]) == 3


def test_learned_in_parts_it_is_what_is_learned_at_once() -> None:
    many = history(every(2.0, 120), 241.0)
    part = live_advice.learning(many, UTC + 241 * HOUR)
    for _ in range(7):
        part = part.further(20)
    assert part == live_advice.Learning((), live_advice.at_last_failure(many, UTC + 241 * HOUR))


def test_the_first_guess_is_what_the_rest_of_the_fleet_has_shown() -> None:
    fleet = Totals(gpu_s=1e6 * HOUR, runs={"mine": OfRun(gpu_s=1e5 * HOUR, failures=900)})
    fleet.failures.update({"node_dead/node": 1000})
    assert guess_s(fleet, "mine", 100) / HOUR == pytest.approx(9e5 / 100 / 100, rel=0.15), "without its own"
    assert guess_s(Totals(), "mine", 100) / HOUR == pytest.approx(80, rel=0.15), "of nothing: 8,000 GPU hours"
    more = Totals(gpu_s=1.001e6 * HOUR, runs=fleet.runs, failures=fleet.failures)
    assert guess_s(more, "mine", 100) == guess_s(fleet, "mine", 100), "a second later it is no other guess"


def test_a_save_costs_what_the_newest_ones_took() -> None:
    state = r.CheckpointState(run_uid="u", step=5, verified_step=5, save_s=8.0, verify_s=2.0, saves=1)
    first = measured(None, state)
    assert first == SaveCost(1, 10.0)
    assert measured(first, msgspec.structs.replace(state, save_s=80.0)) == first, "counted once"
    unread = msgspec.structs.replace(state, step=9, saves=2)
    assert measured(first, unread) == SaveCost(2, pytest.approx(10.0 - 0.3 * 2.0)), "that one was not read back"
    assert measured(None, r.CheckpointState(run_uid="u")) is None


def test_recovery_is_measured_without_the_steps_done_again() -> None:
    assert recover_s((entry(1), entry(2, lost_s={"waiting": 20.0}), entry(3, lost_s={}))) == 40.0
    assert recover_s(()) == live_advice.RECOVER_S


def test_the_advice_is_the_optimum_with_its_bounds() -> None:
    ran = history(every(2.0, 20), 41.0)
    believed = belief(ran, UTC + 41 * HOUR)
    made = live_advice.record("u", UTC, ran, believed, SaveCost(3, 12.0))
    assert made.interval_s == pytest.approx(exact(12.0, mtbf(believed)), rel=1e-3)
    assert made.low_s < made.interval_s < made.high_s
    assert made.mtbf_low_s < made.mtbf_s < made.mtbf_high_s
    assert (made.save_s, made.saves, made.failures, made.recover_s) == (12.0, 3, 20, 60.0)
    assert 0 < made.lost_share < 0.2
    assert WORTH_MOVING < 0.01
    assert not live_advice.moved(made, believed, 12.1), "one per cent more a save is no other word"
    assert live_advice.moved(made, believed, 24.0)


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e4)), max_size=20),
    st.floats(0, 1e10),
    st.floats(0, 1e9),
    st.floats(-1e9, 1e9),
    st.integers(0, 100_000),
)
@settings(max_examples=60, deadline=None)
def test_whatever_a_job_says_the_advice_is_a_number(
    told: list[tuple[float, float]], run_s: float, save_s: float, at: float, ranks: int
) -> None:
    ran = History(tuple(entry(fault_h, down_h) for fault_h, down_h in told), run_s, guess_s(Totals(), "u", ranks))
    believed = belief(ran, UTC + at)
    made = live_advice.record("u", UTC, ran, believed, SaveCost(1, save_s))
    numbers = [value for value in msgspec.to_builtins(made).values() if isinstance(value, float)]
    assert all(math.isfinite(number) and number >= 0 for number in numbers)
    assert 0 <= made.lost_share <= 1
    assert codec.decode(r.RunAdvice, codec.encode(made)) == made
    live_advice.moved(made, believed, save_s / 2)


# --- the leader writes it


def training() -> World:
    world = World()
    world.arm()
    world.meets(NODES, 1)
    world.run(20)
    return world


def saves(world: World, step: int, save_s: float = 0.3) -> None:
    detail = {"bytes": 9, "shards": 4, "kind": "sharded", "save_s": save_s, "verified": True, "verify_s": 0.1}
    world.observe(r.CHECKPOINT, "node-a", world.procs[0], event="saved", times=1, step=step, **detail)


def advice(world: World) -> r.RunAdvice | None:
    found = world.store.get(world.keys.advice("job-1"))
    return codec.decode(r.RunAdvice, found[0]) if found is not None else None


def written(world: World) -> int:
    return sum(getattr(action, "key", "") == world.keys.advice("job-1") for action in world.actions)


def test_before_a_save_was_measured_nothing_is_advised() -> None:
    world = training()
    world.run(LOOK_EVERY_S + 5, step_s=0.5)
    assert advice(world) is None
    assert world.engine.snapshot(world.now)["runs"]["job-1"]["advice"] is None


def test_a_run_that_saves_is_advised_once_and_again_when_saving_costs_much_more() -> None:
    world = training()
    detail = {"event": "save_failed", "times": 1, "step": 1, "reason": "disk full"}
    world.observe(r.CHECKPOINT, "node-a", world.procs[0], **detail)
    world.run(5)
    saves(world, 5)
    world.run(5)
    first = advice(world)
    assert first is not None
    assert first.save_s == pytest.approx(0.4)
    shown = world.engine.snapshot(world.now)["runs"]["job-1"]["advice"]
    assert (shown["interval_s"], shown["mtbf_s"]) == (first.interval_s, first.mtbf_s)
    saves(world, 6, save_s=0.31)
    world.run(3 * LOOK_EVERY_S, step_s=0.5)
    assert (advice(world), written(world)) == (first, 1), "it loses hardly more: it stands"
    saves(world, 7, save_s=30.0)
    world.run(LOOK_EVERY_S + 5, step_s=0.5)
    second = advice(world)
    assert second is not None
    assert second.interval_s > 2 * first.interval_s
    assert written(world) == 2


def test_a_new_leader_goes_on_from_the_advice_in_force() -> None:
    world = training()
    saves(world, 5)
    world.run(LOOK_EVERY_S + 5, step_s=0.5)
    first = advice(world)
    world.successor(2)
    saves(world, 6)
    world.run(2 * LOOK_EVERY_S, step_s=0.5)
    assert first is not None
    assert (advice(world), written(world)) == (first, 1)
    world.erase(world.keys.advice("job-1"))
    world.run(LOOK_EVERY_S + 5, step_s=0.5)
    again = advice(world)
    assert again is not None, "a store that lost it is given another"
    assert again.interval_s == pytest.approx(first.interval_s, rel=0.05)


def test_no_tick_waits_for_what_many_failures_say() -> None:
    world = training()
    for number, one in enumerate(every(2.0, 3 * AT_ONCE)):
        failure = msgspec.structs.replace(one, id=f"i0000-{number:04d}", closed_at=one.closed_at - 400 * HOUR)
        world.put(world.keys.ledger_entry(failure.closed_at, failure.id), failure)
    saves(world, 5)
    ticks = 0
    while advice(world) is None and ticks < 50:
        ticks += 1
        world.tick()
    found = advice(world)
    assert found is not None
    assert found.failures == 3 * AT_ONCE
    assert ticks >= 3 + 1, "a part at each tick, and then the word"


def test_failures_make_it_shorter_and_nothing_is_said_while_the_run_is_down() -> None:
    world = training()
    saves(world, 5)
    world.run(LOOK_EVERY_S + 5, step_s=0.5)
    first = advice(world)
    for round_ in (2, 3, 4):
        procs = [proc for proc in world.procs if proc.alive]
        world.ends(procs[3], signal=9, held=True)
        world.run(3)
        for proc in procs[:3]:
            world.ends(proc, signal=15, order_id="x")
        world.run(LOOK_EVERY_S + 5 if round_ == 2 else 2, step_s=0.5)
        if round_ == 2:
            assert advice(world) == first
        world.meets(NODES, round_, first_step=80 * round_)
        world.run(40)
    world.run(LOOK_EVERY_S + 5, step_s=0.5)
    last = advice(world)
    assert first is not None
    assert last is not None
    assert last.failures == 3
    assert last.interval_s < 0.7 * first.interval_s


class Broken(dict[str, r.RunAdvice]):
    """As a bug of ours would leave it."""

    def get(self, *_: object) -> Any:
        raise ZeroDivisionError("a bug")


def test_a_bug_in_the_advice_costs_the_advice_alone() -> None:
    world = training()
    saves(world, 5)
    world.run(1)
    world.engine.folder.advice = Broken()
    world.run(LOOK_EVERY_S + 5, step_s=0.5)
    world.ends(world.procs[3], signal=9, held=True)
    world.run(3)
    assert len(world.incidents()) == 1, "the run is judged all the same"
    assert sum("a bug in rankpulse" in line for line in world.said) == 1


@pytest.mark.parametrize("interval_s", [0.0, -5.0, 1e308, 1e-300])
def test_an_advice_that_no_leader_would_give_is_replaced(interval_s: float) -> None:
    world = training()
    saves(world, 5)
    numbers = dict.fromkeys(("low_s", "high_s", "mtbf_s", "mtbf_low_s", "mtbf_high_s", "recover_s", "lost_share"), 1.0)
    odd = r.RunAdvice(run_uid="job-1", at=0, interval_s=interval_s, save_s=1, saves=1, failures=0, why="", **numbers)
    world.put(world.keys.advice("job-1"), odd)
    world.run(LOOK_EVERY_S + 5, step_s=0.5)
    found = advice(world)
    assert found is not None
    assert 1 < found.interval_s < 1e5


def test_what_is_known_of_an_ended_run_goes_with_its_history() -> None:
    world = training()
    saves(world, 5)
    world.run(LOOK_EVERY_S + 5, step_s=0.5)
    run = world.engine.folder.fleet.runs["job-1"]
    world.engine.folder.drop_run(run)
    world.tick()
    assert advice(world) is None
