"""When to save, and how many steps until it is looked at again. Pure: time and measurements are handed in.

Ranks must decide the same, and their clocks differ: rank 0 decides, and tells all at check points, whose step numbers
were agreed at the one before. Between check points nobody speaks.
"""

import math
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
_CHECKS: Final = 8  # check points per interval, about


def auto_s(save_s: float | None, mtbf_s: float | None, world_size: int, advised_s: float | None = None) -> float:
    """The interval when nobody gave one: Daly's estimate of the optimum, within what people expect of a job.

    save_s: None before the first save. mtbf_s: None when nobody told: see RANK_MTBF_S. advised_s: the optimum by the
    monitor, which knows how often this run has failed; None where it does not say.
    """
    cost = FIRST_SAVE_S if save_s is None else max(save_s, 1e-3)
    best = advised_s or daly(cost, mtbf_s or RANK_MTBF_S / world_size)
    return min(max(best, SHORTEST_S, cost / MOST_OF_TIME), max(LONGEST_S, cost / MOST_OF_TIME))


@dataclass(frozen=True, slots=True)
class Check:
    """Whether to save now, and the number of steps until the next check."""

    due: bool
    next_in: int


def check(*, interval_s: float, since_save_s: float, since_check_s: float, steps: int) -> Check:
    """At a check point on rank 0.

    since_save_s: since the last save (or the start). since_check_s, steps: since the last check point, 0 steps when
    this is the first one. At most an eighth of the interval passes unwatched, as far as steps take equally long.
    """
    due = since_save_s >= interval_s
    if steps <= 0 or since_check_s <= 0:
        return Check(due, 1)
    step_s = since_check_s / steps
    left_s = interval_s if due else interval_s - since_save_s
    fit = math.floor(min(left_s, interval_s / _CHECKS) / step_s)
    return Check(due, max(1, min(fit, 2 * steps)))
