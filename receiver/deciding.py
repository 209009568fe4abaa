"""From a verified event to what is done about it, with the reason. Pure."""

import hashlib
from typing import Final, NamedTuple, TypeAlias

from rankpulse.core.targets import CLOSED, PAGE, RESTART, TEST
from rankpulse.core.words import printable
from rankpulse.receiver import jobs
from rankpulse.receiver.jobs import Job, Unsafe
from rankpulse.receiver.reading import Data, Event
from rankpulse.receiver.settings import ReceiverSettings

ONLY_HEARD: Final = (PAGE, CLOSED, TEST)


class Plan(NamedTuple):
    """Start this job again, without those nodes. `mark`: names the decision wherever our trace is left."""

    id: str
    mark: str
    actuator: str
    target: str
    job: Job
    data: Data
    reason: str
    may_begin: bool = True  # False: too old to begin with; what was begun is brought to its end

    @property
    def place(self) -> str:
        """One action at a time for each."""
        return f"{self.actuator}:{self.job.namespace}/{self.job.kind}/{self.target}"


class Heard(NamedTuple):
    """Nothing is to be done."""

    reason: str


class Denied(NamedTuple):
    """It may not be done. `status`: as HTTP says it."""

    status: int
    reason: str


Decision: TypeAlias = Plan | Heard | Denied


def decide(event: Event, settings: ReceiverSettings, now: float) -> Decision:
    """`now`: UTC seconds. What is too old is denied; `plan` is for what was accepted before."""
    made = plan(event, settings)
    old_s = now - event.data.at
    if isinstance(made, Plan) and old_s > settings.limits.stale_s:
        return Denied(409, f"decided {old_s:.0f} s ago: too old to act by, a person must look")
    return made


def plan(event: Event, settings: ReceiverSettings) -> Decision:
    """What an event asks for, whatever its age."""
    data = event.data
    if data.cluster not in settings.clusters:
        return Denied(403, f"cluster {printable(data.cluster, 60)!r} is none of `clusters`")
    if data.event in ONLY_HEARD:
        return Heard(f"{data.event}: nothing is to be done here")
    if data.event != RESTART:
        return Denied(403, f"event {printable(data.event, 60)!r} is not known")
    job = next((one for one in settings.jobs if jobs.star(one, data.run_id) is not None), None)
    if job is None:
        return Denied(403, f"run {printable(data.run_id, 60)!r} is none of `jobs`")
    try:
        target = jobs.target(job, names(job, data))
        tuple(jobs.filled(one, names(job, data)) for one in job.argv)
    except Unsafe as error:
        return Denied(403, str(error))
    reason = f"{data.decision} asks that run {printable(data.run_id, 60)} be started again: {data.summary}"
    return Plan(event.id, mark(event.id), job.actuator, target, job, data, printable(reason, 500))


def names(job: Job, data: Data) -> dict[str, str]:
    """What templates may be filled with."""
    return {
        "*": jobs.star(job, data.run_id) or "",
        "cluster": data.cluster,
        "decision": data.decision,
        "round": str(data.round),
        "run_id": data.run_id,
        "run_uid": data.run_uid,
    }


def mark(id_: str) -> str:
    """16 hexadecimal digits that stand for an event's id where there is little room."""
    return hashlib.sha256(id_.encode()).hexdigest()[:16]
