"""From the ends of steps to what asking has cost, beside how much stretches differ in which nobody asked."""

import statistics
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple


class Stretch(NamedTuple):
    began: float
    ended: float
    is_asked: bool


class Steps(NamedTuple):
    """Of one stretch, in milliseconds."""

    many: int
    mean: float
    median: float
    p99: float


WHAT = ("mean", "median", "p99")


def steps(ends: Sequence[float], stretch: Stretch) -> Steps:
    """Of all steps that lie in it as a whole."""
    inside = [end for end in ends if stretch.began <= end <= stretch.ended]
    took = [1000 * (after - before) for before, after in pairwise(inside)]
    if not took:
        return Steps(0, 0.0, 0.0, 0.0)
    return Steps(len(took), statistics.fmean(took), statistics.median(took), quantile(took, 0.99))


def quantile(values: Iterable[float], share: float) -> float:
    """The value at this place of their order."""
    told = sorted(values)
    return told[min(int(share * len(told)), len(told) - 1)]


def compared(
    stretches: Sequence[Stretch], ends: Sequence[float], questions: Sequence[tuple[float, float]] = ()
) -> dict[str, Any]:
    """Each stretch over its neighbours in which nobody asked: those in which somebody did, and those in which nobody.

    `before`, `during`, `after`: medians over stretches; `asked`, `noise`: quantiles of the ratios. `meanwhile`: within
    a stretch, steps that a question fell into over those that none did.
    """
    told = [steps(ends, stretch) for stretch in stretches]
    asked = [i for i, stretch in enumerate(stretches) if stretch.is_asked]
    quiet = [i for i, stretch in enumerate(stretches) if not stretch.is_asked]
    return {
        "before": _middle([told[i - 1] for i in asked]),
        "during": _middle([told[i] for i in asked]),
        "after": _middle([told[i + 1] for i in asked]),
        "asked": {what: _spread([_over(told, i, 1, what) for i in asked]) for what in WHAT},
        "noise": {what: _spread([_over(told, i, 2, what) for i in quiet[1:-1]]) for what in WHAT},
        "meanwhile": _meanwhile([stretches[i] for i in asked], ends, questions),
    }


def _meanwhile(
    stretches: Sequence[Stretch], ends: Sequence[float], questions: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    ratios: dict[str, list[float]] = {"mean": [], "median": []}
    for stretch in stretches:
        into: dict[bool, list[float]] = {True: [], False: []}
        for before, after in pairwise(end for end in ends if stretch.began <= end <= stretch.ended):
            into[any(before < answered and asked < after for asked, answered in questions)].append(after - before)
        if into[True] and into[False]:
            ratios["mean"].append(statistics.fmean(into[True]) / statistics.fmean(into[False]))
            ratios["median"].append(statistics.median(into[True]) / statistics.median(into[False]))
    return {what: _spread(found) for what, found in ratios.items()}


def _over(told: Sequence[Steps], at: int, apart: int, what: str) -> float:
    """One stretch over the mean of the quiet ones on both sides of it."""
    around = (float(getattr(told[at - apart], what)) + float(getattr(told[at + apart], what))) / 2
    return float(getattr(told[at], what)) / around if around else 0.0


def _middle(told: Sequence[Steps]) -> dict[str, float]:
    found = {what: round(statistics.median(getattr(one, what) for one in told), 2) for what in WHAT}
    return found | {"steps": sum(one.many for one in told)}


def _spread(ratios: Sequence[float]) -> dict[str, float]:
    if not ratios:
        return {}
    return {
        "median": round(statistics.median(ratios), 3),
        "low": round(quantile(ratios, 0.1), 3),
        "high": round(quantile(ratios, 0.9), 3),
    }
