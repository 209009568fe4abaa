"""Which nodes or GPUs fail more often than the rest of the fleet, and which only had bad luck.

Each is tested against all others by the exact conditional test: of the failures of both, its own are binomial with
its part of the exposure as chance, whatever the rate is (Przyborowski and Wilenski, Biometrika 31, 1940). Many are
tested at once, so of those that are called lemons at most the part `fdr` is expected to be none: Benjamini and
Hochberg, JRSS B 57 (1995). A lemon has failed at least `LEAST` times, too: two failures are a reason to look, not to
exclude.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from rankpulse.core.distributions import binomial_at_least
from rankpulse.core.estimators import LEVEL, Bounds, share

FDR: Final = 0.05
LEAST: Final = 3


@dataclass(frozen=True, slots=True)
class Score:
    """One node or GPU. ratio: its rate by that of all others, with its interval; q: the smallest FDR that names it."""

    name: str
    failures: int
    exposure: float
    expected: float
    ratio: float
    bounds: Bounds
    p: float
    q: float
    lemon: bool
    why: str


class Quiet(NamedTuple):
    """Those that have not failed, all together: what they were exposed to counts, and none of them needs a score."""

    number: int = 0
    exposure: float = 0.0


NONE: Final = Quiet()


def scores(
    seen: Mapping[str, tuple[int, float]], *, quiet: Quiet = NONE, fdr: float = FDR, times: float = 1.0
) -> tuple[Score, ...]:
    """Worst first. seen: failures and exposure by name. times: how many times the others' rate is still no matter.

    Nothing exposed has no score. Failures are those whose fault it was: victims of a cascade are not counted. `quiet`
    gives the others the same scores as if each of them stood in `seen`, at a small part of the work.
    """
    count = sum(failures for failures, _ in seen.values())
    whole = sum(exposure for _, exposure in seen.values()) + quiet.exposure
    drawn = [(name, *one, _p(*one, count, whole, times)) for name, one in seen.items() if one[1] > 0]
    qs = benjamini_hochberg([p for *_, p in drawn], quiet.number)
    odds = {failures: share(failures, count, LEVEL) for failures in {one[1] for one in drawn}}
    found = (_score(*one, q, count, whole, odds[one[1]], fdr) for one, q in zip(drawn, qs, strict=True))
    return tuple(sorted(found, key=lambda score: (score.p, -score.failures, score.name)))


def benjamini_hochberg(ps: list[float], ones: int = 0) -> list[float]:
    """The q-value of each p-value, in the order given: the smallest false discovery rate at which it is a discovery.

    ones: so many more were tested whose p-value is 1.
    """
    order = sorted(range(len(ps)), key=lambda i: ps[i], reverse=True)
    qs, least = [1.0] * len(ps), 1.0
    for passed, i in enumerate(order):
        least = min(least, ps[i] * (len(ps) + ones) / (len(ps) - passed))
        qs[i] = least
    return qs


def _p(failures: int, exposure: float, count: int, whole: float, times: float) -> float:
    """The chance of so many failures or more, if its rate were `times` that of the others."""
    others = whole - exposure
    return binomial_at_least(failures, count, times * exposure / (times * exposure + others)) if others > 0 else 1.0


def _score(
    name: str, failures: int, exposure: float, p: float, q: float, count: int, whole: float, odds: Bounds, fdr: float
) -> Score:
    others = whole - exposure
    per = exposure / others if others > 0 else math.inf
    bounds = Bounds(_odds(odds.low) / per, _odds(odds.high) / per)
    ratio = _odds(failures / count) / per if count else 1.0
    lemon = q <= fdr and failures >= LEAST
    expected = count * exposure / whole
    why = _why(failures, expected, q, fdr)
    return Score(name, failures, exposure, expected, ratio, bounds, p, q, lemon, why)


def _why(failures: int, expected: float, q: float, fdr: float) -> str:
    told = f"failed {failures} times where its part of the fleet's failures is {expected:.2g}"
    if q > fdr:
        return f"{told}: among so many, chance does that (q {q:.2g})"
    return f"{told} (q {q:.2g})" + ("" if failures >= LEAST else f"; under {LEAST} failures none is called a lemon")


def _odds(chance: float) -> float:
    return chance / (1 - chance) if chance < 1 else math.inf
