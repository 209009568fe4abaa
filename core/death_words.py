"""What a death is called by its words, as the rules on snapshots call it: one name, live and later.

Only the class is bettered. What is done about a dead worker follows from its being dead.
"""

import re
from collections.abc import Iterable
from typing import Final

from rankpulse.core import diagnosis as d
from rankpulse.core import signs
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.remembered import in_words
from rankpulse.core.snapshot import Failure
from rankpulse.core.verdict import Seen

SURE: Final = 0.9  # less than that is nobody's own word: an abort may follow from anything
_CLASSES: Final = {
    signs.OOM_GPU: d.OOM,
    signs.OOM_HOST: d.OOM,
    signs.NUMERICAL: d.NUMERICAL,
    signs.MISMATCH: d.COLLECTIVE_MISMATCH,
}
_AROUND: Final = re.compile(r"^rank \d+ on \S+ \(pid \d+\) |, and \d+ more$")  # who it was, and how many
_MISMATCH: Final = f"{d.COLLECTIVE_MISMATCH}:mismatch"  # whatever was called


def bettered(found: Diagnosis) -> Diagnosis:
    """A worker's death with its class by what it said last, and with what is the same when it happens again."""
    if found.klass == d.COLLECTIVE_MISMATCH:
        return found._replace(signature=_MISMATCH)
    if found.klass != d.WORKER_DEAD:
        return found
    told = found.fault or found.summary
    klass = _CLASSES.get(signs.sign(told), d.WORKER_DEAD) if found.fault and found.confidence >= SURE else d.WORKER_DEAD
    words = _own(told)
    return found._replace(klass=klass, signature=_MISMATCH if klass == d.COLLECTIVE_MISMATCH else f"{klass}:{words}")


def _own(told: str) -> str:
    """The program's own words, without what differs between two of the same; else how it ended."""
    how, _, words = _AROUND.sub("", told).partition(" (")
    return signs.bare(words.rpartition(")")[0] or how)


def with_past(found: Diagnosis, history: Iterable[Failure]) -> Diagnosis:
    """The same, with how often it was seen before."""
    same = [failure for failure in history if failure.signature == found.signature != ""]
    if not same:
        return found
    nodes = tuple(sorted({node for failure in same for node in failure.nodes}))
    seen = Seen(len(same), nodes, next((f.action for f in reversed(same) if f.action), ""))
    return found._replace(reasons=(*found.reasons, in_words(seen)))
