"""A real job of three replicas, and one bit of a parameter of one of them that flips: told; with consent undone."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from support import eventually

from rankpulse.cli import modes
from rankpulse.core import records as r
from rankpulse.core.settings import StoreSettings, preset
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


NODES = ("node-0", "node-1", "node-2")


@pytest.mark.live
@pytest.mark.timeout(400)
async def test_with_consent_the_others_go_on_from_before_it_without_the_machine(tmp_path: Path) -> None:
    async with Stage(tmp_path, nodes=NODES) as stage:
        flipped = ("--flip-at", str(FLIP_AT), "--flip-rank", str(ODD))
        train = ("--guard-every", str(EVERY), "--step-s", "0.2", "--reshard", *flipped)
        job = Job(
            tmp_path / "job", stage.run_dirs, workers=1, backend="rankpulse", hold=True, nnodes="2:3", max_restarts=0,
            train_args=train,
        ).start()  # fmt: skip
        try:
            await eventually(lambda: stage.witness.run(job.name) is not None, 120, f"the run\n{job.tail()}")
            await consented(stage, job.name)
            told = await eventually(lambda: incident(stage), 180, f"the incident\n{job.tail()}")
            over = await eventually(lambda: closed(stage), 120, f"the end of it\n{job.tail()}")
            trained = job.last_step()
            await eventually(lambda: job.last_step() >= trained + 2 * EVERY, 60, f"checks that agree\n{job.tail()}")
            last, cordons = stage.witness.roster(told.run_uid), stage.witness.all(r.Cordon)
        finally:
            await asyncio.to_thread(job.end)
    [odd] = {member.node for member in told.culprits}
    assert (over.action, over.resume_before_step, over.restarts) == ("restart_without", 21, 1)
    assert (over.outcome, [cordon.node for cordon in cordons]) == ("recovered", [odd])
    assert {event["step"] for event in job.events("resumed") if event["step"]} == {20}, "the last that all agreed on"
    assert last is not None
    assert {member.node for member in last.members} == set(NODES) - {odd}
    assert [one.id for one in stage.witness.all(r.Incident) if one.klass == "silent_corruption"] == [told.id]


async def consented(stage: Stage, run: str) -> None:
    settings = msgspec.structs.replace(
        preset("drill"), cluster=stage.keys.cluster, store=StoreSettings(endpoints=(stage.etcd.endpoint,))
    )
    said = modes.Consent(on_corruption=True)
    await modes.arm_run(settings, run, armed=True, reason="it may", consent=said)


def closed(stage: Stage) -> r.Incident | None:
    found = incident(stage)
    return found if found is not None and found.state == "closed" else None


def incident(stage: Stage) -> r.Incident | None:
    return next((i for i in stage.witness.all(r.Incident) if i.klass == "silent_corruption"), None)
