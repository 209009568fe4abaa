"""Figures of a report as people read them."""

import math
from typing import Final

from rankpulse.core.estimators import Bounds, Mtbf
from rankpulse.core.trend import Trend

_TREND: Final = {
    "constant": "No sign that the failure rate changed: one mean time between failures describes all of it.",
    "rising": "Failures came MORE OFTEN towards the end: the mean over all of it is too good; look at the last days.",
    "falling": "Failures came less often towards the end: the mean over all of it is too bad for today.",
    "bursts": "Failures came in bursts, so no trend follows: look for causes that several of them share.",
    "too_few": "Fewer than five failures: whether their rate changes cannot be told.",
}


def hours(value: float) -> str:
    if math.isinf(value):
        return "∞"
    if value < 1 / 60:
        return f"{value * 3600:.2g} s" if value else "0"
    return f"{value * 60:.0f} min" if value < 1 else f"{value:,.1f} h" if value < 100 else f"{value:,.0f} h"


def share(value: float | None) -> str:
    """What is not all of it is never called 100 %, nor what is something none."""
    if value is None:
        return "-"
    if 0 < value < 0.0005:
        return "under 0.1%"
    return "over 99.9%" if 0.9995 <= value < 1 else f"{value:.1%}"


def best(between: Mtbf | None) -> str:
    return "-" if between is None else hours(between.best) if between.failures else "none failed"


def interval(between: Mtbf | None) -> str:
    return "-" if between is None else bounds(between.exact)


def bounds(found: Bounds) -> str:
    return f"{hours(found.low)} or more" if math.isinf(found.high) else f"{hours(found.low)} to {hours(found.high)}"


def trend(found: Trend | None) -> str:
    if found is None:
        return "Nothing ran, so nothing can be said of a trend."
    words = _TREND.get(found.verdict, found.verdict)
    if found.verdict == "too_few":
        return words
    return (
        f"{words} (Laplace p {found.laplace_p:.2g}, MIL-HDBK-189C p {found.military_p:.2g}, "
        f"Lewis-Robinson p {found.lewis_robinson_p:.2g}, on {found.failures} failures)"
    )


def many(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def compared(now: Mtbf | None, then: Mtbf | None) -> str:
    """Whether it is better than before, beyond chance: intervals that do not meet."""
    if now is None or then is None:
        return "nothing to compare with"
    if now.exact.low > then.exact.high:
        return "better than before, beyond chance"
    if now.exact.high < then.exact.low:
        return "WORSE than before, beyond chance"
    return "no different from before as far as can be told: the intervals meet"
