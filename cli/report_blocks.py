"""What a report is made of, whatever it is written as. Texts are data: those who write them out make them harmless."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Heading(NamedTuple):
    text: str


class Para(NamedTuple):
    text: str


class Table(NamedTuple):
    """`numbers`: columns that stand to the right."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()


class Bar(NamedTuple):
    label: str
    value: float
    told: str


class Bars(NamedTuple):
    """Lengths, of which the longest possible is `most`; 0: the longest of them."""

    title: str
    bars: Sequence[Bar]
    most: float = 0.0


class Range(NamedTuple):
    """`best`, `high` may be infinite."""

    label: str
    best: float
    low: float
    high: float
    told: str


class Ranges(NamedTuple):
    """Values with their intervals, on an axis on which ten times as much is always equally far."""

    title: str
    ranges: Sequence[Range]


class Stack(NamedTuple):
    label: str
    counts: Mapping[str, int]


class Stacks(NamedTuple):
    """Columns over time, each of parts."""

    title: str
    stacks: Sequence[Stack]
    parts: Sequence[str]


Block = Heading | Para | Table | Bars | Ranges | Stacks


class Report(NamedTuple):
    title: str
    blocks: Sequence[Block]
