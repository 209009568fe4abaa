"""Sentences and tables as lines that fit: columns go where there is no room for them, and what is cut off says so."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from rankpulse.cli import show

WRAPPED: Final = 3  # lines that a sentence may take
_GAP: Final = 2
_STYLES: Final = {"!": "red", "?": "yellow", "-": "dim"}


class Line(NamedTuple):
    text: str
    style: str = ""


class Column(NamedTuple):
    """`keep`: who goes first where the terminal is narrow; 0 never goes."""

    name: str
    keep: int
    most: int


class Part(NamedTuple):
    title: str
    columns: Sequence[Column]
    rows: list[tuple[str, ...]]
    notes: list[str]  # a sentence below each row, "" for none


def table(part: Part, width: int, room: int | None) -> Iterator[Line]:
    """A title, the names of columns, at most `room` rows; and how many had no room."""
    columns = part.columns
    rows = [tuple(show.plain(cell) for cell in row) for row in part.rows]
    sizes = _fitting(columns, rows, width)
    yield Line(_cut(part.title, width).rstrip(), "bold")
    yield Line(_joined([column.name for column in columns], sizes, width), "dim")
    blocks = [[Line(_joined(row, sizes, width), _STYLES.get(row[0], "")), *_note(part.notes[number], width)]
              for number, row in enumerate(rows)]  # fmt: skip
    if room is None or sum(map(len, blocks)) <= room:
        yield from (line for block in blocks for line in block)
        return
    told, shown = 0, 0
    for block in blocks:
        if shown and told + len(block) >= room:  # one is for the line below
            break
        told, shown = told + len(block), shown + 1
        yield from block
    yield Line(f"  and {len(rows) - shown} more", "dim")


def _note(text: str, width: int) -> Iterator[Line]:
    return (Line(f"  {line.text}") for line in wrapped(show.plain(text), width - 2))


def _fitting(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """How wide each column is, 0: it has no place."""
    sizes = [
        min(max(cell_len(column.name), *(cell_len(row[at]) for row in rows)), column.most)
        for at, column in enumerate(columns)
    ]
    for at in sorted(range(len(columns)), key=lambda at: -columns[at].keep):
        if sum(sizes) + _GAP * (sum(map(bool, sizes)) - 1) <= width or not columns[at].keep:
            break
        sizes[at] = 0
    return sizes


def _joined(cells: Sequence[str], sizes: Sequence[int], width: int) -> str:
    """What is too long ends with a mark of it."""
    parts = [_cut(cell, size) for cell, size in zip(cells, sizes, strict=True) if size]
    return _cut((" " * _GAP).join(parts).rstrip(), width).rstrip()


def _cut(text: str, size: int) -> str:
    return set_cell_size(text, size) if cell_len(text) <= size else set_cell_size(text, max(size - 1, 0)) + "…"


def wrapped(text: str, width: int, style: str = "") -> Iterator[Line]:
    """A sentence over as many lines as it needs, at most `WRAPPED`; those after the first stand below its words."""
    mark = text[:2] if text[:2] in ("! ", "  ") else ""
    indent, words = " " * len(mark), text[len(mark) :].split()
    line, told = mark, 0
    for number, word in enumerate(words):
        if not line.strip(" !") or cell_len(line) + 1 + cell_len(word) <= width:
            line += word if not line.strip(" !") else f" {word}"
        elif told == WRAPPED - 1:
            line = f"{line} {' '.join(words[number:])}"
            break
        else:
            yield Line(_cut(line, width).rstrip(), style)
            line, told = indent + word, told + 1
    if line.strip():
        yield Line(_cut(line, width).rstrip(), style)
