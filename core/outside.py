"""What is known of a job beyond one run of it: whether it is there again, and whether starting it again is of use."""

from collections.abc import Iterable

from rankpulse.core import diagnosis as d
from rankpulse.core import ladder, policy
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.repeats import same
from rankpulse.core.views import RoundView, RunView

NAMELESS = ("", "none")  # labels that torchrun gives whoever chooses none
SIGNALLED = "SignalException"  # torchelastic's word for a torchrun that was asked to end
FOLLOWED = (policy.ADOPT, policy.RELEASE, policy.RESTART, policy.RESTART_WITHOUT)


def heir(runs: Iterable[RunView], run: RunView) -> RunView | None:
    """A run that goes on and was launched after this one, under its label and by its owner."""
    return next((other for other in runs if _follows(other, run)), None)


def _follows(other: RunView, run: RunView) -> bool:
    if other is run or not other.open() or other.run_id != run.run_id or run.run_id in NAMELESS:
        return False
    if run.joint is not None:
        mine, its = run.joint.launch, other.joint.launch if other.joint is not None else None
        return its is not None and (mine is None or mine.owner == its.owner)
    if other.joint is not None or not other.rounds or not run.rounds:
        return False
    return _later(other.rounds[min(other.rounds)], run.current)


def _later(began: RoundView, current: RoundView) -> bool:
    """Whether a round began after another. Who reads the store from the start sees both at once, and goes by when
    their rosters were written first; a round without one began while nobody led. In doubt it is later: then a person
    is told, where the job would otherwise be started twice."""
    if began.began_at != current.began_at:
        return began.began_at > current.began_at
    return began.at >= current.at or not began.at


def may_be_started_again(desk: Desk, incident: r.Incident, run: RunView) -> bool:
    """Whether the end of the run leaves its job to be started from outside: it failed, nobody stopped it, and the
    program's fault is not what was found."""
    followed = incident.action in FOLLOWED or (incident.action == policy.PAGE and incident.klass in d.DEATHS)
    gate = desk.folder.joint.gates.get((run.uid, run.current.number + 1))
    followed = followed and (gate is None or gate.go)  # else it was stopped, for it would fail again
    return run.outcome == d.FAILED and followed and (desk.folder.modes.of(run.uid).armed or incident.rung != "")


def was_ended(run: RunView) -> bool:
    """Whether all torchruns of a run were ended, as by a scheduler, and none of them gave it up.

    Plain launches do not tell.
    """
    if run.joint is None:
        return False
    if run.open():
        return run.joint.empty_at is not None
    launch = run.joint.launch
    return launch is None or launch.outcome != d.FAILED or SIGNALLED in launch.closed


def is_pointless(desk: Desk, incident: r.Incident, run: RunView) -> str:
    """Why another start from outside would only fail once more, "" when nothing says so."""
    if desk.budgets.left(run) <= 0:
        return policy.RUN_SPENT
    if was_ended(run):
        return "nobody of it failed, its torchruns were ended from outside: it may have been cancelled"
    for before in desk.book:
        if before.id == incident.id or before.run_id != incident.run_id or before.rung != ladder.WEBHOOK:
            continue
        alike = same(before.fault, incident.fault) or (before.klass == incident.klass and not incident.fault)
        if alike and before.fault_step >= incident.fault_step:
            return f"the job came to the same end when that was done in incident {before.id}"
    return ""
