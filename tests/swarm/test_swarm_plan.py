"""What is asked of a swarm, and the model of its jobs."""

from random import Random

import pytest

from rankpulse.core import records as r
from rankpulse.drills.swarm import gauges, plan
from rankpulse.drills.swarm.plan import BadPlan, Options
from rankpulse.drills.swarm.training import INIT_S, Training


def test_nodes_are_shared_among_runs_once_and_as_even_as_can_be() -> None:
    runs = plan.shared(Options(nodes=10, runs=3))
    assert sorted(map(len, runs)) == [3, 3, 4]
    assert [name for run in runs for name in run] == plan.names(Options(nodes=10))


def test_deaths_come_by_lot_when_they_can_still_be_found() -> None:
    options = Options(nodes=64, for_s=200.0, kill=9)
    times = [one.at for one in plan.deaths(options, Random(3))]
    assert len(times) == 9
    assert options.warm_s <= min(times)
    assert max(times) <= 200.0 - options.seen_s


@pytest.mark.parametrize(
    ("options", "about"),
    [
        (Options(nodes=0), "--nodes"),
        (Options(nodes=4, runs=5), "--runs"),
        (Options(nodes=4, runs=1, kill=3), "--kill"),
        (Options(nodes=64, for_s=20.0), "--for"),
    ],
)
def test_what_cannot_be_done_is_said(options: Options, about: str) -> None:
    with pytest.raises(BadPlan, match=about):
        options.check()


@pytest.mark.parametrize("data", [b"{}", b'[{"at": 1, "kind": "rain"}]', b'[{"at": 1, "kind": "slow", "x": 1}]', b"["])
def test_injections_that_nobody_knows_are_refused(data: bytes) -> None:
    with pytest.raises(BadPlan, match="--inject"):
        plan.read(data)


def test_ranks_go_together_and_stand_together() -> None:
    run = Training("job", ["a", "b"], 2, step_s=1.0)
    run.convene(0.0, ["a", "b"])
    assert {one.pulse.step for one in run.readings("a", INIT_S)} == {-1}
    run_at = INIT_S + 10.5
    assert {one.pulse.step for n in "ab" for one in run.readings(n, run_at)} == {10}
    assert [one.rank for n in "ab" for one in run.readings(n, run_at)] == [0, 1, 2, 3]
    run.stand(run_at)
    assert run.step(run_at + 100.0) == 10
    run.go_on(run_at + 100.0)
    assert run.step(run_at + 103.5) == 13


def test_one_that_hangs_is_a_step_behind_those_that_wait_for_it() -> None:
    run = Training("job", ["a", "b"], 2, step_s=1.0)
    run.convene(0.0, ["a", "b"])
    run.hang(INIT_S + 5.0, "b", 1)
    steps = {(n, one.local_rank): one.pulse.step for n in "ab" for one in run.readings(n, INIT_S + 60.0)}
    assert steps.pop(("b", 1)) == 5
    assert set(steps.values()) == {6}


def test_a_slow_job_loses_no_step() -> None:
    run = Training("job", ["a"], 1, step_s=1.0)
    run.convene(0.0, ["a"])
    run.pace(INIT_S + 10.0, 2.0)
    assert run.step(INIT_S + 14.1) == 12
    run.pace(INIT_S + 14.1, 0.5)
    assert run.step(INIT_S + 17.2) == 15


def test_the_next_round_is_of_who_is_left_and_of_other_processes() -> None:
    run = Training("job", ["a", "b", "c"], 2, step_s=1.0)
    run.convene(0.0, ["a", "b", "c"])
    before = {one.pid for one in run.readings("c", 30.0)}
    exits = list(run.gave_up("c", 30.0))
    assert {fact.kind for fact in exits} == {r.WORKER_EXITED}
    run.end("c")
    assert run.readings("c", 30.0) == []
    run.convene(40.0, ["a", "c"])
    after = run.readings("c", 60.0)
    assert [one.rank for one in after] == [2, 3]
    assert after[0].run.world_size == 4
    assert after[0].run.launcher == exits[0].run.launcher  # type: ignore[union-attr]
    assert not before & {one.pid for one in after}
    assert after[0].pulse.step > 23


METRICS = """\
x_bucket{le="0.1"} 10
x_bucket{le="0.5"} 30
x_bucket{le="+Inf"} 31
y_total{kind="beat"} 12.0
"""


def test_a_quantile_is_of_what_came_between_two_readings() -> None:
    before, after = gauges.buckets(METRICS, "x"), {0.1: 20.0, 0.5: 139.0, float("inf"): 141.0}
    assert gauges.quantile(after, before, 0.5) == 0.5
    assert gauges.quantile(after, before, 0.999) == float("inf")
    assert gauges.quantile(after, after, 0.5) is None
    assert gauges.value(METRICS, "y_total", '{kind="beat"}') == 12.0
    assert gauges.value(METRICS, "z") is None
