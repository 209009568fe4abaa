"""What is done about a replica whose parameters differ from the others'. Pure.

Its ranks move and its numbers may look well, so nothing else sees it; and with every step it spoils the others'
gradients. By consent the run goes on from a checkpoint of before, without the machine. Where nobody can say which of
two it is, both are named, nobody is left out, and when it comes again a person has to look.
"""

from typing import Final, NamedTuple

from rankpulse.core import diagnosis as d
from rankpulse.core import non_finite, policy, undoing
from rankpulse.core.checksums import Verdict
from rankpulse.core.incidents import Book
from rankpulse.core.policy import Choice, Facts
from rankpulse.core.records import CheckpointState, Incident
from rankpulse.core.views import RoundView, RunView

CONSENT: Final = "policy.restart_on_corruption is off"


class Case(NamedTuple):
    """How it stands with such a run."""

    facts: Facts
    consent: bool  # such restarts are allowed
    limit: int  # what is resumed from is of an earlier step
    nodes: tuple[str, ...]  # of the odd ones; of all who may be it
    certain: bool
    refusal: str = ""  # why the job could not go on from before it
    again: bool = False  # a restart that left nobody out did not end it


def choose(case: Case) -> Choice:
    """What is done by now, and why."""
    facts = case.facts
    if facts.paused:
        return Choice(policy.NONE, facts.unarmed)
    if not case.consent:
        return Choice(policy.PAGE, f"its state gets worse with every step; {CONSENT}")
    return undoing.barred(facts, case.refusal, case.limit) or _restart(case)


def _restart(case: Case) -> Choice:
    before, names = f"from a checkpoint before step {case.limit}", ", ".join(case.nodes[:4])
    if not case.certain:
        if case.again:
            return Choice(policy.PAGE, f"again, and no majority says who: have {names} tested, and leave one out")
        return Choice(policy.RESTART, f"the job goes on {before}, with all nodes: no majority says who it is")
    if not case.facts.room.enough:
        return Choice(policy.PAGE, f"the job cannot go on without {names}: {case.facts.room.words}")
    return Choice(policy.RESTART_WITHOUT, f"the others go on without {names}, {before}")


def limit(verdict: Verdict, round_: RoundView) -> int:
    """Before which step the checkpoint has to be. What was saved at the last step that was clean is well.

    Where none was, only what all have loaded alike, if anything: 0 where nothing is known to be well.
    """
    if verdict.clean >= 0:
        return verdict.clean + 1
    resumed = round_.resumed_from()
    return 0 if resumed is None else resumed + 1


def refused(before: int, run: RunView, state: CheckpointState | None) -> str:
    """Why the job cannot go on from a checkpoint before that step, "" when it can."""
    return non_finite.no_checkpoint(before, run, state)


def again(run: RunView, book: Book) -> bool:
    """Whether an earlier round was restarted for this, and nobody was left out."""
    return any(incident.action == policy.RESTART for incident in _ordered(run, book))


def _ordered(run: RunView, book: Book) -> list[Incident]:
    mine = (i for i in book if i.run_uid == run.uid and i.klass == d.SILENT_CORRUPTION)
    return [i for i in mine if i.order_id == i.id and i.round < run.current.number]
