"""What a restart resumed from: which checkpoint, which were not taken and why, and what work was lost."""

from collections.abc import Iterator

from rankpulse.core import last_words
from rankpulse.core.checkpoints import COUNT_MAX
from rankpulse.core.records import CheckpointState, Incident
from rankpulse.core.repeats import highest_step
from rankpulse.core.views import RunView

NOT_OURS = (
    "the run does not meet through rankpulse's rendezvous, so no limit reaches its workers: set "
    "RANKPULSE_RESUME_BEFORE_STEP where torchrun is started, and start it again"
)


def refused(resume_before_step: int, *, joint: bool, state: CheckpointState | None) -> str:
    """Why such a limit cannot be asked for, "" when it can (or none is). `state`: what the job has said.

    A limit below which nothing lies would end a job that trains.
    """
    if resume_before_step == -1:
        return ""
    if not 1 <= resume_before_step <= COUNT_MAX:
        return (
            f"no checkpoint lies before step {resume_before_step}: name one from 1 to {COUNT_MAX}; "
            "to begin anew, give the job another checkpoint directory"
        )
    if not joint:
        return NOT_OURS
    if state is not None and resume_before_step <= state.oldest_step:
        return (
            f"no checkpoint lies before step {resume_before_step}: at its last save the job kept none older than that "
            f"of step {state.oldest_step}; name a later step"
        )
    return ""


def loaded(run: RunView, state: CheckpointState | None) -> int | None:
    """The step that the job says its present round has loaded; None when it says nothing."""
    if state is None or not run.rounds or state.loaded_round != run.current.number:
        return None
    return state.loaded_step


def lost(incident: Incident, run: RunView, step: int | None) -> int | None:
    """Steps that were made before the incident, or in vain since, beyond the one that the run goes on from."""
    made = [highest_step(view) for number, view in run.rounds.items() if incident.round <= number < run.current.number]
    highest = max([incident.fault_step, *made])
    return max(highest - step, 0) if step is not None and highest >= 0 else None


def story(incident: Incident, run: RunView, state: CheckpointState | None) -> Iterator[str]:
    """Lines for an incident whose run has begun a later round, once what they tell is known."""
    number = run.current.number
    yield from _limit(incident, run)
    if state is None:
        return
    for refusal in state.refusals:
        if incident.round < refusal.round <= number:
            yield f"round {refusal.round} did not take the checkpoint of step {refusal.step}: {refusal.reason}"
    step = loaded(run, state)
    if step is not None:
        what = "last words" if last_words.is_of(incident, step) else "the checkpoint"
        yield f"round {number} resumed from {what} of step {step}, {_how(state)}"
        if 0 <= incident.resume_before_step <= step:
            yield (
                f"round {number} did not obey the limit to resume before step {incident.resume_before_step}: "
                "its program does not load by CheckpointManager, or names a limit of its own"
            )


def steps(count: int | None) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"


def _how(state: CheckpointState) -> str:
    parts = [f"verified ({state.level})" if state.level else "verified", f"read in {state.load_s:.1f} s"]
    if state.resharded_from:
        parts.append(f"saved by {state.resharded_from} ranks")
    return ", ".join(parts)


def _limit(incident: Incident, run: RunView) -> Iterator[str]:
    """A round that met before the order for its predecessor stood in the store knows nothing of the limit."""
    number = incident.round + 1
    meeting = run.joint.meetings.get(number) if run.joint is not None else None
    if (
        incident.resume_before_step >= 0
        and incident.order_id
        and meeting is not None
        and meeting.resume_before_step < 0
    ):
        yield (
            f"round {number} had met already when the restart was ordered: the limit to resume before step "
            f"{incident.resume_before_step} holds from the next one on"
        )
