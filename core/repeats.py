"""Is it the program's own fault? The same error again, and nothing gained in between, will only happen once more."""

import re

from rankpulse.core import diagnosis as d
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.exits import Kind
from rankpulse.core.incidents import PASSED, Book
from rankpulse.core.records import Incident
from rankpulse.core.slot import PHASE_TRAIN
from rankpulse.core.views import RoundView, RunView, process_of

LIVED_S = 600.0  # a round that trained for so long has made progress, where its steps are not counted on from the last
HANDS = (1, 2, 3, 9, 13, 14, 15)  # signals that a program does not get by its own fault
OWN = (d.WORKER_DEAD, d.COLLECTIVE_HANG, d.COLLECTIVE_MISMATCH, d.DATA_STALL, d.NUMERICAL, d.OOM)
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


def repeated(found: Diagnosis, run: RunView, round_: RoundView, book: Book, now: float) -> str:
    """Why this failure is the program's own and would only come again, "" when it need not.

    Its words are the same as those that ended an earlier round, or it came at the same step; and no progress between.
    """
    before = _mismatched(found, run, round_, book)
    if before is not None:
        return f"ranks call different collectives again (as in round {before.round}): it would only come once more"
    lived, step = now - round_.began_at >= LIVED_S, highest_step(round_)
    if lived and not _counts_on(round_):
        return ""
    for incident in sorted(book, key=lambda incident: -incident.round):
        if incident.run_uid != run.uid or incident.round >= round_.number or incident.outcome == PASSED:
            continue
        words = not lived and same(incident.fault, found.fault)
        if (words or _same_step(incident, found, round_, step)) and not _moved_since(incident, run):
            again = "the same error of the program again" if words else f"it fails at step {step} again"
            return f"{again} (as in round {incident.round}), and no progress since: it would only fail once more"
    return ""


def _mismatched(found: Diagnosis, run: RunView, round_: RoundView, book: Book) -> Incident | None:
    """The last time that its ranks called different collectives: no machine does that, whatever came between."""
    if found.klass != d.COLLECTIVE_MISMATCH:
        return None
    before = (i for i in book if i.run_uid == run.uid and i.round < round_.number and i.klass == found.klass)
    return max((i for i in before if i.outcome != PASSED), key=lambda i: i.round, default=None)


def _same_step(incident: Incident, found: Diagnosis, round_: RoundView, step: int) -> bool:
    """Both broke at the same step, and nobody's hand was in it: the same rank did, or both died of the like.

    Two ranks that hang or die in different ways at one step are two faults: the step is chance.
    """
    own = found.klass in OWN and incident.klass in OWN and bool(_ranks(found)) and bool(_ranks(incident))
    if not own or step < 0 or step != incident.fault_step or incident.foreign or foreign(found, round_):
        return False
    deaths = incident.klass == found.klass == d.WORKER_DEAD and (incident.fault == found.fault == "")
    return bool(_ranks(found) & _ranks(incident)) or (deaths and _in_step(round_, step))


def _in_step(round_: RoundView, step: int) -> bool:
    """Whether it came to this step by itself, and trains: it stands at one until its first, and while it evaluates."""
    phases = {progress.phase for progress in round_.progress.values()}
    moved = bool(round_.reporting()) and step > (round_.resumed_from() or -1)
    return moved and phases <= {PHASE_TRAIN}


def _ranks(failure: Diagnosis | Incident) -> set[int]:
    return {member.rank for member in failure.culprits}


def foreign(found: Diagnosis, round_: RoundView) -> bool:
    """Whether a hand from outside may have been in it: a process that was killed, or is stopped."""
    for member in found.culprits:
        exit_, progress = round_.exits.get(process_of(member)), round_.progress.get(member.rank)
        if exit_ is not None and (exit_.signal in HANDS or exit_.kind is Kind.STOPPED or exit_.what.startswith("gone")):
            return True
        if progress is not None and progress.state in ("T", "t"):
            return True
    return False


def _counts_on(round_: RoundView) -> bool:
    """Whether its steps go on from those of the last round, so that they show progress better than a clock does."""
    return (round_.resumed_from() or 0) > 0


def _moved_since(incident: Incident, run: RunView) -> bool:
    since = [view for number, view in run.rounds.items() if number > incident.round]
    return max(map(highest_step, since), default=-1) > incident.fault_step


def same(one: str, other: str) -> bool:
    """The same error, whatever numbers (sizes, addresses, counts) its words carry."""
    return bool(one) and _NUMBER.sub("#", one) == _NUMBER.sub("#", other)


def highest_step(round_: RoundView) -> int:
    """As beats tell it, and the last words of those that ended: at ten steps a second no two beats tell the same."""
    steps = [progress.step for progress in round_.progress.values()] + [exit_.step for exit_ in round_.exits.values()]
    return max(steps, default=-1)
