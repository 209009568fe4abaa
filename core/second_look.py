"""Before anything is done about a standstill that has lasted: is it still so?

The first look at the ranks is taken when a standstill is suspected. A job that evaluates, or saves, without saying so
stands at its step as well, and one look finds somebody behind there, too. So the ranks are looked at anew shortly
before an action: a culprit that has gone on in its collectives meanwhile is at work.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from rankpulse.core import diagnosis as d
from rankpulse.core import policy
from rankpulse.core import records as r
from rankpulse.core.assessing import Assessor, Places, moved
from rankpulse.core.desk import Desk
from rankpulse.core.diagnosis import Diagnosis
from rankpulse.core.standstill import Stand
from rankpulse.core.views import RunView
from rankpulse.core.weighing import UNKNOWN

APART_S = 6.0  # between the first look and the second; with less patience than that there is only one
ANEW_S = 30.0  # where the second look blames nobody, there is another one after so long
LOOKS_MAX = 20  # per standstill


@dataclass
class Look:
    """One order of evidence. Times are the observer's."""

    order: r.Order
    asked_at: float
    before: Places
    number: int
    found: Diagnosis | None = None
    places: Places = field(default_factory=dict)


class SecondLooks:
    """One per judge; knows the standstills of this term."""

    def __init__(
        self, desk: Desk, assessor: Assessor, collect: Callable[[RunView, str], r.Order], wait_s: float
    ) -> None:
        self._desk, self._assessor, self._collect, self._wait_s = desk, assessor, collect, wait_s
        self._of: dict[str, Look] = {}

    def forget(self, run_uid: str) -> None:
        self._of.pop(run_uid, None)

    def wanted(self, order: r.Order) -> bool:
        """Whether this order of evidence is still needed."""
        mine = self._of.get(order.run_uid)
        return mine is not None and mine.order.order_id == order.order_id and mine.found is None

    def judge(
        self, run: RunView, stand: Stand, found: Diagnosis, first: Places, asked_at: float | None
    ) -> tuple[Diagnosis, float]:
        """What is known by now, and for how long the round may be said to stand: not long enough to act upon while
        the answers are on their way. `first`, `asked_at`: of the first look, as far as this monitor took it.
        """
        act_s, now = self._desk.settings.policy.hang_act_s, self._desk.now
        mine = self._look(run, stand)
        if act_s < APART_S or stand.lasted_s < act_s or found.klass not in policy.ENDED:
            return found, stand.lasted_s
        not_yet = min(stand.lasted_s, act_s - 0.001)
        if mine is None and asked_at is not None and now - asked_at < APART_S:
            return found, not_yet
        nobody = mine is not None and mine.found is not None and mine.found.klass not in policy.ENDED
        due = nobody and mine is not None and now - mine.asked_at >= ANEW_S and mine.number < LOOKS_MAX
        if mine is None or due:
            mine = self._ask(run, stand, first if mine is None else mine.places, 1 if mine is None else mine.number + 1)
        if mine.found is None and not self._heard(run, stand, mine, found):
            return found, not_yet
        return mine.found or found, stand.lasted_s

    def _look(self, run: RunView, stand: Stand) -> Look | None:
        mine = self._of.get(run.uid)
        same = mine is not None and (mine.order.round, mine.order.kind) == (
            run.current.number,
            _kind(stand, mine.number),
        )
        return mine if same else None

    def _ask(self, run: RunView, stand: Stand, before: Places, number: int) -> Look:
        kind = _kind(stand, number)
        stored = self._desk.folder.ordered(run.uid, run.current.number, kind)
        mine = self._of[run.uid] = Look(stored or self._collect(run, kind), self._desk.now, before, number)
        return mine

    def _heard(self, run: RunView, stand: Stand, mine: Look, found: Diagnosis) -> bool:
        """Whether the answers are in, or will not come; then they are weighed."""
        mine.order = self._assessor.ask(run, mine.order, "does it still stand?")
        if not self._assessor.everybody(run, mine.order) and self._desk.now - mine.asked_at < self._wait_s:
            return False
        assessed = self._assessor.assess(run, stand, mine.order)
        if assessed is None:
            return False
        mine.places, mine.found = assessed.places, found if assessed.blind else assessed.found
        went_on = [rank for rank in _whom(mine) if moved(mine.before.get(rank), mine.places.get(rank))]
        if went_on:
            mine.found = _at_work(run, mine.found, went_on)
        return True


def _whom(mine: Look) -> list[int]:
    """Who must not have moved: the culprits; everybody where it is no rank's fault."""
    blamed = [member.rank for member in mine.found.culprits] if mine.found is not None else []
    return blamed or sorted(mine.places)


def _kind(stand: Stand, number: int) -> str:
    return f"collect-{max(stand.highest, 0)}-{number}"


def _at_work(run: RunView, found: Diagnosis, moved: list[int]) -> Diagnosis:
    ranks = ", ".join(map(str, moved[:8]))
    why = f"rank {ranks} went on in its collectives between two looks: at work outside of its steps, evaluating for one"
    return found._replace(
        klass=d.UNKNOWN,
        culprits=(),
        cascade=d.others(run.current, ()),
        nodes=(),
        confidence=UNKNOWN,
        summary="the job stands still: no laggard",
        reasons=(*found.reasons, why),
        signature="",
        advice="",
    )
