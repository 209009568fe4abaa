"""Days of mixed phases under the real engine: no hang is seen where none is, and one that is there is seen in time."""

from random import Random

import pytest
from phase_world import Job, day

EVIDENCE_S = 2.5  # how long agents may take to answer
BEATS_S = 2.5  # a step is shown up to one beat late, and so is what follows from it


def lived(seed: int, days: int, **how: float) -> Job:
    """A job after so many days, in which workers died, one checkpoint took five times as long, and nothing hung."""
    job = Job(Random(seed), idle_tick_s=how.pop("idle_tick_s", 2.9))
    job.start(200.0)
    job.train(30)
    for number in range(days):
        day(job, **{"steps": 2, **how})
        if number % 4 == 1:
            job.dies()
            job.start(job.rng.uniform(100, 300))
        if number == days // 2:
            job.phase("checkpoint", 110.0)
            job.train(2)
    return job


def test_nobody_is_said_to_hang_in_twenty_days_of_mixed_phases() -> None:
    job = lived(1, 20)
    assert [(i.klass, i.summary, i.reasons) for i in job.told()] == []
    assert job.suspicions > 20, "stalls and recompilations were looked at, and cleared by what was seen"
    assert {i.klass for i in job.world.incidents()} == {"worker_dead"}
    assert len(job.lasted["evaluate"]) == 240
    assert len(job.lasted["checkpoint"]) == 961


@pytest.mark.drill
@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_said_to_hang_in_twenty_days_with_longer_training_and_every_tick(seed: int) -> None:
    job = lived(seed, 20, steps=30, idle_tick_s=0.9)
    assert [(i.klass, i.summary, i.reasons) for i in job.told()] == []


def in_time_s(usual_s: float) -> float:
    """How long a hang may go unnoticed in a phase that usually takes at most so long."""
    return max(4.0, 3.0 * usual_s) + EVIDENCE_S + BEATS_S


def test_a_hang_is_seen_in_time_in_whatever_phase_it_comes() -> None:
    job = lived(2, 2)
    usual = {"train": 2.2, "evaluate": max(job.lasted["evaluate"]), "checkpoint": 26.0}
    for phase, after_s in (
        ("train", 0.3), ("evaluate", 30.0), ("train", 1.9), ("checkpoint", 5.0), ("evaluate", 1.0), ("train", 1.0),
    ):  # fmt: skip
        took_s = after_s + job.hangs(job.rng.randrange(4), phase, after_s)
        assert took_s <= in_time_s(usual[phase]), phase
        [incident] = job.convictions()
        assert [m.rank for m in incident.culprits] == [job.hung.rank], phase
        job.ended_by_order()
        job.start(job.rng.uniform(100, 300))
        job.train(10)
        day(job, steps=2, evaluations=3, saves=6, stalls=4)
    hangs = [i for i in job.told() if i.outcome == "recovered"]
    assert len(hangs) == 6


def test_a_hang_before_the_first_step_is_seen_by_the_starts_before_it() -> None:
    job = lived(3, 1)
    for _ in range(3):
        job.dies()
        job.start(job.rng.uniform(100, 140))
        job.train(5)
    job.dies()
    job.round += 1
    job.world.procs = []
    for proc in job.world.meets(job.nodes, job.round):
        proc.step = proc.first_step = -1
        proc.phase = "init"
    took_s = job.hangs(1, "init", 5.0)
    assert took_s <= in_time_s(max(job.lasted["until the first step"]))
    assert [m.rank for i in job.convictions() for m in i.culprits] == [1]
