"""The scene of a program that fails at the same step whenever it gets there: restarting it is pointless."""

import asyncio

from rankpulse.core import records as r
from rankpulse.drills import curve
from rankpulse.drills.job import Job
from rankpulse.drills.resumes import losses, watch, worth
from rankpulse.drills.scenes import Result, Show, enter, judge, rounds
from rankpulse.drills.together import arm

FAIL_AT = 15  # five steps after a checkpoint: it gets there again by itself
QUIET_S = 3.0  # whoever would start it again, has by then


async def repeat(show: Show) -> Result:
    """Rank 0 raises at the same step in every round: one restart, then the run is stopped and a person is paged."""
    await show.alone()
    await arm(show, "the demo shows when not to restart")
    show.tell(f"repeat: another job, whose rank 0 raises at step {FAIL_AT} in every round")
    args, directory = ("--fail-at", str(FAIL_AT)), show.directory / "repeat"
    job = Job(
        directory, show.nodes, name="repeat-job", backend="rankpulse", hold=True, max_restarts=0, train_args=args
    ).start()
    try:
        return await _played(show, job)
    finally:
        await asyncio.to_thread(job.end)


async def _played(show: Show, job: Job) -> Result:
    result = Result("repeat", f"rank 0 raised at step {FAIL_AT}, and at the same step after the restart")
    await show.until(job, lambda: len(job.events("first_step")) == job.world_size, 120.0, "a job that trains")
    state = await show.until(job, lambda: show.stage.witness.run(job.name), 30.0, "the job in the store")
    watching = watch(job)
    expected = await worth(result, watching, job, state, 1, show.stage.witness)
    try:
        await show.until(job, lambda: _over(show, job), 90.0, "the end of the job, and the page")
    except Exception as error:
        show.tell(str(error))
    await asyncio.sleep(QUIET_S)
    return _judged(show, job, result, expected)


def _over(show: Show, job: Job) -> bool:
    state = show.stage.witness.run(job.name)
    paged = bool(show.pager.since(job.started_at))
    return paged and not job.alive() and state is not None and state.outcome != "running"


def _judged(show: Show, job: Job, result: Result, expected: dict[str, object]) -> Result:
    state = show.stage.witness.run(job.name)
    assert state is not None
    incidents = show.stage.witness.incidents(job.started_at)
    result.incidents, result.restarts = len(incidents), rounds(show, state.run_uid) - 1
    if incidents:
        enter(result, incidents[-1], max(event["at"] for event in job.events("fails")))
        result.resumed_from_step = incidents[0].resumed_from_step
        result.wrong += stopped(incidents, show.pager.since(job.started_at))
    result.wrong += recomputed(losses(job))
    if [launcher.code() or 0 for launcher in job.launchers].count(0):
        result.wrong.append("a torchrun ended well, or not at all: a program that fails does neither")
    if not any("cannot be computed" in launcher.tail(200) for launcher in job.launchers):
        result.wrong.append("the program's own words are not to be seen")
    if state.outcome != "failed" or len(job.events("resumed")) != 2 * job.world_size:
        result.wrong.append(f"the run: {state.outcome}, {len(job.events('resumed'))} starts of workers")
    return judge(
        result,
        diagnosis="worker_dead",
        culprits=[0],
        cascade=[1, 2, 3],
        action="stop",
        restarts=1,
        incidents=2,
        **expected,
    )


def recomputed(seen: curve.Curve) -> list[str]:
    """What is wrong with the losses: nothing of this job was saved at its end, so steps are computed a second time."""
    again = curve.compared(seen).get(2, 0)
    few = [f"only {again} steps were computed again: too few to tell whether all came back"]
    return curve.wrong(seen) + (few if again < curve.ENOUGH else [])


def stopped(incidents: list[r.Incident], pages: list[str]) -> list[str]:
    """Whether the first failure was answered by a restart, and only the last by a page that says why there is none."""
    wrong, reason = [], incidents[-1].action_reason
    if incidents[0].action != "restart":
        wrong.append(f"the first failure: action {incidents[0].action}, should be restart")
    if "again" not in reason or "no progress since" not in reason:
        wrong.append(f"the reason does not tell that it failed before: {reason}")
    if len(pages) != 1 or reason not in pages[0]:
        wrong.append(f"paged: {pages}, should be once, with the reason")
    return wrong
