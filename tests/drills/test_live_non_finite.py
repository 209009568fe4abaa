"""A real job whose loss becomes NaN: left alone by default, sent back with consent, stopped when it is the data's."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from support import eventually

from rankpulse.cli import modes
from rankpulse.core import records as r
from rankpulse.core.settings import Settings, StoreSettings
from rankpulse.drills.job import Job
from rankpulse.drills.stage import NO_STRIKES, Stage

pytestmark = [pytest.mark.live, pytest.mark.timeout(240)]
NAN_AT, SAVE_EVERY = 25, 20


def job_of(stage: Stage, directory: Path, *more: str) -> Job:
    nodes = dict(list(stage.run_dirs.items())[:1])
    train = ("--nan-at", str(NAN_AT), "--step-s", "0.2", *more)
    return Job(directory, nodes, workers=2, backend="rankpulse", hold=True, save_every=SAVE_EVERY, train_args=train)


def settings_of(stage: Stage) -> Settings:
    store = StoreSettings(endpoints=(stage.etcd.endpoint,))
    return msgspec.structs.replace(stage.settings, cluster=stage.keys.cluster, store=store)


def incidents(stage: Stage) -> list[r.Incident]:
    return sorted((i for i in stage.witness.all(r.Incident) if i.klass == "non_finite"), key=lambda i: i.round)


def one(stage: Stage, round_: int, **wanted: object) -> r.Incident | None:
    mine = (i for i in incidents(stage) if i.round == round_)
    return next((i for i in mine if all(getattr(i, name) == value for name, value in wanted.items())), None)


def ordered(stage: Stage) -> r.Order | None:
    return next((order for order in stage.witness.all(r.Order) if order.kind == "restart"), None)


async def test_it_is_told_by_default_and_undone_once_that_is_allowed(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        settings = settings_of(stage)
        await modes.arm(settings, armed=True, reason="test")
        job = job_of(stage, tmp_path / "job", "--nan-rounds", "1").start()
        try:
            told = await eventually(lambda: one(stage, 1), 90, f"the incident\n{job.tail()}")
            trained = job.last_step()
            await eventually(lambda: job.last_step() >= trained + 5, 60, f"a job that is left alone\n{job.tail()}")
            assert (one(stage, 1, action="none"), stage.witness.all(r.Order)) == (incidents(stage)[0], [])
            answer = await modes.arm_run(
                settings, job.name, armed=True, reason="it may", consent=modes.Consent(on_non_finite=True)
            )
            order = await eventually(lambda: ordered(stage), 60, f"the order\n{job.tail()}")
            closed = await eventually(lambda: one(stage, 1, state="closed"), 90, f"its end\n{job.tail()}")
            await eventually(lambda: job.last_step() > NAN_AT + 3, 60, f"steps beyond the bad one\n{job.tail()}")
        finally:
            await asyncio.to_thread(job.end)
    assert told.summary.startswith(f"loss nan since step {NAN_AT}")
    assert "because of numbers that are not finite" in answer
    assert [member.rank for member in closed.culprits] == [0], "its loss was NaN one step before all others"
    assert (closed.outcome, closed.resume_before_step, closed.resumed_from_step) == ("recovered", NAN_AT, SAVE_EVERY)
    assert (order.round, order.resume_before_step) == (1, NAN_AT)
    assert [event["step"] for event in job.events("resumed") if event["rank"] == 0] == [0, SAVE_EVERY]
    assert len(incidents(stage)) == 1


@pytest.mark.drill  # tests/core/test_non_finite_stories.py has the same with a simulated job
async def test_the_same_step_again_is_the_datas_fault_and_ends_the_job(tmp_path: Path) -> None:
    async with Stage(tmp_path, monitor=f"{NO_STRIKES}restart_on_non_finite = true\n") as stage:
        await modes.arm(settings_of(stage), armed=True, reason="test")
        job = job_of(stage, tmp_path / "job").start()
        try:
            again = await eventually(lambda: one(stage, 2, action="stop"), 120, f"the second time\n{job.tail()}")
            await eventually(lambda: not job.alive(), 90, f"the end of the job\n{job.tail()}")
            ended = await eventually(lambda: one(stage, 2, state="closed"), 60, "the end of its incident")
        finally:
            await asyncio.to_thread(job.end)
    assert f"step {NAN_AT} is not finite again (as in round 1)" in again.action_reason
    assert (incidents(stage)[0].action, incidents(stage)[0].outcome) == ("restart", "recovered")
    assert (ended.outcome, len(incidents(stage))) == ("run_ended", 2)
    assert [event["step"] for event in job.events("nan")] == [NAN_AT, NAN_AT], "and there was no third round"
