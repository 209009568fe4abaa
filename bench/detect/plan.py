"""How much is measured: the whole thing takes the better part of an hour, the quick one is over before the tea is."""

from typing import Final

import msgspec

from rankpulse.bench.detect import parameters as z

SEED: Final = 1


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Days are job-days of the trace. The first so many of them are also used for what costs more."""

    seed: int = SEED
    scale: float = 1.0
    days: int = 100
    seconds: float = z.DAY_S  # of each day
    experience_days: int = 20  # other days that the cost rule has learned from before the first
    baseline_days: int = 100  # the usual detectors, on our stream
    rank_days: int = 10  # the same on the study's stream, one sender per rank
    layer_days: int = 20
    manner_days: int = 20
    death_days: int = 100
    deaths: int = 50  # per day, for the usual detectors
    our_deaths: int = 10  # per day and operating point: each is a minute and more of the real engine
    rack_deaths: int = 2
    layer_deaths: int = 2
    manner_deaths: int = 3

    def job_days(self, days: int) -> float:
        return min(days, self.days) * self.seconds / z.DAY_S


def full(seed: int, scale: float, days: int | None) -> Plan:
    return Plan(seed=seed, scale=scale, days=100 if days is None else days)


def quick(seed: int, scale: float, days: int | None) -> Plan:
    """A few days of three hours. Enough to see that everything works, not to tell anything."""
    return Plan(
        seed=seed,
        scale=scale,
        days=4 if days is None else days,
        seconds=10_800.0,
        experience_days=0,
        rank_days=0,
        layer_days=1,
        manner_days=1,
        deaths=50,
        our_deaths=4,
        rack_deaths=1,
        layer_deaths=1,
        manner_deaths=1,
    )
