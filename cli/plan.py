"""`rankpulse plan`: what is to be expected of a run, before it starts. No store, no clock; text in, text out."""

import math
from importlib.util import find_spec
from typing import Any, Final

import msgspec

from rankpulse.cli import show
from rankpulse.cli.failing import Failed
from rankpulse.cli.plan_plot import WIDTH, draw
from rankpulse.cli.plan_rate import Asked, Rate, rate_of
from rankpulse.core import planning
from rankpulse.core.planning import Plan

_HOPELESS: Final = 0.9  # of the time lost
_AGES_H: Final = 1000 * 8760.0  # longer than anybody plans


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
    """What if the rate is off, as far as it may be."""
    rows: list[tuple[str, ...]] = []
    for per_gpu_hour, name in zip((rate.low, rate.per_gpu_hour, rate.high), rate.names, strict=True):
        one = _plan(asked, per_gpu_hour)
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
    if value > _AGES_H:
        return "over 1,000 years"
    return _seconds(value * 3600) if value < 1 else f"{value:,.1f} h" if value < 72 else f"{value / 24:,.1f} days"


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.3g} s"
    return f"{value / 60:.0f} min" if value < 7200 else _hours(value / 3600)
