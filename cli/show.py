"""Printing for people and for programs. Names that jobs chose are shown as data: no markup, no control characters."""

import json
import os
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rankpulse.core.words import span as span


def console() -> Console:
    """To stdout as it is now; wide when nobody looks, so that logs and pipes keep whole lines."""
    return Console(markup=False, highlight=False, emoji=False, width=None if sys.stdout.isatty() else 160)


def plain(value: object) -> str:
    """`value` as text that cannot steer a terminal."""
    return "".join(char if char.isprintable() else "�" for char in str(value))


def as_json(value: Any) -> None:
    """Pure JSON on stdout."""
    typer.echo(json.dumps(msgspec.to_builtins(value), indent=2))


def table(out: Console, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    made = Table(box=None, pad_edge=False, header_style="bold", show_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(Text(plain(cell)) for cell in row))
    out.print(made)


def facts(out: Console, rows: Iterable[tuple[str, object]]) -> None:
    """Name and value, one below the other; a sequence of values takes a line each."""
    made = Table(box=None, show_header=False, pad_edge=False, show_edge=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        lines = value if isinstance(value, (list, tuple)) else [value]
        for number, line in enumerate(lines):
            made.add_row(Text(name if number == 0 else ""), Text(plain(line)))
    out.print(made)


def ago(at: float | None, now: float | None = None) -> str:
    """How long ago a UTC time was, roughly. The clock is another machine's: for people only."""
    if at is None:
        return "-"
    seconds = (time.time() if now is None else now) - at
    return f"{span(seconds)} ago" if seconds >= 0 else "just now"


def clock_time(at: float) -> str:
    """ "?" for what no calendar has: the time may be anybody's word."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))
    except (ValueError, OverflowError, OSError):
        return "?"


def author() -> str:
    """Who asks; a label for people, not a proof."""
    import getpass

    try:
        name = os.environ.get("USER") or getpass.getuser()
    except (KeyError, OSError):
        name = f"uid {os.getuid()}"
    return plain(name)[:128]
