"""How long to wait before a silent node is given up: what waiting costs against what a needless restart costs.

A node is silent on every path since t. Waiting longer costs the job time if it is dead; giving it up costs a restart if
it would have come back. Per day and node, a rule that gives up after T seconds costs

    deaths * T  +  silences * S(T) * R

with `deaths` and `silences` per node-day (the latter: on every path, and they heal by themselves), S(T) the share of
those silences that last longer than T, and R what a restart costs the job in seconds. T* is where that is least. (The
same as to wait while the hazard of healing exceeds that of death over R: `deaths = silences * f(T) * R`, f the density
of S; Bayes' rule for one decision.)

What is not known yet of a fleet is a prior. Its numbers are chosen, not measured, and meant to be replaced by what a
fleet shows; the rates count as `PRIOR_DAYS` node-days of experience:

* a node dies 6.5e-3 times per day (0.83 failures per day in 128 nodes of 8 GPUs: what large trainings publish);
* a whole node freezes and comes back 2e-3 times per day, for lognormal(median 3 s, sigma 1): live migration, soft
  lockups, power dips;
* a rack or switch pauses and comes back 0.05 times per day, half of those with the fabric of the job, for
  lognormal(2.5 s, 0.8); it is lost for good once in three years;
* where no peer can tell whether the job waits, a path that is out alone looks the same: twice as many silences.

How long silences last is learned from those that healed: the logarithms of their lengths update mean and variance of
the prior, which count as `PRIOR_SILENCES` of them (normal with unknown mean and variance, conjugate). S(T) is then the
tail of Student's t in log T, wider than the lognormal: a few short silences do not promise that there are no long ones.
Silences shorter than a deadline are never seen; that makes the rate a little too low and the tail a little too long.
One silence of many nodes together is no silence of each of them, and is not counted here.

Several at once are not given up sooner than one. But racks are bounded: the rule would wait for long, for long pauses
of racks are as frequent as losses are rare; a lost rack is to be found within 18 s, so its time is `RACK_MOST_S` at
most, also where one node is waited for longer. With the numbers above that costs about 4 s of a job's time per day.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from rankpulse.core.records import FleetLearned
from rankpulse.core.settings import DetectSettings

LEAST_S, MOST_S = 3.0, 60.0
GRID_S = 0.25
PRIOR_DAYS = 500.0  # node-days that the priors weigh as much as
PRIOR_SILENCES = 10
RACK_MOST_S = 17.0
PRIOR_RESTARTS = 3  # restarts that the configured cost of one weighs as much as


class Prior(NamedTuple):
    """Rates per day of one node or rack; the silences that heal are lognormal."""

    deaths: float
    silences: float
    median_s: float
    sigma: float


NODE: Final = Prior(deaths=6.5e-3, silences=2e-3, median_s=3.0, sigma=1.0)
UNWITNESSED: Final = Prior(deaths=6.5e-3, silences=4e-3, median_s=3.0, sigma=1.0)
RACK: Final = Prior(deaths=1 / 1095, silences=0.025, median_s=2.5, sigma=0.8)


class Known(NamedTuple):
    """What a fleet has shown."""

    days: float = 0.0
    deaths: int = 0
    healed_s: tuple[float, ...] = ()  # the newest silences that healed; seconds
    healed: int = 0  # of all


class Times(NamedTuple):
    """How long nothing may be heard of a node on any path before it is given up. Seconds."""

    node_s: float  # its run stands still
    unwitnessed_s: float  # no peer can tell whether it does
    rack_s: float  # of several nodes together
    restart_s: float  # what a restart is taken to cost
    by_rule: tuple[str, ...]  # which of them follow from the cost rule; the others are settings
    bounded: tuple[str, ...] = ()  # and where the rule would wait for longer than we promise


class Tail(NamedTuple):
    """How long silences last that heal: Student's t in the logarithm of seconds."""

    mean: float
    scale: float
    freedom: int

    def share_longer(self, than_s: float) -> float:
        """S: the share of silences that last longer."""
        t = (math.log(than_s) - self.mean) / self.scale
        return 0.5 * (1.0 - math.copysign(_within(abs(t), self.freedom), t))


def tail(prior: Prior, healed_s: Sequence[float]) -> Tail:
    """What is to be expected of the next silence, after those that were seen."""
    logs = [math.log(max(seconds, 0.001)) for seconds in healed_s]
    n, k = len(logs), PRIOR_SILENCES
    before, seen = math.log(prior.median_s), math.fsum(logs) / n if n else 0.0
    mean = (k * before + n * seen) / (k + n)
    spread = k * prior.sigma**2 + math.fsum((x - seen) ** 2 for x in logs) + k * n / (k + n) * (seen - before) ** 2
    return Tail(mean, math.sqrt(spread / (k + n) * (k + n + 1) / (k + n)), k + n)


def _within(t: float, freedom: int) -> float:
    """The probability that Student's t lies within +-t, for a whole number of degrees of freedom, at least 2."""
    angle = math.atan(t / math.sqrt(freedom))
    cosine, sine, odd = math.cos(angle), math.sin(angle), freedom % 2
    term = total = cosine if odd else 1.0
    for step in range(2 + odd, freedom, 2):
        term *= (step - 1) / step * cosine * cosine
        total += term
    return 2.0 / math.pi * (angle + sine * total) if odd else sine * total


def best_s(prior: Prior, known: Known, restart_s: float) -> float:
    """T*, in seconds between LEAST_S and MOST_S."""
    days = PRIOR_DAYS + known.days
    deaths = (prior.deaths * PRIOR_DAYS + known.deaths) / days
    silences = (prior.silences * PRIOR_DAYS + known.healed) / days
    healing = tail(prior, known.healed_s)

    def cost(t: float) -> float:
        return deaths * t + silences * healing.share_longer(t) * restart_s

    steps = round((MOST_S - LEAST_S) / GRID_S)
    return min((LEAST_S + GRID_S * step for step in range(steps + 1)), key=cost)


def restart_cost_s(configured_s: float, measured_s: Sequence[float]) -> float:
    """What a restart costs: the mean of those that were measured and of the configured cost, which weighs some."""
    return (PRIOR_RESTARTS * configured_s + sum(measured_s)) / (PRIOR_RESTARTS + len(measured_s))


def times(settings: DetectSettings, learned: FleetLearned | None) -> Times:
    """The times in force: a setting above 0 as it is, the others by the rule."""
    measured = learned.restart_s if learned is not None else ()
    restart_s = restart_cost_s(settings.restart_cost_s, measured)
    known = Known()
    if learned is not None:
        known = Known(learned.node_days, learned.deaths, learned.healed_s, learned.healed)
    ruled = {
        "node_dead_after_s": lambda: best_s(NODE, known, restart_s),
        "unwitnessed_after_s": lambda: best_s(UNWITNESSED, known, restart_s),
        "rack_dead_after_s": lambda: best_s(RACK, Known(), restart_s),
    }
    by_rule = tuple(name for name in ruled if getattr(settings, name) <= 0)
    node, unwitnessed, rack = (ruled[name]() if name in by_rule else getattr(settings, name) for name in ruled)
    if "rack_dead_after_s" in by_rule:
        rack = max(rack, node)  # several at once are not given up sooner than one, as far as the bound lets us
    bounded = ("rack_dead_after_s",) if "rack_dead_after_s" in by_rule and rack > RACK_MOST_S else ()
    return Times(node, unwitnessed, min(rack, RACK_MOST_S) if bounded else rack, restart_s, by_rule, bounded)
