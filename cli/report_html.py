"""A report as one HTML file: no scripts, nothing loaded from anywhere, readable in print, in the dark, on a phone."""

from collections.abc import Sequence
from html import escape
from typing import Final

from rankpulse.cli import report_svg, show
from rankpulse.cli.report_blocks import Bars, Block, Heading, Para, Ranges, Report, Table

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1a1a1a; --paper: #fff; --faint: #5c5c5c; --line: #c8c8c8; --bar: #2a6db0 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #eaeaea; --paper: #161616; --faint: #a8a8a8; --line: #444; --bar: #6fb1f2 }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); margin: 2rem auto;
  max-width: 72rem; padding: 0 1rem }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line) }
.wide { overflow-x: auto }
table { border-collapse: collapse; margin: 1rem 0; font-size: 0.9rem }
th, td { padding: 0.25rem 0.75rem 0.25rem 0; text-align: left; vertical-align: top;
  border-bottom: 1px solid var(--line) }
th { color: var(--faint); font-weight: 600 }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap }
figure { margin: 1.5rem 0 }
figcaption { color: var(--faint) }
svg { max-width: 100%; height: auto; font: 13px system-ui, sans-serif }
svg text { fill: var(--ink) }
"""


def html(report: Report) -> str:
    title = harmless(report.title)
    body = "\n".join(_block(block) for block in report.blocks)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n<h1>{title}</h1>\n{body}\n</main>\n"
        "</body>\n</html>\n"
    )


def harmless(text: str) -> str:
    return escape(show.plain(text))


def _block(block: Block) -> str:
    if isinstance(block, Heading):
        return f"<h2>{harmless(block.text)}</h2>"
    if isinstance(block, Para):
        return f"<p>{harmless(block.text)}</p>"
    if isinstance(block, Table):
        return _table(block)
    if isinstance(block, Bars):
        drawn = report_svg.bars(block)
    else:
        drawn = report_svg.ranges(block) if isinstance(block, Ranges) else report_svg.stacks(block)
    return f"<figure><figcaption>{harmless(block.title)}</figcaption>\n{drawn}</figure>"


def _table(block: Table) -> str:
    head = "".join(_cell("th", cell, at in block.numbers) for at, cell in enumerate(block.columns))
    rows = "\n".join(f"<tr>{_row(row, block.numbers)}</tr>" for row in block.rows)
    return f'<div class="wide"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table></div>'


def _row(row: Sequence[str], numbers: frozenset[int]) -> str:
    return "".join(_cell("td", cell, at in numbers) for at, cell in enumerate(row))


def _cell(tag: str, text: str, number: bool) -> str:
    kind = ' class="n"' if number else ""
    return f"<{tag}{kind}>{harmless(text)}</{tag}>"
