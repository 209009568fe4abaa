"""The clocks of phases: what is learned of them, what is forgotten, and what outlives a monitor."""

import math
from itertools import pairwise
from random import Random

import pytest
from core_world import World
from hypothesis import given
from hypothesis import strategies as st

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.core.pace import BLOCK, PAST, Pace
from rankpulse.core.phases import (
    AT_WORK,
    AT_WORK_PRIOR_S,
    HEALED_LOOKS,
    PHASES_KEPT,
    START,
    START_FLOOR_S,
    STAYS,
    PhaseClocks,
    clock_of,
)
from rankpulse.core.recent import MARKS, Recent
from rankpulse.core.settings import DetectSettings

D = DetectSettings()
NODES = {"node-a": 2, "node-b": 2}


def clocks(step_s: float = 2.0, steps: int = 100) -> PhaseClocks:
    made = PhaseClocks(D)
    for step in range(steps):
        made.stepped(1, step_s, 1, step, 1)
    return made


def stays(made: PhaseClocks, phase: str, *seconds: float, at: float = 1000.0) -> PhaseClocks:
    for elapsed_s in seconds:
        at += elapsed_s + 100.0
        made.stayed(phase, elapsed_s, at)
    return made


def test_a_step_counts_once_however_many_nodes_show_it() -> None:
    made = PhaseClocks(D)
    for step in range(10):
        for _node in range(16):
            made.stepped(1, 2.0, 8, step, 1)
    assert made.seen("train") == 10


def test_another_round_and_a_step_back_begin_anew() -> None:
    made = clocks(steps=50)
    made.stepped(1, 2.0, 1, 7, 1)
    assert made.seen("train") == 50
    made.stepped(-42, 0.0, 1, 7, 1)  # the job went back to an earlier step in its round
    made.stepped(1, 2.0, 1, 8, 1)
    made.stepped(1, 2.0, 1, 1, 2)
    assert made.seen("train") == 52


def test_ranks_that_leave_together_are_one_stay_and_the_slowest_is_what_it_took() -> None:
    made = PhaseClocks(D)
    for rank in range(16):
        made.stayed("evaluate", 60.0 + rank / 4, 1000.0 + rank / 4)
    assert made.seen("evaluate") == 1
    made.stayed("evaluate", 61.0, 2000.0)
    made.stayed("evaluate", 62.0, 3000.0)
    assert made.seen("evaluate") == 3
    assert made.deadline_s("evaluate") == pytest.approx(3 * 63.75, abs=3.1)


def test_ranks_that_come_and_go_one_after_the_other_are_many_stays() -> None:
    made = PhaseClocks(D)
    for turn in range(40):
        made.stayed("data", 1.0, 1000.0 + 0.6 * turn)
    assert 10 <= made.seen("data") <= 40
    assert made.deadline_s("data") == D.hang_floor_s


def test_few_stays_are_not_believed_and_long_ones_only_raise_the_prior() -> None:
    made = stays(PhaseClocks(D), "evaluate", 60.0, 62.0)
    assert made.deadline_s("evaluate") == D.hang_prior_s
    assert stays(PhaseClocks(D), "evaluate", 400.0).deadline_s("evaluate") == pytest.approx(1200.0)
    assert stays(made, "evaluate", 61.0, at=5000.0).deadline_s("evaluate") < 190.0


def test_one_slow_checkpoint_does_not_set_the_measure_and_a_second_does() -> None:
    made = stays(PhaseClocks(D), "checkpoint", *[20.0 + n / 10 for n in range(12)])
    usual = made.deadline_s("checkpoint")
    stays(made, "checkpoint", 600.0, 20.0, at=5000.0)
    assert made.deadline_s("checkpoint") <= usual + 0.5
    stays(made, "checkpoint", 600.0, at=9000.0)
    assert made.deadline_s("checkpoint") > 1700.0
    stays(made, "checkpoint", *[20.0] * STAYS, at=20000.0)
    assert made.deadline_s("checkpoint") <= usual, "and that is forgotten again"


