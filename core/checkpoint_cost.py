"""How often to save: what saving costs against what a failure costs. Pure; all times in one unit, seconds as a rule.

interval: work between two saves. save: by how much one save holds up training. recover: from a failure until training
goes on, without the steps done again. mtbf: of the whole job.

Young, "A first order approximation to the optimum checkpoint interval", CACM 17 (1974). Daly, "A higher order estimate
of the optimum checkpoint interval for restart dumps", FGCS 22 (2006), from whose complete model (failures strike also
while saving and recovering) the exact optimum here follows: it is the root of interval/mtbf + expm1(-(interval + save)
/ mtbf), and does not depend on `recover`.
"""

import math
from typing import Final

_LARGEST: Final = 700.0  # beyond e^700 nothing is ever finished


def young(save: float, mtbf: float) -> float:
    """The interval that costs least where a save is short beside the mean time between failures."""
    return math.sqrt(2 * save * mtbf)


def daly(save: float, mtbf: float) -> float:
    """The estimate of higher order."""
    if save >= 2 * mtbf:
        return mtbf
    ratio = save / (2 * mtbf)
    return math.sqrt(2 * save * mtbf) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - save


def exact(save: float, mtbf: float) -> float:
    """The interval that costs least by the complete model: by Newton's method, some five turns."""
    if save <= 0 or math.isinf(mtbf):
        return 0.0 if save <= 0 else math.inf
    cost = save / mtbf
    part = max(daly(save, mtbf) / mtbf, 1e-9)
    for _ in range(50):
        step = (part + math.expm1(-(part + cost))) / -math.expm1(-(part + cost))
        part -= step
        if abs(step) <= 1e-14 * part:
            break
    return part * mtbf


def first_order_loss(interval: float, save: float, recover: float, mtbf: float) -> float:
    """Time lost per time of work: save cost + expected failures × (interval / 2 + recovery). Young's is its optimum."""
    return save / interval + (interval / 2 + recover) / mtbf


def overhead(interval: float, save: float, recover: float, mtbf: float) -> float:
    """Time lost per time of work by the complete model; inf where nothing would ever be finished."""
    if math.isinf(mtbf):
        return save / interval
    if (interval + save + recover) / mtbf > _LARGEST:
        return math.inf
    return math.exp(recover / mtbf) * math.expm1((interval + save) / mtbf) * mtbf / interval - 1


def lost_share(interval: float, save: float, recover: float, mtbf: float) -> float:
    """The part of the wall-clock time that is lost: 1 - ETTR, with saving counted as lost."""
    over = overhead(interval, save, recover, mtbf)
    return 1.0 if math.isinf(over) else over / (1 + over)
