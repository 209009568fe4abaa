"""A report as Markdown, plots as bars of text. Names that jobs chose make no tags, cells or emphasis of their own."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from rankpulse.cli import show
from rankpulse.cli.report_blocks import Bars, Block, Heading, Para, Ranges, Report, Stacks, Table

WIDTH: Final = 30  # of a bar
_SPECIAL: Final = re.compile(r"[\\`*\[\]<>|~&@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def markdown(report: Report) -> str:
    lines = [f"# {harmless(report.title)}"]
    for block in report.blocks:
        lines += ["", *_block(block)]
    return "\n".join(lines) + "\n"


def harmless(text: str) -> str:
    """On one line, and nothing in it means anything to Markdown."""
    return _SPECIAL.sub(lambda found: "".join(f"&#{ord(char)};" for char in found[0]), show.plain(text))


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, Heading):
        yield f"## {harmless(block.text)}"
    elif isinstance(block, Para):
        yield harmless(block.text)
    elif isinstance(block, Table):
        yield from _table(block.columns, block.rows, block.numbers)
    elif isinstance(block, Bars):
        most = block.most or max((bar.value for bar in block.bars), default=0.0)
        rows = [(bar.label, _bar(bar.value, most), bar.told) for bar in block.bars]
        yield from _table(("", block.title, ""), rows, frozenset({2}))
    elif isinstance(block, Stacks):
        most = max((sum(one.counts.values()) for one in block.stacks), default=0)
        rows = [(one.label, _bar(total, most), _parts(one.counts)) for one in block.stacks
                if (total := sum(one.counts.values()))]  # fmt: skip
        yield from _table(("", block.title, ""), rows)
    else:
        yield from _ranges(block)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: frozenset[int] = frozenset()) -> Iterator[str]:
    yield _line(columns)
    yield "|" + "|".join("---:" if at in right else "---" for at in range(len(columns))) + "|"
    yield from map(_line, rows)


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(harmless(cell) for cell in cells) + " |"


def _bar(value: float, most: float) -> str:
    """Anything above nothing can be seen."""
    length = round(WIDTH * min(value / most, 1.0)) if most > 0 else 0
    return "█" * max(length, 1 if value > 0 else 0)


def _parts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _ranges(block: Ranges) -> Iterator[str]:
    low, high = reach([value for one in block.ranges for value in (one.best, one.low, one.high)])
    rows = [(one.label, _whisker(one.best, one.low, one.high, low, high), one.told) for one in block.ranges]
    yield from _table(("", block.title, ""), rows, frozenset({2}))


def reach(values: Sequence[float]) -> tuple[float, float]:
    """Powers of ten around all that have a place on such an axis."""
    known = [value for value in values if 0 < value < math.inf] or [1.0]
    low, high = math.floor(math.log10(min(known))), math.ceil(math.log10(max(known)))
    return 10.0**low, 10.0 ** max(high, low + 1)


def place(value: float, low: float, high: float) -> float:
    """Where it is on that axis, 0 to 1; what is beyond is at its end."""
    if value <= low:
        return 0.0
    return min(math.log(value / low) / math.log(high / low), 1.0) if value < high else 1.0


def _whisker(best: float, low: float, high: float, begin: float, end: float) -> str:
    a, b = (round((WIDTH - 1) * place(value, begin, end)) for value in (low, high))
    line = ["·"] * WIDTH
    line[a : b + 1] = "─" * (b + 1 - a)
    if 0 < best < math.inf:
        line[round((WIDTH - 1) * place(best, begin, end))] = "●"
    return "".join(line)