def test_the_first_step_has_a_clock_of_its_own_whatever_its_phase_is_called() -> None:
    assert clock_of("init", -1) == clock_of("train", -1) == START
    assert (clock_of("train", 5), clock_of("compile", -1)) == ("train", "compile")
    made = PhaseClocks(D)
    for at in (1000.0, 2000.0, 3000.0):
        made.stayed("train", 100.0, at, -1)
    assert made.seen("train") == 0
    assert made.deadline_s(START) == pytest.approx(300.0, abs=3.1)


def test_what_rests_is_no_stay() -> None:
    made = stays(stays(PhaseClocks(D), "paused", 4000.0, 5000.0, 6000.0), "closed", 10.0)
    assert made.known() == []


def test_unannounced_work_only_ever_raises_its_deadline() -> None:
    made = stays(PhaseClocks(D), AT_WORK, *[5.0] * 30)
    assert made.deadline_s(AT_WORK) == AT_WORK_PRIOR_S
    assert stays(made, AT_WORK, *[100.0] * 10, at=9000.0).deadline_s(AT_WORK) > 290.0


def test_a_healed_stall_is_forgotten_and_never_exceeds_the_prior() -> None:
    made = clocks()
    made.healed("i1", 5000.0)
    assert made.deadline_s("train") == D.hang_prior_s
    for _ in range(HEALED_LOOKS + 1):
        made.stepped(1, 2.0)
    assert made.deadline_s("train") == pytest.approx(8.0)


def test_a_stall_that_was_a_long_stay_elsewhere_says_nothing_of_steps() -> None:
    """An evaluation that was said to hang, and came to its end after all."""
    made = stays(clocks(), "evaluate", *[60.0] * 9)
    made.stayed("evaluate", 250.0, 9000.0)
    made.healed("i1", 245.0, 9001.0)
    assert made.deadline_s("train") == pytest.approx(8.0)
    made.healed("i2", 100.0, 9500.0)
    assert made.deadline_s("train") == pytest.approx(150.0)


def test_names_of_phases_are_bounded() -> None:
    made = PhaseClocks(D)
    for number in range(1000):
        made.stayed(f"p{number}", 1.0, 10.0 * number)
    assert len(made.known()) == PHASES_KEPT
    assert made.deadline_s("p999") == D.hang_prior_s


@given(st.lists(st.floats(0.0, 1e6), max_size=300), st.lists(st.floats(0.0, 1e6), max_size=100))
def test_every_deadline_lies_above_the_floor(steps: list[float], stayed: list[float]) -> None:
    made = PhaseClocks(D)
    for seconds in steps:
        made.stepped(1, seconds)
    for at, seconds in enumerate(stayed):
        made.stayed("evaluate", seconds, float(at))
    for clock in ("train", "evaluate", START, AT_WORK, "never seen"):
        assert D.hang_floor_s <= made.deadline_s(clock) < math.inf


def test_one_that_is_found_in_the_middle_of_its_training_tells_nothing_of_its_start() -> None:
    """A monitor that begins to look at a job that has trained for long."""
    world = World()
    for proc in world.meets(NODES, 1):
        proc.step, proc.first_step = 5000, 1
    world.run(30)
    [run] = world.engine.folder.fleet.runs.values()
    assert run.clocks.known() == ["train"]
    world.successor(2)
    world.run(5)
    [run] = world.engine.folder.fleet.runs.values()
    assert run.clocks.seen(START) == 0


def test_starts_that_were_quick_promise_nothing_of_one_from_a_cold_cache() -> None:
    made = PhaseClocks(D)
    for at in (1000.0, 2000.0, 3000.0, 4000.0):
        made.stayed("init", 3.0, at, -1)
    assert made.deadline_s(START) == START_FLOOR_S


# --- what outlives a monitor


