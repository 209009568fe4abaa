"""Trace Z as data: how often what disturbs the heartbeats of a job of 1,024 ranks, and for how long.

The rates are chosen, not measured; nobody has published such rates for a training cluster. They are those of the study
that this benchmark continues, and every result is given at 0.2, 1 and 5 times the rates.
"""

import math
from typing import Final, NamedTuple

DAY_S: Final = 86_400.0
INTERVAL_S: Final = 1.0
RANKS_PER_NODE: Final = 8
NODES_PER_RACK: Final = 4
NODES: Final = 128
RANKS: Final = NODES * RANKS_PER_NODE
RACKS: Final = NODES // NODES_PER_RACK
STEP_S: Final = 2.0
STEP_SPREAD: Final = 0.03  # of one step's time, as a share; a step that always takes the same would be too kind
RESTART_COST_S: Final = 600.0
FAILURES_PER_NODE_DAY: Final = 6.5e-3
BLOCKED_S: Final = 600.0  # after a restart nothing is counted until the job runs again
EVALUATION_AFTER_S: Final = 900.0  # evaluations begin between checkpoints
BURST_MOST_S: Final = 60.0
BURST_LOSS: Final = 0.6
LOSS: Final = 1e-5
FABRIC_SHARE: Final = 0.5  # of the rack pauses, those that stall the job's own traffic too


class Lognormal(NamedTuple):
    median_s: float
    sigma: float

    def tail(self, seconds: float) -> float:
        """The share that lasts longer."""
        return 0.5 * math.erfc(math.log(seconds / self.median_s) / (self.sigma * math.sqrt(2.0)))


class Uniform(NamedTuple):
    low_s: float
    high_s: float

    def tail(self, seconds: float) -> float:
        return min(max((self.high_s - seconds) / (self.high_s - self.low_s), 0.0), 1.0)


class Exponential(NamedTuple):
    mean_s: float
    most_s: float

    def tail(self, seconds: float) -> float:
        return math.exp(-seconds / self.mean_s) if seconds < self.most_s else 0.0


Size = Lognormal | Uniform | Exponential


class Disturbance(NamedTuple):
    """One row of the trace. `rate` per day and `per`; all of these rates are multiplied by the scale."""

    rate: float
    per: str
    size: Size
    what: str


CHOSEN: Final = "chosen by the study, not measured"
JITTER_S: Final = 0.003  # of the sender's clock, standard deviation
NETWORK: Final = Lognormal(0.0004, 0.5)
PUT: Final = Lognormal(0.003, 0.6)
TRACE_Z: Final[dict[str, Disturbance]] = {
    "sender_stall": Disturbance(2.0, "sender", Lognormal(0.7, 1.0), "the sender does nothing; its ranks train on"),
    "nic_burst": Disturbance(0.5, "node", Exponential(4.0, BURST_MOST_S), "60 % of what a node sends is lost"),
    "rack_pause": Disturbance(0.05, "rack", Lognormal(2.5, 0.8), "nothing passes; half of them stall the job too"),
    "freeze": Disturbance(2e-3, "node", Lognormal(3.0, 1.0), "the whole machine stands still, and comes back"),
    "observer_pause": Disturbance(4.0, "job", Uniform(0.3, 5.0), "the monitor itself does not run"),
    "election": Disturbance(2.0, "job", Uniform(1.0, 5.0), "the store takes no writes"),
    "fsync_stall": Disturbance(30.0, "job", Lognormal(0.15, 0.8), "the store takes no writes"),
    "outage": Disturbance(1.0 / 15.0, "job", Uniform(10.0, 45.0), "the store takes no writes"),
    "jitter_regime": Disturbance(0.5, "job", Lognormal(0.4, 0.8), "for 600 s, this is added to every beat"),
}
REGIME_S: Final = 600.0
CHECKPOINT_EVERY_S: Final = 1_800.0
CHECKPOINT: Final = Uniform(15.0, 30.0)
CHECKPOINT_STALLS: Final = 0.05  # of the senders, at each; multiplied by the scale
CHECKPOINT_STALL: Final = Lognormal(1.0, 0.8)
EVALUATION_EVERY_S: Final = 7_200.0
EVALUATION: Final = Uniform(40.0, 80.0)
