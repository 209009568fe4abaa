"""Latency against false alarms as an SVG, drawn by hand: no plotting library is needed to make or to read it."""

import math
from collections.abc import Iterable
from html import escape
from typing import Any, Final, NamedTuple

WIDTH, HEIGHT = 880, 620
LEFT, RIGHT, TOP, BOTTOM = 80, 24, 56, 62
OURS: Final = "#c2410c"
OTHERS: Final = "#475569"
FAMILIES: Final = (("fixed", "#2563eb"), ("Chen", "#0d9488"), ("2W-FD", "#7c3aed"), ("phi", "#b45309"))
GROUND: Final = "white"


class Axis(NamedTuple):
    """A logarithmic axis over pixels."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        share = math.log(min(max(value, self.low), self.high) / self.low) / math.log(self.high / self.low)
        return self.begin + share * (self.end - self.begin)

    def marks(self) -> list[float]:
        """1, 2 and 5 of each decade."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        found = [n * 10.0**decade for decade in decades for n in (1, 2, 5)]
        return [mark for mark in found if self.low <= mark <= self.high]


class Dot(NamedTuple):
    name: str
    x: float
    y: float
    low: float
    high: float


def svg(report: dict[str, Any]) -> str:
    """p99 of the detection time against false restarts per 10,000 GPU-days, with 95 % intervals."""
    dots = _dots(report["detectors"])
    x = Axis(0.4, 2000.0, LEFT, WIDTH - RIGHT)
    y = Axis(0.02, 3000.0, HEIGHT - BOTTOM, TOP)
    title = (
        f"Trace Z x {report['scale']:g}, one sender per node: a dead node told within (p99), against needless restarts"
    )
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
        f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="{GROUND}"/>',
        _text(LEFT, 24, title, size=14),
        _text(LEFT, 42, "bars: 95 % intervals; a triangle: none were seen, drawn at the upper bound", fill=OTHERS),
        *_grid(x, y),
    ]
    for family, colour in FAMILIES:
        parts.append(_line([dot for dot in dots if dot.name.startswith(family + " ")], x, y, colour))
    parts += [part for dot in dots for part in _drawn(dot, x, y)]
    parts += _labels(dots, x, y)
    return "\n".join([*parts, "</svg>", ""])


def _dots(rows: Iterable[dict[str, Any]]) -> list[Dot]:
    name = "false_restarts_per_10k_gpu_days"
    return [
        Dot(row["name"], row["detection_p99_s"], row[name], *row[name + "_95"])
        for row in rows
        if row["detection_p99_s"] and row[name] is not None
    ]


def _colour(name: str) -> str:
    if name.startswith("rankpulse"):
        return OURS
    return next((colour for family, colour in FAMILIES if name.startswith(family)), OTHERS)


def _grid(x: Axis, y: Axis) -> list[str]:
    parts = []
    for mark in x.marks():
        at = x.at(mark)
        parts.append(f'<line x1="{at:.1f}" y1="{y.end}" x2="{at:.1f}" y2="{y.begin}" stroke="#e2e8f0"/>')
        parts.append(_text(at, y.begin + 18, f"{mark:g}", anchor="middle"))
    for mark in y.marks():
        at = y.at(mark)
        parts.append(f'<line x1="{x.begin}" y1="{at:.1f}" x2="{x.end}" y2="{at:.1f}" stroke="#e2e8f0"/>')
        parts.append(_text(x.begin - 8, at + 4, f"{mark:g}", anchor="end"))
    middle = (y.begin + y.end) / 2
    parts.append(_text((x.begin + x.end) / 2, HEIGHT - 18, "detection time, 99th percentile, s", anchor="middle"))
    parts.append(
        f'<text x="20" y="{middle}" transform="rotate(-90 20 {middle})" text-anchor="middle">'
        "false restarts per 10,000 GPU-days</text>"
    )
    return parts


def _line(dots: list[Dot], x: Axis, y: Axis, colour: str) -> str:
    points = " ".join(f"{x.at(dot.x):.1f},{y.at(dot.y or dot.high):.1f}" for dot in sorted(dots, key=lambda d: d.x))
    return f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1" opacity="0.5"/>'


def _drawn(dot: Dot, x: Axis, y: Axis) -> list[str]:
    colour, at = _colour(dot.name), x.at(dot.x)
    if dot.y == 0:
        top = y.at(dot.high)
        points = f"{at - 5:.1f},{top:.1f} {at + 5:.1f},{top:.1f} {at:.1f},{top + 9:.1f}"
        return [f'<polygon points="{points}" fill="{colour}"/>']
    bar = f'<line x1="{at:.1f}" y1="{y.at(dot.low):.1f}" x2="{at:.1f}" y2="{y.at(dot.high):.1f}" stroke="{colour}"/>'
    size = 6 if colour == OURS else 4
    return [bar, f'<circle cx="{at:.1f}" cy="{y.at(dot.y):.1f}" r="{size}" fill="{colour}"/>']


def _labels(dots: list[Dot], x: Axis, y: Axis) -> list[str]:
    """Beside its dot, and below the one before where two would meet."""
    taken: list[tuple[float, float, float]] = []
    parts = []
    for dot in sorted(dots, key=lambda dot: (not dot.name.startswith("rankpulse"), x.at(dot.x))):
        width, left = 6.4 * len(dot.name), x.at(dot.x) + 9
        if left + width > WIDTH - 4:
            left = x.at(dot.x) - 9 - width
        base = y.at(dot.y or dot.high) + 4
        tries = sorted(range(-12, 13), key=lambda n: (abs(n), n))
        top = next(
            (base + 7 * n for n in tries if not any(_meet((left, base + 7 * n, width), other) for other in taken)), base
        )
        taken.append((left, top, width))
        weight = ' font-weight="bold"' if dot.name.startswith("rankpulse") else ""
        parts.append(f'<text x="{left:.1f}" y="{top:.1f}" fill="{_colour(dot.name)}"{weight}>{escape(dot.name)}</text>')
    return parts


def _meet(one: tuple[float, float, float], other: tuple[float, float, float]) -> bool:
    apart = one[0] + one[2] < other[0] or other[0] + other[2] < one[0]
    return not apart and abs(one[1] - other[1]) < 13


def _text(x: float, y: float, text: str, *, anchor: str = "start", fill: str = "#0f172a", size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}" font-size="{size}">{escape(text)}</text>'
    )
