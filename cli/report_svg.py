"""The plots of a report as inline SVG. What they say stands beside the marks as text: colour is never needed."""

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from rankpulse.cli import show
from rankpulse.cli.report_blocks import Bars, Ranges, Stacks
from rankpulse.cli.report_md import place, reach

WIDTH: Final = 900
_LABEL, _TOLD, _ROW = 260, 120, 26
_PLOT: Final = WIDTH - _LABEL - _TOLD
_HIGH: Final = 200  # of columns over time
_COLOURS: Final = ("#2a6db0", "#c2571a", "#3f8f4f", "#8a5bb5", "#b23a48", "#7a7a22", "#2b8c8c", "#a0628d", "#777777")
_LABEL_MAX: Final = 34


def bars(block: Bars) -> str:
    most = block.most or max((bar.value for bar in block.bars), default=0.0)
    parts = []
    for number, bar in enumerate(block.bars):
        y, length = number * _ROW, _PLOT * min(bar.value / most, 1.0) if most > 0 else 0.0
        parts.append(_words(_LABEL - 8, y + 17, bar.label, "end"))
        parts.append(f'<rect x="{_LABEL}" y="{y + 4}" width="{max(length, 1):.1f}" height="18" fill="var(--bar)"/>')
        parts.append(_words(_LABEL + length + 6, y + 17, bar.told))
    return _svg(block.title, len(block.bars) * _ROW, parts)


def ranges(block: Ranges) -> str:
    low, high = reach([value for one in block.ranges for value in (one.best, one.low, one.high)])
    bottom = len(block.ranges) * _ROW
    parts = list(_ticks(low, high, bottom))
    for number, one in enumerate(block.ranges):
        y = number * _ROW + 13
        left, right = (_LABEL + _PLOT * place(value, low, high) for value in (one.low, one.high))
        parts.append(_words(_LABEL - 8, y + 4, one.label, "end"))
        parts.append(
            f'<path d="M{left:.1f} {y}H{right:.1f}M{left:.1f} {y - 5}v10" stroke="var(--bar)" stroke-width="3"/>'
        )
        if math.isfinite(one.high):
            parts.append(f'<path d="M{right:.1f} {y - 5}v10" stroke="var(--bar)" stroke-width="3"/>')
        if 0 < one.best < math.inf:
            x = _LABEL + _PLOT * place(one.best, low, high)
            parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="var(--ink)"/>')
        parts.append(_words(WIDTH - _TOLD + 8, y + 4, one.told))
    return _svg(block.title, bottom + 24, parts)


def stacks(block: Stacks) -> str:
    """A column each; which colour is which part is said below, with how many it has."""
    most = max((sum(one.counts.values()) for one in block.stacks), default=0) or 1
    each = (WIDTH - 40) / max(len(block.stacks), 1)
    parts = [_words(32, 12, str(most), "end"), _words(32, _HIGH, "0", "end")]
    parts.append(f'<path d="M40 {_HIGH}H{WIDTH}" stroke="var(--line)"/>')
    for number, one in enumerate(block.stacks):
        y, x = float(_HIGH), 40 + number * each
        for part in block.parts:
            count = one.counts.get(part, 0)
            tall = (_HIGH - 4) * count / most
            y -= tall
            if count:
                parts.append(
                    f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{max(each - 2, 1):.1f}" height="{tall:.1f}" '
                    f'fill="{_colour(block.parts, part)}"><title>{_text(f"{one.label}: {count} {part}")}</title></rect>'
                )
    parts += _days(block, each)
    parts += _legend(block)
    return _svg(block.title, _HIGH + 24 + 20 * len(block.parts), parts)


def _days(block: Stacks, each: float) -> Iterator[str]:
    """As many as there is room for."""
    step = max(math.ceil(90 / each), 1)
    for number in range(0, len(block.stacks), step):
        yield _words(40 + number * each, _HIGH + 16, block.stacks[number].label)


def _legend(block: Stacks) -> Iterator[str]:
    for number, part in enumerate(block.parts):
        y = _HIGH + 28 + 20 * number
        count = sum(one.counts.get(part, 0) for one in block.stacks)
        yield f'<rect x="40" y="{y}" width="14" height="14" fill="{_colour(block.parts, part)}"/>'
        yield _words(62, y + 12, f"{part}: {count}")


def _ticks(low: float, high: float, bottom: float) -> Iterator[str]:
    """At powers of ten, as many as there is room for."""
    first, last = round(math.log10(low)), round(math.log10(high))
    for power in range(first, last + 1, max((last - first) // 8, 1)):
        x = _LABEL + _PLOT * place(10.0**power, low, high)
        yield f'<path d="M{x:.1f} 0V{bottom}" stroke="var(--line)"/>'
        yield _words(x, bottom + 17, f"{10.0**power:,g}", "middle")


def _colour(parts: Sequence[str], part: str) -> str:
    return _COLOURS[parts.index(part) % len(_COLOURS)]


def _words(x: float, y: float, text: str, anchor: str = "start") -> str:
    shown = text if len(text) <= _LABEL_MAX else text[: _LABEL_MAX - 1] + "…"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{_text(shown)}</text>'


def _text(text: str) -> str:
    return escape(show.plain(text))


def _svg(title: str, height: float, parts: Sequence[str]) -> str:
    inner = "\n".join(parts)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:g}" width="{WIDTH}" height="{height:g}" role="img" '
        f'aria-label="{_text(title)}">\n{inner}\n</svg>'
    )
