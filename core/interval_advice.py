"""The interval to save at, from what is believed of a run's failure rate and what saving and recovering were measured.

Damped by what it is worth: the word in force stands until another costs noticeably less, so trainers are not told a new
figure with every failure, and what that keeps lost is bounded by `WORTH_MOVING`.
"""

from dataclasses import dataclass
from typing import Final

from rankpulse.core import checkpoint_cost as cost
from rankpulse.core.estimators import LEVEL, Bounds
from rankpulse.core.failure_rate import RateBelief, mtbf, mtbf_bounds

WORTH_MOVING: Final = 0.002  # of the time lost
LEAST_SAVE_S: Final = 1e-3  # what was measured as less costs something all the same


@dataclass(frozen=True, slots=True)
class Advice:
    """Save after each `interval_s` of work. `bounds_s`: what it would be at the ends of the interval of the MTBF."""

    interval_s: float
    bounds_s: Bounds
    mtbf_s: float
    mtbf_bounds_s: Bounds
    lost_share: float
    moved: bool
    why: str


def advise(
    belief: RateBelief, *, save_s: float, recover_s: float, in_force_s: float | None = None, level: float = LEVEL
) -> Advice:
    """From the belief, in seconds of run time. in_force_s: the interval that trainers follow now, None for none.

    save_s, recover_s: means of what was measured; what a save holds up training, not how long it goes on behind it.
    """
    save_s, mean = max(save_s, LEAST_SAVE_S), mtbf(belief)
    bounds = mtbf_bounds(belief, level)
    best = cost.exact(save_s, mean)
    chosen = damped(best, in_force_s, save_s, mean)
    moved = chosen != in_force_s
    return Advice(
        interval_s=chosen,
        bounds_s=Bounds(cost.exact(save_s, bounds.low), cost.exact(save_s, bounds.high)),
        mtbf_s=mean,
        mtbf_bounds_s=bounds,
        lost_share=cost.lost_share(chosen, save_s, recover_s, mean),
        moved=moved,
        why=_why(chosen, best, save_s, mean, moved),
    )


def damped(best: float, in_force: float | None, save: float, mean: float) -> float:
    """The best interval, or the one in force if it loses hardly more. Recovery is lost either way: not counted."""
    if in_force is None:
        return best
    least = cost.overhead(best, save, 0.0, mean)
    return best if cost.overhead(in_force, save, 0.0, mean) > least * (1 + WORTH_MOVING) else in_force


def _why(chosen: float, best: float, save: float, mean: float, moved: bool) -> str:
    basis = f"a failure every {mean:.0f} s and {save:.3g} s for a save"
    if moved:
        return f"{chosen:.0f} s loses least at {basis}"
    return f"{chosen:.0f} s stays: at {basis} {best:.0f} s would lose less than {WORTH_MOVING:.1%} less"
