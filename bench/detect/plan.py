"""How much is measured: the whole thing takes the better part of an hour, the quick one is over before the tea is."""

from typing import Final

import msgspec

from rankpulse.bench.detect import parameters as z

SEED: Final = 1


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Days are job-days of the trace. The first so many of all days are also used for what costs more."""

    seed: int = SEED
    scale: float = 1.0
    days: int = 100  # our fast point and its deaths, and the usual detectors on our stream
    seconds: float = z.DAY_S  # of each day
    more_days: int = 100  # after those, for the default point alone: it convicts rarely, and is cheap to follow
    experience_days: int = 20  # other days that the cost rule has learned from before the first
    rank_days: int = 8  # the usual detectors on the study's stream, one sender per rank
    layer_days: int = 10
    manner_days: int = 15
    pause_days: int = 20
    pauses: int = 10  # per day, kind and operating point
    deaths: int = 50  # per day, for the usual detectors
    our_deaths: int = 10  # per day and operating point: each is a minute and more of the real engine
    rack_deaths: int = 2
    layer_deaths: int = 4
    manner_deaths: int = 4

    @property
    def all_days(self) -> int:
        return self.days + self.more_days


def full(seed: int, scale: float, days: int | None) -> Plan:
    """At scale 1 everything; at the others only what compares the detectors."""
    days = (100 if scale == 1.0 else 24) if days is None else days
    more = days if scale <= 1.0 else 0  # where disturbances are many, the default point convicts often enough
    plan = Plan(seed=seed, scale=scale, days=days, more_days=more)
    if scale == 1.0:
        return plan
    return msgspec.structs.replace(plan, rank_days=0, layer_days=0, manner_days=0, pause_days=0)


def quick(seed: int, scale: float, days: int | None) -> Plan:
    """A few days of three hours. Enough to see that everything works, not to tell anything."""
    return Plan(
        seed=seed,
        scale=scale,
        days=3 if days is None else days,
        seconds=10_800.0,
        more_days=0,
        experience_days=0,
        rank_days=0,
        layer_days=1,
        manner_days=1,
        pause_days=1,
        pauses=4,
        our_deaths=4,
        rack_deaths=1,
        layer_deaths=1,
        manner_deaths=1,
    )
