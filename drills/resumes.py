"""What a restart was worth: from which checkpoint the job went on, whether that one is sound, and what was lost."""

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rankpulse.core import records as r
from rankpulse.drills import curve
from rankpulse.drills.job import Job
from rankpulse.drills.witness import Timeout, Witness
from rankpulse.trainer.checkpoint.errors import CheckpointError
from rankpulse.trainer.checkpoint.manifest import LAST_WORDS
from rankpulse.trainer.checkpoint.reader import verify

if TYPE_CHECKING:
    from rankpulse.drills.scenes import Result

RESUME_LIMIT_S = 120.0
BOUND = (
    "A save is a part of its step: no rank begins the next one before it is committed and read back. So a fault can "
    "spoil one save at most, the one under way, and no more than the interval is lost. With last words those that live "
    "save the last step that all have finished: at most one is lost, unless they were in the middle of an update."
)
UPDATING = "in the middle of an update"
SPOKEN = "no last words: "


@dataclass
class Resumption:
    """What the job itself says of its next start, and what became of checking that. Empty until it has begun."""

    step: int | None = None
    verified: bool = False
    last_words: bool = False  # its checkpoint is what survivors saved
    wrong: list[str] = field(default_factory=list)


def losses(job: Job) -> curve.Curve:
    """The loss of every step and rank so far."""
    try:
        text = job.losses_file.read_text(encoding="utf-8")
    except OSError:
        text = ""
    return curve.curve_of(curve.read(text), job.world_size)


async def between_saves(job: Job, rng: random.Random, timeout_s: float = 30.0) -> None:
    """Wait for a step between two saves, drawn by lot: there are steps to be lost then, and to be compared."""
    await asyncio.to_thread(_reach, job, rng.randrange(curve.ENOUGH, job.save_every - 1), time.monotonic() + timeout_s)


def _reach(job: Job, goal: int, deadline: float) -> None:
    while job.last_step() % job.save_every != goal and time.monotonic() < deadline and job.alive():
        time.sleep(0.01)


def watch(job: Job) -> asyncio.Task[Resumption]:
    """Wait for the next start of the job, from before the fault on."""
    return asyncio.create_task(_resumption(job, len(job.events("resumed"))))


async def _resumption(job: Job, told: int) -> Resumption:
    """The start after the `told` events so far. Its checkpoint is looked at while it is still kept."""
    deadline = time.monotonic() + RESUME_LIMIT_S
    while len(events := job.events("resumed")[told:]) < job.world_size:
        if time.monotonic() > deadline or not job.alive():
            return Resumption(wrong=["the job did not start again on all ranks"])
        await asyncio.sleep(0.1)
    return await asyncio.to_thread(_checked, events)


def _checked(events: list[dict[str, Any]]) -> Resumption:
    """What all ranks say, and whether it is true: every byte of the checkpoint against the sums in its manifest.

    Checked apart from the job, in this process.
    """
    steps = {event["step"] for event in events}
    if len(steps) != 1 or 0 in steps:
        return Resumption(wrong=[f"the job says it resumed from {sorted(steps)}: not one checkpoint for all ranks"])
    again = Resumption(step=steps.pop())
    again.wrong += [f"rank {event['rank']} passed over: {event['skipped']}" for event in events if event["skipped"]]
    try:
        manifest = verify(events[0]["checkpoint"], "full")
    except (CheckpointError, OSError) as error:
        again.wrong.append(f"the checkpoint it resumed from: {error}")
        return again
    again.verified, again.last_words = manifest.step == again.step, manifest.kind == LAST_WORDS
    if not again.verified:
        again.wrong.append(f"it says step {again.step} and loaded the checkpoint of step {manifest.step}")
    return again


async def worth(
    result: "Result", watching: asyncio.Task[Resumption], job: Job, state: r.RunState, round_: int, witness: Witness
) -> dict[str, Any]:
    """Enter what the end of `round_` cost, once the lost steps are done again; returns what `judge` is to expect."""
    again = await watching
    result.wrong += again.wrong
    result.verified, result.save_every = again.verified, job.save_every
    if again.step is None:
        return {}
    result.last_words = again.last_words if job.last_words else None
    result.lost_steps = lost = curve.lost_steps(losses(job), round_, again.step)
    result.wrong += dear(lost, job.save_every, again.last_words, refusals(job) if job.last_words else None)
    result.wrong += await _told(state.run_uid, again.step, round_ + 1, witness)
    await asyncio.to_thread(_redone, job, round_ + 1, again.step + max(lost, curve.ENOUGH))
    return {"resumed_from_step": again.step, "verified": True}


def dear(lost: int, interval: int, spoken: bool, refused: list[str] | None) -> list[str]:
    """What is wrong with so many lost steps. spoken: the job resumed from last words; refused: why it has none, None
    where it was not to have any."""
    wrong = []
    most = 1 if spoken else interval
    if not 0 <= lost <= most:
        wrong.append(f"{lost} steps lost, should be at most {most}")
    if refused is not None and not spoken and lost > 1 and not any(UPDATING in reason for reason in refused):
        wrong.append(f"no last words: {'; '.join(refused) or 'nobody said why'}")
    return wrong


def refusals(job: Job) -> list[str]:
    """Why there were no last words, as its workers say, each reason once; the newest last."""
    told = [line for launcher in job.launchers for line in launcher.tail(400).splitlines() if SPOKEN in line]
    return list(dict.fromkeys(line.partition(SPOKEN)[2] for line in told))


def _redone(job: Job, round_: int, goal: int, timeout_s: float = 60.0) -> None:
    """Wait until all that was lost was done again: then it can be compared. If it never is, the curve will say so."""
    deadline = time.monotonic() + timeout_s
    while not losses(job).whole(round_, goal) and time.monotonic() < deadline and job.alive():
        time.sleep(0.2)


async def _told(run_uid: str, step: int, round_: int, witness: Witness) -> list[str]:
    """What is wrong with what the monitor was told of the load."""

    def told() -> r.CheckpointState | None:
        states = [one for one in witness.all(r.CheckpointState) if one.run_uid == run_uid]
        return next((one for one in states if one.loaded_round == round_), None)

    try:
        state = await witness.until(told, 15.0, f"the monitor to be told what round {round_} loaded")
    except Timeout as error:
        return [str(error)]
    got, wanted = (state.loaded_step, state.level, state.skipped), (step, "full", 0)
    return [] if got == wanted else [f"the monitor was told (step, verified how, skipped) {got}, should be {wanted}"]
