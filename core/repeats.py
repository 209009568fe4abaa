"""Is it the program's own fault? The same error again, and nothing gained in between, will only happen once more."""

import re

from rankpulse.core.incidents import Book
from rankpulse.core.views import RoundView, RunView

LIVED_S = 600.0  # a round that trained for so long has made progress, whatever its steps are counted from
_NUMBER = re.compile(r"0x[0-9a-fA-F]+|\d+")


def repeated(fault: str, run: RunView, round_: RoundView, book: Book, now: float) -> bool:
    """Whether this error (`fault`, "" when it was none of the program's own) ended an earlier round just so."""
    if not fault or now - round_.began_at >= LIVED_S:
        return False
    earlier = [
        incident
        for incident in book
        if incident.run_uid == run.uid and incident.round < round_.number and same(incident.fault, fault)
    ]
    if not earlier:
        return False
    last = max(earlier, key=lambda incident: incident.round)
    since = [view for number, view in run.rounds.items() if number > last.round]
    return max(map(highest_step, since), default=-1) <= last.fault_step


def same(one: str, other: str) -> bool:
    """The same error, whatever numbers (sizes, addresses, counts) its words carry."""
    return bool(one) and _NUMBER.sub("#", one) == _NUMBER.sub("#", other)


def highest_step(round_: RoundView) -> int:
    return max((progress.step for progress in round_.progress.values()), default=-1)
