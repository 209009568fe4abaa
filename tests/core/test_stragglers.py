"""Who is slower than its peers: told where it can be told, with what speaks for it, and nobody else is."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from core_world import Proc
from phase_world import PATIENT_SIGHT, Light

from rankpulse.core import events as ev
from rankpulse.core.settings import parse

NODES = {"node-a": 4, "node-b": 4, "node-c": 4, "node-d": 4}


@dataclass
class Lockstep:
    """A synchronous job: each rank reads data, works, then waits for the slowest. Shares of a step, by rank.

    `jitter`: spread of the time of a step. Nodes are looked at once a second, each at a time of its own.
    """

    step_s: float = 0.73
    data: dict[int, float] = field(default_factory=dict)
    work: dict[int, float] = field(default_factory=dict)
    usual: tuple[float, float] = (0.05, 0.5)
    late: dict[int, float] = field(default_factory=dict)  # share of a step for which a rank shows the one before
    ahead: dict[int, int] = field(default_factory=dict)  # its host runs so many steps ahead
    pace: dict[int, float] = field(default_factory=dict)  # ranks that wait for nobody: steps per usual one
    jitter: float = 0.02
    nodes: dict[str, int] = field(default_factory=lambda: dict(NODES))
    world: Light = field(default_factory=lambda: Light(PATIENT_SIGHT))
    rng: Random = field(default_factory=lambda: Random(1))
    number: float = 0.0  # of the present step, with how much of it is over

    def __post_init__(self) -> None:
        self.world.meets(self.nodes, 1)

    def run(self, seconds: float) -> "Lockstep":
        world, names = self.world, list(self.nodes)
        for _ in range(round(seconds)):
            for at, node in enumerate(names):
                self._pass(1.0 / len(names))
                for proc in world.procs:
                    if proc.node == node:
                        self._show(proc)
                world.beat(node)
                if not at:
                    world.engine.step(ev.CanarySeen(world.now))
            world.tick()
        return self

    def _pass(self, seconds: float) -> None:
        self.world.now += seconds
        self.number += seconds / self.step_s * self.rng.uniform(1 - self.jitter, 1 + self.jitter)

    def _show(self, proc: Proc) -> None:
        rank, step, within = proc.rank, int(self.number), self.number % 1
        data, work = self.data.get(rank, self.usual[0]), self.work.get(rank, self.usual[1])
        proc.phase = "data" if within < data else "train"
        proc.state = "R" if data <= within < data + work else "S"
        proc.step = step - (within < self.late.get(rank, 0.0)) + self.ahead.get(rank, 0) + 10
        if rank in self.pace:
            proc.step = 10 + int(self.number * self.pace[rank])
        proc.first_step = 10

    def told(self) -> list[dict[str, Any]]:
        shown = self.world.engine.snapshot(self.world.now)["runs"]["job-1"]["stragglers"]
        assert isinstance(shown, list)
        return shown

    def said(self) -> list[str]:
        return [line for line in self.world.said if "slower than its peers" in line]


def test_a_balanced_job_has_none() -> None:
    assert Lockstep().run(600).told() == []


def test_one_that_reads_data_while_the_others_wait_is_named_with_how_much() -> None:
    job = Lockstep(data={6: 0.5}).run(300)
    [one] = job.told()
    assert (one["rank"], one["node"]) == (6, "node-b")
    assert 1.5 < one["ratio"] < 2.3, "it holds the job up for 45 % of the time"
    assert "in phase data" in one["why"]
    assert one["for_s"] > 60
    assert len(job.said()) == 1, "once"
    assert job.world.incidents() == []
    assert job.world.orders() == [], "nothing is done about it"


def test_one_that_never_waits_while_the_others_do_is_named() -> None:
    [one] = Lockstep(work={3: 0.95}, usual=(0.0, 0.4)).run(300).told()
    assert (one["rank"], one["node"]) == (3, "node-a")
    assert 1.8 < one["ratio"] < 4
    assert "at work" in one["why"]


def test_one_that_ends_its_steps_after_the_others_of_its_node_is_named() -> None:
    [one] = Lockstep(late={9: 0.4}).run(300).told()
    assert one["rank"] == 9
    assert 1.3 < one["ratio"] < 2.2
    assert "behind" in one["why"]


def test_equal_ranks_that_are_often_a_step_apart_by_chance_are_no_stragglers() -> None:
    keen = parse({"detect": {"observer_gap_s": 5.0, "straggler_factor": 1.13}})
    job = Lockstep(nodes={"node-a": 8, "node-b": 8}, usual=(0.0, 0.5), world=Light(keen))
    chance = job.rng.random

    def show(proc: Proc) -> None:
        Lockstep._show(job, proc)
        proc.step -= chance() < 0.3

    job._show = show  # type: ignore[method-assign]
    job.run(4000)
    assert job.said() == []


def test_a_rank_that_sleeps_while_its_peers_sleep_too_cannot_be_told_until_it_says_so() -> None:
    asleep = {"usual": (0.0, 0.1), "work": {6: 0.1}}
    assert Lockstep(**asleep).run(300).told() == []  # type: ignore[arg-type]
    assert [one["rank"] for one in Lockstep(**asleep, data={6: 0.5}).run(300).told()] == [6]  # type: ignore[arg-type]


def test_a_host_that_runs_less_far_ahead_is_not_slow() -> None:
    assert Lockstep(ahead={rank: rank % 4 for rank in range(16)}).run(300).told() == []


def test_half_the_job_differing_is_how_it_is_built() -> None:
    """Stages of a pipeline: half of the ranks work twice as long as the others."""
    assert Lockstep(work=dict.fromkeys(range(8), 0.9), usual=(0.0, 0.4)).run(300).told() == []


@pytest.mark.parametrize("step_s", [1.0, 0.5, 0.25])
@pytest.mark.parametrize("usual", [(0.3, 0.3), (0.1, 0.2)])
def test_looks_that_keep_time_with_the_steps_slander_no_node(step_s: float, usual: tuple[float, float]) -> None:
    """Each node is always looked at in the same place of its step: on some it is always data, on some never."""
    assert Lockstep(step_s=step_s, usual=usual, jitter=0.0).run(600).told() == []


def test_within_a_node_it_is_named_even_then() -> None:
    found = [Lockstep(step_s=1.0, data={rank: 0.9}, usual=(0.0, 0.1), jitter=0.0).run(300).told() for rank in (4, 9)]
    assert [[one["rank"] for one in told] for told in found] in ([[4], [9]], [[4], []], [[], [9]])
    assert found != [[], []]


def test_ranks_that_wait_for_nobody_are_measured_by_their_pace() -> None:
    job = Lockstep(pace={rank: 1.0 + rank / 1000 for rank in range(16)} | {5: 0.6}).run(400)
    [one] = job.told()
    assert one["rank"] == 5
    assert one["ratio"] == pytest.approx(1 / 0.6, abs=0.15)
    assert "steps where its peers made" in one["why"]


def test_workers_that_become_slow_later_are_stragglers_and_nothing_hangs() -> None:
    """Two of ten, for hours four times slower than before: what real jobs show, whose ranks run on their own."""
    job = Lockstep(pace={rank: 1.0 + rank / 100 for rank in range(10)}, nodes={"node-a": 5, "node-b": 5}).run(200)
    assert job.told() == []
    job.pace.update({5: 1 / 4.3, 7: 1 / 4.3})
    job.number = 0.0  # counted from here on
    job.run(600)
    assert {one["rank"] for one in job.told()} == {5, 7}
    assert all(3 < one["ratio"] < 6 for one in job.told())
    assert job.world.incidents() == []
    assert not [key for key in job.world.store if "/orders/" in key]


def test_it_is_told_when_it_is_over() -> None:
    job = Lockstep(data={6: 0.5}).run(300)
    job.data.clear()
    job.run(300)
    assert job.told() == []
    assert "no longer slower" in job.said()[-1]
    assert len(job.said()) == 2


def test_one_on_the_border_is_not_told_of_again_and_again() -> None:
    job = Lockstep(data={6: 0.30})
    for turn in range(24):
        job.data[6] = 0.30 if turn % 2 else 0.24
        job.run(60)
    assert len(job.said()) <= 5


def test_evaluations_do_not_make_stragglers() -> None:
    """Ranks leave an evaluation one after the other; most of them being in it says nothing of who waits."""
    job = Lockstep()
    for _ in range(6):
        job.run(60)
        for proc in job.world.procs:
            proc.phase = "evaluate"
        for _ in range(30):
            job.world.now += 1.0
            for node in job.nodes:
                job.world.beat(node)
            job.world.engine.step(ev.CanarySeen(job.world.now))
            job.world.tick()
    assert job.told() == []


def test_a_job_that_is_slow_as_a_whole_is_told_by_its_own_past() -> None:
    job = Lockstep(step_s=1.3).run(600)
    job.step_s = 2.6
    job.run(600)
    pace = job.world.engine.snapshot(job.world.now)["runs"]["job-1"]["pace"]
    assert pace["slowdown"] == pytest.approx(2.0, abs=0.25)
    assert pace["slower"] is True
    assert job.told() == []


def test_of_a_job_of_one_rank_nothing_is_said() -> None:
    assert Lockstep(nodes={"node-a": 1}).run(200).told() == []
