"""A real job of three replicas, and one bit of a parameter of one of them that flips."""

import asyncio
from pathlib import Path

import pytest
from support import eventually

from rankpulse.core import records as r
from rankpulse.drills.job import Job
from rankpulse.drills.stage import Stage

FLIP_AT, EVERY, ODD = 24, 10, 1


@pytest.mark.live
@pytest.mark.timeout(400)
async def test_the_replica_is_named_at_the_next_check_and_nothing_was_said_before(tmp_path: Path) -> None:
    async with Stage(tmp_path) as stage:
        nodes = dict(list(stage.run_dirs.items())[:1])
        flipped = ("--flip-at", str(FLIP_AT), "--flip-rank", str(ODD))
        train = ("--guard-every", str(EVERY), "--step-s", "0.2", *flipped)
        job = Job(tmp_path / "job", nodes, workers=3, backend="rankpulse", hold=True, train_args=train).start()
        try:
            told = await eventually(lambda: incident(stage), 180, f"the incident\n{job.tail()}")
            trained = job.last_step()
            await eventually(lambda: job.last_step() >= trained + 3, 60, f"a job that is left alone\n{job.tail()}")
        finally:
            await asyncio.to_thread(job.end)
    assert [event["rank"] for event in job.events("flipped")] == [ODD]
    assert [member.rank for member in told.culprits] == [ODD]
    assert told.bad_step == 30, "the first check after it"
    assert "all agreed last at step 20" in told.reasons
    assert (told.action, stage.witness.all(r.Order)) == ("page", [])


def incident(stage: Stage) -> r.Incident | None:
    return next((i for i in stage.witness.all(r.Incident) if i.klass == "silent_corruption"), None)
