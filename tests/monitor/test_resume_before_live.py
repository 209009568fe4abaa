"""A real job whose loss went astray: a person has it go on from before that, and every part does its share."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from support import eventually

from rankpulse.cli import operate
from rankpulse.core import records as r
from rankpulse.core.settings import StoreSettings
from rankpulse.drills.job import Job
from rankpulse.drills.stage import Stage

pytestmark = [pytest.mark.live, pytest.mark.timeout(180)]


def told(stage: Stage) -> r.CheckpointState | None:
    return next(iter(stage.witness.all(r.CheckpointState)), None)


def closed(stage: Stage) -> r.Incident | None:
    return next((incident for incident in stage.witness.all(r.Incident) if incident.state == "closed"), None)


async def test_a_run_goes_on_from_before_a_step_that_a_person_names(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        nodes = dict(list(stage.run_dirs.items())[:1])
        job = Job(tmp_path / "job", nodes, workers=1, backend="rankpulse", hold=True, save_every=5).start()
        try:
            await eventually(lambda: (told(stage) or r.CheckpointState(run_uid="")).step >= 15, 60, "three checkpoints")
            # its news is sooner there than the beat that shows the step, and lost steps are told by beats
            await eventually(lambda: min(stage.witness.steps(job.name).values(), default=-1) >= 15, 60, "its step")
            store = StoreSettings(endpoints=(stage.etcd.endpoint,))
            settings = msgspec.structs.replace(stage.settings, cluster=stage.keys.cluster, store=store)
            answer = await operate.restart(settings, "demo", "the loss went astray", resume_before_step=10)
            incident = await eventually(lambda: closed(stage), 60, f"the end of the incident\n{job.tail()}")
            state = told(stage)
        finally:
            await asyncio.to_thread(job.end)
    assert "of step 10 and beyond are set aside" in answer
    assert (incident.outcome, incident.resumed_from_step, incident.resume_before_step) == ("recovered", 5, 10)
    assert incident.lost_steps >= 10
    story = "\n".join(line.text for line in incident.trail)
    assert "did not take the checkpoint of step 10: set aside" in story
    assert "round 2 resumed from the checkpoint of step 5" in story
    assert state is not None
    assert (state.loaded_round, state.resume_before_step, state.resume_before_round) == (2, -1, 1)
    kept = {int(path.name.split("-")[2]) for path in (tmp_path / "job" / "checkpoints").glob("aside-step-*")}
    assert {10, 15} <= kept, "they are kept, for people"
