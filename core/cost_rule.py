"""How long to wait before a silent node is given up: what waiting costs against what a needless restart costs.

A node is silent on every path since t. Waiting longer costs the job time if it is dead; giving it up costs a restart if
it would have come back. Per day and node, a rule that gives up after T seconds costs

    deaths * T  +  silences * S(T) * R

with `deaths` and `silences` per node-day (the latter: on every path, and they heal by themselves), S(T) the share of
those silences that last longer than T, and R what a restart costs the job in seconds. T* is where that is least. (The
same as to wait while the hazard of healing exceeds that of death over R: `deaths = silences * f(T) * R`, f the density
of S; Bayes' rule for one decision.)

What is not known yet of a fleet is a prior. Its numbers are chosen, not measured, and meant to be replaced by what a
fleet shows; they count as `PRIOR_DAYS` node-days of experience:

* a node dies 6.5e-3 times per day (0.83 failures per day in 128 nodes of 8 GPUs: what large trainings publish);
* a whole node freezes and comes back 2e-3 times per day, for lognormal(median 3 s, sigma 1): live migration, soft
  lockups, power dips;
* a rack or switch pauses and comes back 0.05 times per day, half of those with the fabric of the job, for
  lognormal(2.5 s, 0.8); it is lost for good once in three years;
* where no peer can tell whether the job waits, a path that is out alone looks the same: twice as many silences.

S(T) is never extrapolated beyond what was seen: the prior's tail and the silences counted so far are added up. One
silence of many nodes together is no silence of each of them, and is not counted here.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from rankpulse.core.records import FleetLearned
from rankpulse.core.settings import DetectSettings

LEAST_S, MOST_S = 3.0, 60.0
GRID_S = 0.25
PRIOR_DAYS = 500.0  # node-days that the priors weigh as much as
PRIOR_RESTARTS = 3  # restarts that the configured cost of one weighs as much as


class Prior(NamedTuple):
    """Rates per day of one node or rack; the silences that heal are lognormal."""

    deaths: float
    silences: float
    median_s: float
    sigma: float

    def share_longer(self, than_s: float) -> float:
        """S: the share of silences that last longer."""
        return 0.5 * math.erfc(math.log(than_s / self.median_s) / (self.sigma * math.sqrt(2.0)))


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


def best_s(prior: Prior, known: Known, restart_s: float) -> float:
    """T*, in seconds between LEAST_S and MOST_S."""
    days = PRIOR_DAYS + known.days
    deaths = (prior.deaths * PRIOR_DAYS + known.deaths) / days

    def cost(t: float) -> float:
        longer = prior.silences * PRIOR_DAYS * prior.share_longer(t) + _longer(known, t)
        return deaths * t + longer / days * restart_s

    steps = round((MOST_S - LEAST_S) / GRID_S)
    return min((LEAST_S + GRID_S * step for step in range(steps + 1)), key=cost)


def _longer(known: Known, t: float) -> float:
    """How many silences of all lasted longer, judged by those that are remembered."""
    if not known.healed_s:
        return 0.0
    weight = max(known.healed, len(known.healed_s)) / len(known.healed_s)
    return weight * sum(1 for silence in known.healed_s if silence >= t)


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
    return Times(node, unwitnessed, rack, restart_s, by_rule)
