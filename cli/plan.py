"""`rankpulse plan`: what is to be expected of a run, before it starts. No store, no clock; text in, text out."""

import math
import re
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import msgspec

from rankpulse.cli import show
from rankpulse.cli.failing import Failed
from rankpulse.cli.plan_plot import WIDTH, draw
from rankpulse.core import planning
from rankpulse.core.planning import Plan

_NUMBER: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:e([+-]?\d{1,2}))?\s*(%?)", re.ASCII | re.IGNORECASE)
_WITHIN: Final = re.compile(r"(.+?)/\s*(\d{1,6}(?:\.\d*)?)\s*d(?:ays?)?", re.ASCII)
_MOST_AFR: Final = 1000.0
_HOPELESS: Final = 0.9  # of the time lost


class Asked(NamedTuple):
    """What the command line said; None where it said nothing."""

    gpus: int
    days: float
    afr: str | None
    chance: str | None
    mtbf_h: float | None
    save_s: float
    restart_s: float


class Rate(NamedTuple):
    per_gpu_hour: float
    source: str


def run(asked: Asked, *, as_json: bool, plot: bool) -> None:
    """Print it. Raises `Failed`, with the next step, on what cannot be meant."""
    if plot and find_spec("plotext") is None:
        raise Failed("--plot needs plotext: pip install 'rankpulse[demo]', or leave --plot out")
    rate = rate_of(asked)
    _check(asked)
    found = _plan(asked, rate.per_gpu_hour)
    if as_json:
        show.as_json(_for_programs(asked, found, rate))
        return
    out = show.console()
    show.facts(out, _facts(asked, found, rate))
    out.print()
    show.table(out, ("if they fail", "failures", "one every", "save every", "lost"), _sides(asked, rate))
    if plot:
        out.print()
        out.print(draw(found, asked.save_s, asked.restart_s, min(out.width, WIDTH)))


def rate_of(asked: Asked) -> Rate:
    """The failure rate per GPU hour, from whichever way it was said."""
    said = [name for name in ("afr", "chance", "mtbf_h") if getattr(asked, name) is not None]
    if len(said) > 1:
        options = " and ".join("--" + name.replace("_", "-") for name in said)
        raise Failed(f"{options} say the same thing: give one")
    if asked.afr is not None:
        afr = _share(asked.afr, "--afr", "--afr 9%")
        if afr > _MOST_AFR:
            raise Failed(f"--afr {asked.afr}: a GPU that fails more than {_MOST_AFR:.0f} times a year is no GPU")
        return Rate(planning.per_hour_by_afr(afr), f"{afr:.3g} failures per GPU and year")
    if asked.chance is not None:
        return _by_chance(asked.chance)
    if asked.mtbf_h is not None:
        if not 0 < asked.mtbf_h < math.inf:
            raise Failed(f"--mtbf-h {asked.mtbf_h:g}: give hours above 0, as `rankpulse ledger show` tells them")
        return Rate(1 / asked.mtbf_h / asked.gpus, f"the run fails every {asked.mtbf_h:g} h")
    return Rate(
        planning.PRIOR_PER_GPU_HOUR, "a failure per 8,000 GPU hours, as Meta published; yours will differ: --afr"
    )


def _by_chance(text: str) -> Rate:
    match = _WITHIN.fullmatch(text.strip())
    if match is None or float(match[2]) <= 0:
        raise Failed(f"--chance {text}: say how likely and in how many days, for example --chance 1%/30d")
    chance = _share(match[1], "--chance", "--chance 1%/30d")
    if chance >= 1:
        raise Failed(f"--chance {text}: a chance is below 100 %; for more than one failure per GPU take --afr")
    return Rate(
        planning.per_hour_by_chance(chance, float(match[2])), f"{chance:.3%} of the GPUs fail within {match[2]} days"
    )


def _share(text: str, option: str, example: str) -> float:
    match = _NUMBER.fullmatch(text.strip())
    if match is None:
        raise Failed(f"{option} {text}: give a share, for example {example}")
    return float(match[1]) * 10.0 ** int(match[2] or 0) / (100 if match[3] else 1)


def _check(asked: Asked) -> None:
    for name, value in (("--days", asked.days), ("--save-s", asked.save_s)):
        if not 0 < value < 1e7:
            raise Failed(f"{name} {value:g}: give a number above 0 and below ten million")
    if not 0 <= asked.restart_s < 1e7:
        raise Failed(f"--restart-s {asked.restart_s:g}: give a number from 0 to ten million")


def _plan(asked: Asked, per_gpu_hour: float) -> Plan:
    return planning.plan(asked.gpus, asked.days, per_gpu_hour, save_s=asked.save_s, recover_s=asked.restart_s)


def _facts(asked: Asked, found: Plan, rate: Rate) -> list[tuple[str, object]]:
    rows: list[tuple[str, object]] = [
        ("run", f"{found.gpus:,} {'GPU' if found.gpus == 1 else 'GPUs'} for {found.days:g} days"),
        ("failure rate", rate.source),
        ("at least one failure", f"{found.chance:.1%}"),
        ("expected failures", _count(found.expected_failures)),
        ("mean time between", _hours(found.mtbf_h)),
        ("save every", f"{_interval(found)}, at {asked.save_s:g} s a save"),
        ("by Young, by Daly", f"{_seconds(found.young_s)}, {_seconds(found.daly_s)}"),
        ("expected to be lost", f"{found.lost_share:.1%} of the time: {_lost(found)}"),
        ("if saved hourly", f"{found.lost_hourly_share:.1%} of the time"),
    ]
    if found.lost_share > _HOPELESS:
        rows.append(
            (
                "so",
                "hardly anything would get done: save and restart faster, take fewer GPUs, or look at the rate again",
            )
        )
    return rows


def _sides(asked: Asked, rate: Rate) -> list[tuple[str, ...]]:
    """A rate given beforehand is a guess: what if it is wrong by a factor of two, either way."""
    rows: list[tuple[str, ...]] = []
    for factor, name in ((0.5, "half as often"), (1.0, "as said"), (2.0, "twice as often")):
        one = _plan(asked, rate.per_gpu_hour * factor)
        rows.append((name, _count(one.expected_failures), _hours(one.mtbf_h), _interval(one), f"{one.lost_share:.1%}"))
    return rows


def _for_programs(asked: Asked, found: Plan, rate: Rate) -> dict[str, Any]:
    """JSON has no infinity: null."""
    told = {"rate": rate.source, "save_s": asked.save_s, "restart_s": asked.restart_s, **msgspec.to_builtins(found)}
    return {name: None if value == math.inf else value for name, value in told.items()}


def _interval(found: Plan) -> str:
    return _seconds(found.interval_s) if found.interval_s < found.days * 86400 else "at the end"


def _lost(found: Plan) -> str:
    return f"{found.lost_h:,.1f} h, {found.lost_gpu_h:,.0f} GPU hours"


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}"


def _hours(value: float) -> str:
    if math.isinf(value):
        return "never"
    return _seconds(value * 3600) if value < 1 else f"{value:,.1f} h" if value < 72 else f"{value / 24:,.1f} days"


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.0f} min" if value < 7200 else _hours(value / 3600)