def test_what_was_learned_is_the_same_for_the_next_monitor() -> None:
    rng = Random(1)
    before = PhaseClocks(D)
    for step in range(3000):
        before.stepped(1, rng.lognormvariate(0.7, 0.2), 1, step, 1)
    stays(before, "evaluate", *[rng.uniform(60, 70) for _ in range(100)])
    before.healed("i1", 30.0)
    after = PhaseClocks(D)
    after.take(before.record("job", 0.0))
    for clock in ("train", "evaluate", "checkpoint"):
        assert after.deadline_s(clock) == pytest.approx(before.deadline_s(clock), rel=0.02)
        assert after.seen(clock) == before.seen(clock)
    assert after.pace.usual_s() == pytest.approx(after.typical_step_s())


def test_what_a_monitor_knows_itself_is_not_overwritten_by_what_is_no_more() -> None:
    mine, other = clocks(3.0, 100), clocks(9.0, 150)
    mine.take(other.record("job", 0.0))
    assert mine.typical_step_s() == 3.0
    far_more = clocks(9.0, 5000)
    mine.take(far_more.record("job", 0.0))
    assert mine.typical_step_s() == 9.0
    assert mine.seen("train") == 5000


@given(
    st.lists(
        st.tuples(st.text(max_size=20), st.integers(-5, 10**9), st.lists(st.floats(), max_size=5).map(tuple)),
        max_size=40,
    ),
    st.lists(st.floats(), max_size=10).map(tuple),
)
def test_taking_what_the_store_says_is_total(rows: list[tuple], healed: tuple[float, ...]) -> None:
    made = PhaseClocks(D)
    made.take(r.RunLearned(run_uid="x", at=0.0, phases=tuple(r.PhaseRow(*row) for row in rows), healed_s=healed))
    for name in ("train", *(row[0] for row in rows)):
        assert made.deadline_s(name) >= D.hang_floor_s
    made.record("x", 0.0)


@given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=600), st.floats(0.01, 1.0))
def test_a_quantile_is_that_of_the_newest(seconds: list[float], share: float) -> None:
    recent = Recent(400)
    for one in seconds:
        recent.add(one)
    kept = sorted(seconds[-400:])
    found = recent.quantile(share)
    assert sum(one <= found for one in kept) >= share * len(kept) - 1e-6
    assert len(recent.marks()) == min(len(kept), MARKS)
    assert recent.count == len(seconds)


def learned(world: World) -> list[r.RunLearned]:
    return [
        codec.decode(r.RunLearned, data) for key, (data, _) in sorted(world.store.items()) if key.endswith("/learned")
    ]


def deadline(world: World) -> float:
    return float(world.engine.snapshot(world.now)["runs"]["job-1"]["phase_deadline_s"])


def test_it_is_written_once_a_minute_and_when_a_round_is_left_and_a_successor_takes_it() -> None:
    world = World()
    began = world.now
    procs = world.meets(NODES, 1)
    world.run(40)
    [early] = learned(world)
    world.run(10)
    assert learned(world) == [early], "once a minute after that"
    while (found := learned(world)) == [early]:
        world.run(1)
        assert world.now < began + 120
    [first] = found
    assert first.phases[0].count > early.phases[0].count
    assert (first.run_uid, [row.phase for row in first.phases]) == ("job-1", ["train"])
    world.run(30)
    assert learned(world) == [first], "not more often"
    world.ends(procs[0], signal=9)
    for proc in procs[1:]:
        world.ends(proc, signal=15)
    world.meets(NODES, 2)
    world.run(3)
    [second] = learned(world)
    assert second.phases[0].count > first.phases[0].count
    known = deadline(world)
    world.successor(2)
    world.run(0.2)
    assert deadline(world) == pytest.approx(known, rel=0.1)
    assert known < world.settings.detect.hang_prior_s


def test_a_pace_is_written_as_soon_as_it_is_believed() -> None:
    """A monitor that dies a moment later leaves it to one that sees nothing but a job that hangs."""
    world = World()
    began = world.now
    procs = world.meets(NODES, 1)
    while learned(world) == []:
        world.run(0.5)
        assert world.now < began + 50
    procs[0].state, world.training = "T", False
    world.run(1)
    world.successor(2)
    world.run(30)
    assert [incident.klass for incident in world.incidents()] == ["collective_hang"]


