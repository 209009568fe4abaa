"""When to save, and how many steps until it is looked at again. Pure: time and measurements are handed in.

Ranks must decide the same, and their clocks differ: rank 0 decides, and tells all at check points, whose step numbers
were agreed at the one before. Between check points nobody speaks.
"""

import math
import statistics
from collections import deque
from dataclasses import dataclass
from typing import Final

from rankpulse.core.checkpoint_cost import daly

AUTO: Final = "auto"
# Meta's research clusters: a job of 1,024 GPUs fails every 7.9 hours, one of 8 every 47.7 days ("Revisiting
# Reliability in Large-Scale Machine Learning Research Clusters", HPCA 2025): about 8,000 hours divided by the ranks.
RANK_MTBF_S: Final = 8000 * 3600.0
FIRST_SAVE_S: Final = 10.0  # what a save is taken to cost before one has been measured
SHORTEST_S: Final = 30.0
LONGEST_S: Final = 3600.0
MOST_OF_TIME: Final = 0.1  # saving may take at most this part of it
COSTS_KEPT: Final = 5
DEADBAND: Final = 1.1
_CHECKS: Final = 8  # check points per interval, about
_CHECK_S: Final = 30.0  # and at least so often: a checkpoint may be waited for


def auto_s(save_s: float | None, mtbf_s: float | None, world_size: int, advised_s: float | None = None) -> float:
    """The interval when nobody gave one: Daly's estimate of the optimum, within what people expect of a job.

    save_s: None before the first save. mtbf_s: None when nobody told: see RANK_MTBF_S. advised_s: the optimum by the
    monitor, which knows how often this run has failed; None where it does not say.
    """
    cost = FIRST_SAVE_S if save_s is None else max(save_s, 1e-3)
    best = advised_s or daly(cost, mtbf_s or RANK_MTBF_S / world_size)
    return min(max(best, SHORTEST_S, cost / MOST_OF_TIME), max(LONGEST_S, cost / MOST_OF_TIME))


class Damped:
    """The auto interval as it is followed: one slow save, or one failure more, does not throw it about.

    What a save costs is the median of the last few. The interval moves once for each save, half of the way to where it
    should be as a ratio (by which what it loses is reckoned), and not at all for less than a tenth: what is lost there
    is below 1 %. It moves at once where another is asked (the monitor begins or ends to advise), and where saving would
    take more than its part of the time. A process begins anew with what is right then.
    """

    def __init__(self) -> None:
        self._costs: deque[float] = deque(maxlen=COSTS_KEPT)
        self._now_s: float | None = None
        self._advised = False
        self._may_move = False

    def cost_s(self, save_s: float) -> float:
        """A save was made and took so long. What a save is taken to cost from now on."""
        self._costs.append(save_s)
        self._may_move = True
        return statistics.median(self._costs)

    def followed_s(self, wanted_s: float, save_s: float | None, *, advised: bool) -> float:
        """The interval to follow now. wanted_s: by `auto_s`. save_s: what a save costs, None: not known yet."""
        before, asked_another = self._now_s, advised != self._advised
        first = before is None or (self._may_move and len(self._costs) == 1)  # until then it was a guess
        if before is None or first or asked_another:
            self._now_s = wanted_s
        elif self._may_move and abs(math.log(wanted_s / before)) > math.log(DEADBAND):
            self._now_s = math.sqrt(before * wanted_s)
        self._advised, self._may_move = advised, False
        floor_s = (save_s or 0.0) / MOST_OF_TIME
        self._now_s = max(self._now_s or wanted_s, floor_s)
        return self._now_s


@dataclass(frozen=True, slots=True)
class Check:
    """Whether to save now, and the number of steps until the next check."""

    due: bool
    next_in: int


def check(*, interval_s: float, since_save_s: float, since_check_s: float, steps: int) -> Check:
    """At a check point on rank 0.

    since_save_s: since the last save (or the start). since_check_s, steps: since the last check point, 0 steps when
    this is the first one. At most an eighth of the interval passes unwatched, and half a minute, as far as steps take
    equally long.
    """
    due = since_save_s >= interval_s
    if steps <= 0 or since_check_s <= 0:
        return Check(due, 1)
    step_s = since_check_s / steps
    left_s = interval_s if due else interval_s - since_save_s
    fit = math.floor(min(left_s, interval_s / _CHECKS, _CHECK_S) / step_s)
    return Check(due, max(1, min(fit, 2 * steps)))
