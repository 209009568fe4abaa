"""Standing still and at work: a rank that recompiles, or reads, or computes without a word is slow, not hung.

The evidence of a standstill may say so: the one that holds up the others uses the CPU, or nobody waits for anybody and
all of them do. Then nothing is concluded yet. It is looked at again, at growing distances, and when the work is over
and the rank still has not come, it hangs. Work has a clock of its own, learned like that of any phase: one that is
exceeded counts as a hang, for a loop that never ends is at work, too.
"""

from collections.abc import Callable
from dataclasses import dataclass

from rankpulse.core import records as r
from rankpulse.core.assessing import Assessor
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.phases import AT_WORK
from rankpulse.core.standstill import Stand
from rankpulse.core.views import RunView

FIRST_S, GROWS, LATEST_S = 5.0, 1.5, 60.0  # from one look to the next
LOOKS_MAX = 40  # per standstill
WORK_FACTOR = 2.0  # times the deadline of a phase that is no step: so long may one at work take


@dataclass
class Work:
    """One standstill in which somebody is at work. Times are the observer's."""

    round: int
    step: int
    looked_at: float  # when the last look was asked for
    number: int = 0  # of looks
    order: r.Order | None = None  # the look that is under way
    found: Diagnosis | None = None  # by the look that found nobody at work
    found_at: float = 0.0
    lasted_s: float = 0.0
    trains: bool = True  # in a train phase, whose usual steps are short


class AtWork:
    """One per judge; knows the standstills of this term."""

    def __init__(
        self, desk: Desk, assessor: Assessor, collect: Callable[[RunView, str], r.Order], wait_s: float
    ) -> None:
        self._desk, self._assessor, self._collect, self._wait_s = desk, assessor, collect, wait_s
        self._of: dict[str, Work] = {}

    def forget(self, run: RunView) -> None:
        """It moves, or has ended. Work that came to an end by itself is a stay like any other."""
        mine = self._of.pop(run.uid, None)
        went_on = bool(run.rounds) and run.open() and not run.current.exits
        if mine is None or not went_on or mine.round != run.current.number:
            return
        if mine.trains and mine.found is None:
            run.clocks.stayed(AT_WORK, mine.lasted_s, self._desk.now)

    def wanted(self, order: r.Order) -> bool:
        """Whether this order of evidence is still needed."""
        mine = self._of.get(order.run_uid)
        return mine is not None and mine.order is not None and mine.order.order_id == order.order_id

    def judge(self, run: RunView, stand: Stand, found: Diagnosis, *, at_work: bool, told: bool) -> Diagnosis | None:
        """None: somebody is at work, wait. Else what to say: `found`, or what a later look says.

        `at_work`: somebody was seen to be when `found` was concluded. `told`: an incident tells of this standstill
        already, so there is nothing to wait for.
        """
        mine = self._of.get(run.uid)
        if mine is not None and (mine.round, mine.step) != (run.current.number, stand.highest):
            self.forget(run)
            mine = None
        if mine is None:
            if told or not at_work:
                return found
            mine = self._of[run.uid] = Work(run.current.number, stand.highest, self._desk.now)
        mine.lasted_s, mine.trains = stand.lasted_s, stand.trains
        if not told:
            self._look_again(run, stand, mine)
        limit_s = max(run.clocks.deadline_s(AT_WORK), WORK_FACTOR * stand.limit_s if not stand.trains else 0.0)
        if told or stand.lasted_s >= limit_s:
            return mine.found or found
        over = mine.found is not None and self._desk.now - mine.found_at >= self._desk.settings.detect.hang_floor_s
        return mine.found if over else None

    def _look_again(self, run: RunView, stand: Stand, mine: Work) -> None:
        """Whoever has just ended its work needs a moment to go on: only who still stands then is said to hang."""
        if mine.found is None:
            mine.found, mine.found_at = self._look(run, stand, mine), self._desk.now

    def _look(self, run: RunView, stand: Stand, mine: Work) -> Diagnosis | None:
        """What the look that is under way says, once its answers are in and say that nobody is at work any more."""
        desk = self._desk
        if mine.order is None:
            pause_s = min(FIRST_S * GROWS**mine.number, LATEST_S)
            if desk.now - mine.looked_at < pause_s or mine.number >= LOOKS_MAX:
                return None
            mine.number, mine.looked_at = mine.number + 1, desk.now
            mine.order = self._collect(run, f"collect-{max(stand.highest, 0)}-w{mine.number}")
        mine.order = self._assessor.ask(run, mine.order, "is it still at work?")
        if not self._assessor.everybody(run, mine.order) and desk.now - mine.looked_at < self._wait_s:
            return None
        assessed = self._assessor.assess(run, stand, mine.order)
        if assessed is None:
            return None
        mine.order = None
        return None if assessed.blind or assessed.at_work else assessed.found
