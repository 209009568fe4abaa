"""What is done about a run that trains on with numbers that are not finite. Pure.

Its ranks move, so nothing else sees it. A job that nobody has spoken for is left alone: it may be its loss scaler at
work, or a program that mends this by itself. With consent the round is ended, and the next resumes from a checkpoint of
before the first such step; when that step comes out so again, it is the program's fault or that of its data.
"""

from typing import Final, NamedTuple

from rankpulse.core import diagnosis as d
from rankpulse.core import policy, resumption, undoing
from rankpulse.core.incidents import Book
from rankpulse.core.numbers import ROW, Told
from rankpulse.core.policy import Choice, Facts
from rankpulse.core.records import CheckpointState, Incident
from rankpulse.core.views import RoundView, RunView

COUNTED: Final = (
    "its ranks count their steps anew in every process, so that no checkpoint can be told by them: pulse.step(n) with "
    "the number of the step"
)


class Case(NamedTuple):
    """How it stands with such a run."""

    facts: Facts
    consent: bool  # such restarts are allowed
    limit: int  # what is resumed from is of an earlier step
    refusal: str = ""  # why the job could not go on from before it
    again: str = ""  # why another restart would bring the same
    settled: bool = True


def choose(case: Case) -> Choice:
    """What is done by now, and why."""
    facts = case.facts
    if facts.paused:
        return Choice(policy.NONE, facts.unarmed)
    if not case.consent:
        return Choice(policy.NONE, f"{case.again or 'the job goes on'}; policy.restart_on_non_finite is off")
    if case.again:
        able = facts.elastic and facts.launcher_alive
        return Choice(policy.STOP if able and facts.joint and facts.armed else policy.PAGE, case.again)
    if bar := undoing.barred(facts, case.refusal, case.limit):
        return bar
    if not case.settled:
        return Choice(policy.WAIT, "a rank may have been sooner, and its node not have told of it yet")
    return Choice(policy.RESTART, f"{ROW} steps in a row: the job goes on from a checkpoint before step {case.limit}")


def limit(told: Told, round_: RoundView) -> int:
    """Before which step the checkpoint has to be: only up to the last finite numbers it is known to be well.

    One whose very first step comes out so holds it already.
    """
    resumed = round_.resumed_from()
    if told.finite >= 0:
        return min(told.finite + 1, told.first)
    if resumed is None:
        return told.first
    return resumed if told.first == resumed + 1 else min(resumed + 1, told.first)


def refused(told: Told, before: int, run: RunView, state: CheckpointState | None) -> str:
    """Why the job cannot go on from a checkpoint before that step, "" when it can."""
    if told.counted:
        return COUNTED
    return no_checkpoint(before, run, state)


def no_checkpoint(before: int, run: RunView, state: CheckpointState | None) -> str:
    """Why there is none of an earlier step to go on from, "" when there is."""
    why = resumption.refused(max(before, 0), joint=run.joint is not None, state=state)
    known = (state.oldest_step, state.verified_step, state.step, state.loaded_step) if state is not None else ()
    if not why and not any(0 <= step < before for step in known):
        return f"the job has told of no checkpoint before step {before}"
    return why


def again(told: Told, run: RunView, book: Book) -> str:
    """Why another restart would only bring it once more, "" while nothing says so."""
    number = run.current.number
    for incident in _ordered(run, book):
        if incident.round < number and incident.bad_step == told.first:
            return (
                f"step {told.first} is not finite again (as in round {incident.round}), after a restart from before "
                "it: the program's fault, or that of its data"
            )
    return ""


def idle(told: Told, run: RunView, book: Book) -> int:
    """Restarts of this kind that have not brought the run beyond the step where they began."""
    return sum(incident.bad_step >= told.first for incident in _ordered(run, book))


def _ordered(run: RunView, book: Book) -> list[Incident]:
    """Incidents of this kind for which the run was restarted."""
    mine = (i for i in book if i.run_uid == run.uid and i.klass == d.NON_FINITE)
    return sorted((i for i in mine if i.order_id == i.id), key=lambda i: -i.round)
