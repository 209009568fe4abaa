"""The time that a run loses, over the interval between saves, as text for a terminal."""

import math
from typing import Final

from rankpulse.core import checkpoint_cost as cost
from rankpulse.core.planning import HOUR_S, Plan

WIDTH, ROWS = 80, 16
_POINTS: Final = 120
_REACH: Final = 16.0  # as far as this to both sides of the best interval
_UNITS: Final = ((60.0, "s", 1.0), (7200.0, "min", 60.0), (172800.0, "h", 3600.0), (math.inf, "d", 86400.0))


def draw(plan: Plan, save_s: float, recover_s: float, width: int = WIDTH) -> str:
    """No colours, so that it can be kept in a file."""
    import plotext

    low, high = math.log(plan.interval_s / _REACH), math.log(plan.interval_s * _REACH)
    axis = [low + (high - low) * i / (_POINTS - 1) for i in range(_POINTS)]
    lost = [100 * cost.lost_share(math.exp(at), save_s, recover_s, plan.mtbf_h * HOUR_S) for at in axis]
    plotext.terminal.limit(False, False)
    figure = plotext.figure.clear()
    figure.plot_size(width, ROWS)
    figure.theme("colorless")
    figure.draw(figure.signal(axis, lost, marker="braille").lines())
    figure.line(math.log(plan.interval_s), "v", style="dotted")
    ticks = [low + (high - low) * i / 8 for i in range(9)]
    figure.ruler("x").ticks(ticks, [_named(math.exp(at)) for at in ticks])
    figure.label("time between saves")
    figure.title("% of the time lost")
    lines = plotext.uncolorize(str(figure.build())).splitlines()
    return "\n".join(line.rstrip() for line in lines)


def _named(seconds: float) -> str:
    name, unit = next((name, unit) for limit, name, unit in _UNITS if seconds < limit)
    return f"{seconds / unit:.2g} {name}"
