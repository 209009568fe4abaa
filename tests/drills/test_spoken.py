"""Last words in a live job that has saved nothing yet: after a crash, and after a hang, nothing but a step is lost."""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from rankpulse.core import codec
from rankpulse.core import records as r
from rankpulse.drills import curve
from rankpulse.drills.job import Job
from rankpulse.drills.resumes import losses
from rankpulse.drills.stage import Stage
from rankpulse.drills.striking import stop_outside_an_update

pytestmark = [pytest.mark.live, pytest.mark.timeout(420), pytest.mark.asyncio(loop_scope="module")]
NEVER = 1_000_000  # steps between two saves: there is no checkpoint but last words
TRAINED = 25


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def spoken(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Stage, Job]]:
    directory = tmp_path_factory.mktemp("spoken")
    async with Stage(directory) as stage:
        record = r.Arm(armed=True, author="test", reason="drill", at=time.time())
        await stage.store.put(stage.keys.arm(), codec.encode(record))
        job = Job(
            directory / "job", stage.run_dirs, name="spoken", backend="rankpulse", hold=True, max_restarts=0,
            save_every=NEVER, last_words=True,
        )  # fmt: skip
        try:
            job.start()
            yield stage, job
        finally:
            await asyncio.to_thread(job.end)


async def trained(stage: Stage, job: Job, round_: int) -> r.Roster:
    """The round has come so far that the detectors know it."""

    def found() -> r.Roster | None:
        state = stage.witness.run(job.name)
        roster = stage.witness.roster(state.run_uid) if state is not None else None
        steps = stage.witness.steps(job.name).values()
        there = roster is not None and roster.round == round_ and len(steps) == job.world_size
        return roster if there and min(steps) >= losses(job).steps(round_)[0] + TRAINED else None

    return await stage.witness.until(lambda: found() if job.events("first_step") else None, 150.0, f"round {round_}")


@pytest.mark.parametrize(
    ("round_", "number", "klass"), [(1, signal.SIGKILL, "worker_dead"), (2, signal.SIGSTOP, "collective_hang")]
)
async def test_survivors_save_and_the_job_goes_on_where_it_was(
    spoken: tuple[Stage, Job], round_: int, number: int, klass: str
) -> None:
    stage, job = spoken
    roster = await trained(stage, job, round_)
    victim = random.choice(roster.members)
    assert await asyncio.to_thread(stop_outside_an_update, victim.pid, stage.run_dirs[victim.node])
    since = time.time()
    os.kill(victim.pid, number)

    def over() -> bool:
        found = stage.witness.incidents(since)
        return bool(found) and all(incident.state == "closed" for incident in found)

    await stage.witness.until(over, 150.0, f"the restart after {number.name}\n{job.tail()}")
    [incident] = stage.witness.incidents(since)
    story = [line.text for line in incident.trail]
    assert (incident.klass, incident.action, incident.outcome) == (klass, "restart", "recovered")
    assert (incident.last_words, incident.restarts, incident.rung) == ("saved", 1, "order"), story
    assert incident.last_words_step == incident.resumed_from_step, story
    assert incident.lost_steps is not None
    assert incident.lost_steps <= 1, story
    assert f"last words: step {incident.last_words_step}, without rank {victim.rank}" in story
    orders = [order for order in stage.witness.all(r.Order) if order.kind in ("restart", "kill")]
    assert [order.round for order in orders if order.incident == incident.id] == [round_]
    resumed = job.events("resumed")[-job.world_size :]
    assert {event["step"] for event in resumed} == {incident.resumed_from_step}
    seen = losses(job)
    assert curve.lost_steps(seen, round_, incident.last_words_step) <= 1
    assert curve.wrong(seen) == []
