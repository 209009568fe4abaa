"""Failure rates as people say them: per year, by chance, or as time between failures."""

import re
from typing import Final, NamedTuple

from rankpulse.cli.failing import Failed
from rankpulse.core import planning
from rankpulse.core.estimators import rate_exact

_NUMBER: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:e([+-]?\d{1,2}))?\s*(%?)", re.ASCII | re.IGNORECASE)
_WITHIN: Final = re.compile(r"(.+?)/\s*(\d{1,6}(?:\.\d*)?)\s*d(?:ays?)?", re.ASCII)
_SEEN: Final = re.compile(r"(\d{1,7})\s*/\s*(\d{1,12}(?:\.\d*)?)\s*h?", re.ASCII)
_MOST_AFR: Final = 1000.0
_LEAST_MTBF_H, _MOST_MTBF_H = 0.001, 1e7  # some seconds, and a thousand years


class Asked(NamedTuple):
    """What the command line said; None where it said nothing."""

    gpus: int
    days: float
    afr: str | None
    chance: str | None
    seen: str | None
    mtbf_h: float | None
    save_s: float
    restart_s: float


class Rate(NamedTuple):
    """low, high: how far it may be off."""

    per_gpu_hour: float
    source: str
    low: float
    high: float
    names: tuple[str, str, str] = ("half as often", "as said", "twice as often")


def _guess(per_gpu_hour: float, source: str) -> Rate:
    """A rate given beforehand is a guess: it may be wrong by a factor of two, either way."""
    return Rate(per_gpu_hour, source, per_gpu_hour / 2, per_gpu_hour * 2)


def rate_of(asked: Asked) -> Rate:
    """The failure rate per GPU hour, from whichever way it was said."""
    said = [name for name in ("afr", "chance", "seen", "mtbf_h") if getattr(asked, name) is not None]
    if len(said) > 1:
        options = " and ".join("--" + name.replace("_", "-") for name in said)
        raise Failed(f"{options} say the same thing: give one")
    if asked.afr is not None:
        afr = _share(asked.afr, "--afr", "--afr 9%")
        if afr > _MOST_AFR:
            raise Failed(f"--afr {asked.afr}: a GPU that fails more than {_MOST_AFR:.0f} times a year is no GPU")
        return _guess(planning.per_hour_by_afr(afr), f"{afr:.3g} failures per GPU and year ({100 * afr:.3g} %)")
    if asked.chance is not None:
        return _by_chance(asked.chance)
    if asked.seen is not None:
        return _by_log(asked.seen)
    if asked.mtbf_h is not None:
        if not _LEAST_MTBF_H <= asked.mtbf_h <= _MOST_MTBF_H:
            raise Failed(f"--mtbf-h {asked.mtbf_h:g}: give hours above 0, from {_LEAST_MTBF_H:g} to {_MOST_MTBF_H:g}")
        return _guess(1 / asked.mtbf_h / asked.gpus, f"the run fails every {asked.mtbf_h:g} h")
    return _guess(
        planning.PRIOR_PER_GPU_HOUR, "a failure per 8,000 GPU hours, as Meta published; yours will differ: --afr"
    )


def _by_chance(text: str) -> Rate:
    match = _WITHIN.fullmatch(text.strip())
    if match is None or float(match[2]) <= 0:
        raise Failed(f"--chance {text}: say how likely and in how many days, for example --chance 1%/30d")
    chance = _share(match[1], "--chance", "--chance 1%/30d")
    if chance >= 1:
        raise Failed(f"--chance {text}: a chance is below 100 %; for more than one failure per GPU take --afr")
    return _guess(
        planning.per_hour_by_chance(chance, float(match[2])), f"{chance:.3%} of the GPUs fail within {match[2]} days"
    )


def _by_log(text: str) -> Rate:
    """What was counted, with its exact interval. Of none the upper bound is all that is known: it is planned with."""
    match = _SEEN.fullmatch(text.strip())
    if match is None or float(match[2]) <= 0:
        raise Failed(f"--seen {text}: give failures/GPU hours, as `rankpulse ledger show` counts them: --seen 12/96000")
    count, hours = int(match[1]), float(match[2])
    bounds = rate_exact(count, hours)
    names = ("at least, 90 %", "as seen", "at most, 90 %")
    source = f"{count:,} failures in {hours:,.0f} GPU hours"
    if not count:
        source += ": planned with the most that this allows"
    return Rate(count / hours if count else bounds.high, source, bounds.low, bounds.high, names)


def _share(text: str, option: str, example: str) -> float:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise Failed(f"{option} {text}: give a share, for example {example}")
    return float(match[1]) * 10.0 ** int(match[2] or 0) / (100 if match[3] else 1)