def test_it_goes_with_its_run() -> None:
    world = World()
    world.meets(NODES, 1)
    world.run(70)
    [run] = world.engine.folder.fleet.runs.values()
    world.engine.folder.drop_run(run)
    world.procs.clear()
    world.run(1)
    assert learned(world) == []


# --- the pace of a run


def test_a_run_that_is_slower_than_it_was_says_by_how_much() -> None:
    pace = Pace()
    for _ in range(10 * BLOCK):
        pace.add(2.0)
    assert pace.slowdown() == 1.0
    for _ in range(BLOCK):
        pace.add(4.0)
    assert pace.slowdown() == 1.0, "one block is weather"
    for _ in range(BLOCK):
        pace.add(4.0)
    assert pace.slowdown() == 2.0
    for _ in range(PAST * BLOCK):
        pace.add(4.0)
    assert pace.slowdown() == 1.0, "what lasts is the usual"


def test_nothing_is_said_of_a_pace_without_a_past() -> None:
    pace = Pace()
    for _ in range(3 * BLOCK):
        pace.add(1.0)
    assert pace.slowdown() is None
    pace.forget()
    assert pace.usual_s() is None


# --- steps as real jobs make them: neither alike over the ranks, nor over time


def real_like(seed: int, steps: int = 2000) -> list[list[float]]:
    """Seconds per step of ten workers, by worker. Half of them need much longer than the others, neighbouring steps are
    alike, and in the second half two of them become four times slower for a fifth of the time: 7 times the median."""
    rng, workers = Random(seed), []
    for worker in range(10):
        usual, noise, made = (3.4 if worker < 5 else 0.9), 0.0, []
        for step in range(steps):
            noise = 0.9 * noise + rng.gauss(0.0, 0.05)
            slow = worker in (1, 3) and 0.6 * steps < step < 0.8 * steps
            ramp = min((step - 0.6 * steps) / 30, 1.0) if slow else 0.0
            made.append(usual * (1 + 3.3 * ramp) * (1 + max(noise, -0.6)) * (1.5 if rng.random() < 0.002 else 1.0))
        workers.append(made)
    return workers


@pytest.mark.parametrize("seed", range(5))
def test_a_regime_that_comes_later_fools_a_tail_that_was_fitted_before_and_not_the_clock(seed: int) -> None:
    """As a synchronous job: every step takes as long as its slowest worker. What is late is learned as it comes."""
    steps = [max(one) for one in zip(*real_like(seed), strict=True)]
    half = len(steps) // 2
    made = PhaseClocks(D)
    fitted, exceeded, over_fitted = math.inf, 0, 0
    for number, seconds in enumerate(steps):
        if number == half:
            fitted = made.deadline_s("train")
        exceeded += number >= 20 and seconds > made.deadline_s("train")
        over_fitted += seconds > fitted
        made.stepped(1, seconds, 1, number, 1)
    assert exceeded == 0
    assert over_fitted > 100, "which is why nothing is extrapolated from a past half"
    assert made.deadline_s("train") < 60.0, "and what was slow for a while is forgotten again"


@pytest.mark.parametrize("seed", range(5))
def test_ranks_that_wait_for_nobody_never_stand_still_together(seed: int) -> None:
    """Alone, a worker exceeds the deadline hundreds of times; a standstill is that none moves."""
    workers, made = real_like(seed), PhaseClocks(D)
    half = len(workers[0]) // 2
    for number in range(half):
        for worker in workers:
            made.stepped(1, worker[number])
    deadline_s, ends = made.deadline_s("train"), []
    assert sum(seconds > deadline_s for worker in workers for seconds in worker[half:]) > 100
    last = min(sum(worker) for worker in workers)
    for worker in workers:
        at = 0.0
        for seconds in worker:
            at += seconds
            ends.append(at)
    moves = sorted(at for at in ends if at <= last)
    assert max(later - at for at, later in pairwise(moves)) < deadline_s / 3
