"""What is thought of one node: the table of suspicion, refutation and conviction, kept as data.

A node is TRUSTED until it misses its deadline. Then it is a SUSPECT: that is reversible and costs nobody anything, it
only makes us look. While something speaks for it, it is EXCUSED: late all the same. It is CONVICTED when for long
enough nothing has spoken for it on any path. Every state knows every fact, and each turn keeps its reason.
"""

import itertools
import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from rankpulse.core import events as ev
from rankpulse.core.records import Beat

TRUSTED, SUSPECT, EXCUSED, CONVICTED = "trusted", "suspect", "excused", "convicted"
STATES: Final = (TRUSTED, SUSPECT, EXCUSED, CONVICTED)

# facts
LATE = "late"  # its deadline is over, and nothing speaks for it now
HEARD = "heard"  # a newer beat
RESTARTED = "restarted"  # a beat of a new incarnation of its agent
ANSWERED = "answered"  # its agent answered a direct look
MACHINE_LIVES = "machine_lives"  # the machine took or refused a direct look
VOUCHED = "vouched"  # a peer finished a step that needed it
SHARED = "shared"  # too many are late with it: the path that they share is late
BLIND = "blind"  # the observer could not see: deadlines start anew
EXPIRED = "expired"  # nothing on any path for long enough
LEFT = "left"  # it said goodbye
FACTS: Final = (LATE, HEARD, RESTARTED, ANSWERED, MACHINE_LIVES, VOUCHED, SHARED, BLIND, EXPIRED, LEFT)

_SPOKEN_FOR = (ANSWERED, MACHINE_LIVES, VOUCHED)
_OVER = (HEARD, RESTARTED, BLIND, LEFT)
TABLE: Final[Mapping[tuple[str, str], str]] = {
    **{(TRUSTED, fact): TRUSTED for fact in FACTS},  # a look that was asked for before it was heard changes nothing
    (TRUSTED, LATE): SUSPECT,
    **{(state, fact): TRUSTED for state in (SUSPECT, EXCUSED, CONVICTED) for fact in _OVER},
    **{(state, fact): EXCUSED for state in (SUSPECT, EXCUSED, CONVICTED) for fact in _SPOKEN_FOR},
    (SUSPECT, LATE): SUSPECT,
    (SUSPECT, SHARED): EXCUSED,
    (SUSPECT, EXPIRED): CONVICTED,
    (EXCUSED, LATE): SUSPECT,
    (EXCUSED, SHARED): EXCUSED,
    (EXCUSED, EXPIRED): CONVICTED,  # it was excused by what has passed
    (CONVICTED, LATE): CONVICTED,
    (CONVICTED, SHARED): CONVICTED,  # only a sign of life takes a conviction back
    (CONVICTED, EXPIRED): CONVICTED,
}

_FACT_OF: Final[Mapping[str, str]] = {
    ev.ANSWERED: ANSWERED,
    ev.ACCEPTED: MACHINE_LIVES,
    ev.REFUSED: MACHINE_LIVES,
}
TRAIL_KEPT = 12
ASKED_MAX = 16  # looks under way at one node; what comes of older ones is not waited for


class Turn(NamedTuple):
    """One line of what happened to a suspicion."""

    at: float  # observer's monotonic seconds
    fact: str
    state: str  # after it
    reason: str


class Look(NamedTuple):
    """What came of a direct look."""

    number: int
    answer: str
    detail: str
    at: float


@dataclass(slots=True)
class Suspect:
    """The suspicion of one node, and what spoke for it. Times are the observer's."""

    state: str = TRUSTED
    reason: str = ""
    life_at: float = -math.inf  # the last sign of life by another way than a beat
    vouched: bool = False  # the job has vouched for it in this silence: that renews its time once
    mute: bool = False  # in this silence no way was left on which it could be heard
    muted_s: float = 0.0  # for how long so, until a look said that it lives
    grouped: bool = False  # others fell silent with it: not its own silence
    in_group: bool = False  # they still are
    asked_at: float = -math.inf
    asked: dict[int, float] = field(default_factory=dict)  # looks under way -> when they were asked for
    look: Look | None = None
    unanswered_since: float = math.inf  # the first of the looks that got nothing back, without a break
    same_since: float = math.inf  # the first look of this silence since which all of them have shown the same
    beat: Beat | None = None  # what its agent said in this silence, by a look
    trail: deque[Turn] = field(default_factory=lambda: deque(maxlen=TRAIL_KEPT))

    def learn(self, fact: str, now: float, reason: str) -> str:
        """Fold a fact; returns the state before it."""
        before, self.state = self.state, TABLE[self.state, fact]
        self.reason = reason if self.state != TRUSTED else ""
        if self.state != before or (self.state != TRUSTED and self.trail and self.trail[-1].fact != fact):
            self.trail.append(Turn(round(now, 3), fact, self.state, reason))
        if self.state == TRUSTED and before != TRUSTED:
            self._over()
        return before

    def ask(self, number: int, now: float) -> None:
        """A look at it begins."""
        self.asked_at = now
        self.asked[number] = now
        for old in list(itertools.islice(self.asked, max(len(self.asked) - ASKED_MAX, 0))):
            del self.asked[old]

    def looked(self, number: int, answer: str, detail: str, now: float) -> bool:
        """Fold what came of a look; False when it was not asked for, or is told already."""
        if self.asked.pop(number, None) is None:
            return False
        fact = _FACT_OF.get(answer)
        newest = self.look is None or number > self.look.number
        if newest:
            same = self.look is not None and _FACT_OF.get(self.look.answer) == fact
            self.same_since = min(self.same_since, now) if same else now
            self.look = Look(number, answer, detail, now)
            self.unanswered_since = min(self.unanswered_since, now) if answer == ev.SILENT else math.inf
        if fact is not None:
            self.life_at, self.mute = max(self.life_at, now), False
            self.learn(fact, now, f"a direct look: {answer}{f', {detail}' if detail else ''}")
        elif answer == ev.SILENT and newest and not self.vouched:
            self.mute = True
        return True

    def vouch(self, at: float, now: float, reason: str) -> None:
        """The job went on with it at `at`: that renews its time once per silence."""
        if not self.vouched:
            self.vouched, self.mute = True, False
            self.life_at = max(self.life_at, at)
        self.learn(VOUCHED, now, reason)

    def seen_alive(self, now: float, within_s: float) -> str:
        """What the last look says, where it speaks for the machine and is recent; "" otherwise."""
        look = self.look
        alive = look is not None and look.answer in _FACT_OF and now - look.at <= within_s
        return look.answer if alive and look is not None else ""

    def silent_to_looks(self, since: float) -> bool:
        """A look has come back after `since`, and the last one got nothing."""
        return self.look is not None and self.look.at > since and self.look.answer == ev.SILENT

    def silent_to_looks_s(self) -> float:
        """For how long all looks have got nothing: a single one is lost where packets are."""
        return self.look.at - self.unanswered_since if self.look is not None and self.look.answer == ev.SILENT else 0.0

    def _over(self) -> None:
        self.vouched = self.mute = self.grouped = self.in_group = False
        self.beat, self.muted_s = None, 0.0
        self.same_since = self.unanswered_since = math.inf
        self.asked.clear()
        self.asked_at = -math.inf
