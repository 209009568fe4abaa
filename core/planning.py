"""What is to be expected of a run before it starts: from a failure rate per GPU to failures, interval and lost time."""

import math
from dataclasses import dataclass
from typing import Final

from rankpulse.core import checkpoint_cost as cost
from rankpulse.core.estimators import at_least_one

HOUR_S: Final = 3600.0
YEAR_H: Final = 8760.0
# Meta's research clusters: a job of 1,024 GPUs failed every 7.9 hours, one of 8 every 47.7 days (Kokolis et al., 2024)
PRIOR_PER_GPU_HOUR: Final = 1 / 8000


@dataclass(frozen=True, slots=True)
class Plan:
    """Hours unless named otherwise. Lost hours are of the wall clock; times the GPUs they are what was paid for."""

    gpus: int
    days: float
    per_gpu_hour: float
    mtbf_h: float
    expected_failures: float
    chance: float
    interval_s: float
    young_s: float
    daly_s: float
    lost_share: float
    lost_h: float
    lost_gpu_h: float
    lost_hourly_share: float


def per_hour_by_afr(afr: float) -> float:
    """afr: failures per device and year, as disk makers and cloud operators count: 0.09 is 9 %. Above 1 is possible."""
    return afr / YEAR_H


def per_hour_by_chance(chance: float, days: float) -> float:
    """From the chance that one GPU fails within so many days; below 1."""
    return -math.log1p(-chance) / (days * 24)


def plan(gpus: int, days: float, per_gpu_hour: float, *, save_s: float, recover_s: float) -> Plan:
    """One GPU that fails stops the whole run, and they fail independently: the least that is to be expected."""
    per_hour = gpus * per_gpu_hour
    mtbf_s = HOUR_S / per_hour if per_hour else math.inf
    run_s = days * 24 * HOUR_S
    interval_s = min(cost.exact(save_s, mtbf_s), run_s)
    share = cost.lost_share(interval_s, save_s, recover_s, mtbf_s)
    return Plan(
        gpus=gpus,
        days=days,
        per_gpu_hour=per_gpu_hour,
        mtbf_h=mtbf_s / HOUR_S,
        expected_failures=per_hour * days * 24,
        chance=at_least_one(per_hour * days * 24),
        interval_s=interval_s,
        young_s=min(cost.young(save_s, mtbf_s), run_s),
        daly_s=min(cost.daly(save_s, mtbf_s), run_s) if math.isfinite(mtbf_s) else run_s,
        lost_share=share,
        lost_h=share * days * 24,
        lost_gpu_h=share * days * 24 * gpus,
        lost_hourly_share=cost.lost_share(HOUR_S, save_s, recover_s, mtbf_s),
    )
