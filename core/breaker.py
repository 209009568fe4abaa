"""The breaker: when too much of the fleet is silent or left out at once, rankpulse itself is the danger.

Then the network of this monitor, or its own judgement, is more likely to be wrong than so many nodes. The monitor opens
it; only a person closes it, who has seen why. While it is open no worker is ended and nobody is cordoned.
"""

from collections.abc import Callable, Set
from typing import Final

from rankpulse.core import diagnosis as d
from rankpulse.core import incidents as book_of
from rankpulse.core import policy
from rankpulse.core import records as r
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import NAMED_MAX, Diagnosis
from rankpulse.core.telling import in_words

LEAST: Final = 2  # one node alone is a node, not the fleet
AFTER: Final = "acting has ended until a person has looked: rankpulse breaker close --reason …"


def tripped(silent: Set[str], left_out: Set[str], watched: int, share: float) -> str:
    """Why the breaker opens, "" while it need not. `left_out`: cordoned by rankpulse. `watched`: nodes, all told."""
    bad = silent | left_out
    if len(bad) < LEAST or len(bad) <= share * watched:
        return ""
    parts = [f"{len(silent)} silent ({in_words(sorted(silent))})"] if silent else []
    parts += [f"{len(left_out)} cordoned by rankpulse ({in_words(sorted(left_out))})"] if left_out else []
    return f"{len(bad)} of {watched} nodes at once: {', '.join(parts)}"


class BreakerJudge:
    """One per judge; the breaker itself stands in the store."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def judge(self, silent: Set[str], watched: Callable[[], Set[str]]) -> None:
        """Open it where it is time, and keep its incident. `silent`: nothing on any path for long, of `watched`."""
        desk, modes = self._desk, self._desk.folder.modes
        left_out = {node for node, cordon in desk.folder.joint.cordons.items() if cordon.owner == "rankpulse"}
        why, share = "", desk.settings.policy.breaker_share
        if len(silent | left_out) >= LEAST:  # as hardly ever: all nodes are counted
            why = tripped(silent, left_out, len(watched() | left_out), share)
        if why and not modes.open:
            opened = r.Breaker(open=True, author=f"monitor, epoch {desk.epoch}", reason=why, at=desk.at)
            modes.say(opened)
            desk.folder.say("error", f"the breaker opens: {why}; {AFTER}")
            desk.want(desk.keys.breaker(), opened, why)
        incident = desk.book.open_of_fleet(d.BREAKER_OPEN)
        if modes.open and incident is None:
            desk.open(_found(modes.open, tuple(sorted(silent | left_out)), desk.now), None, _CHOICE)
        elif not modes.open and incident is not None:
            said = modes.breaker
            by = f"by {said.author}: {said.reason}" if said is not None else "its record is gone"
            desk.close(incident, book_of.PASSED, f"the breaker is closed, {by}")


_CHOICE: Final = policy.Choice(policy.PAGE, AFTER)


def _found(why: str, nodes: tuple[str, ...], now: float) -> Diagnosis:
    return Diagnosis(
        d.BREAKER_OPEN,
        (),
        (),
        nodes[:NAMED_MAX],
        1.0,
        f"the breaker is open: {why}",
        (why, "so many at once are no matter for restarts: first it must be known what has happened"),
        (),
        now,
    )
