"""Many names in few words: neighbours drawn together, and a count instead of a wall. Pure."""

import re
from collections.abc import Iterable
from typing import Final

from rankpulse.core.words import printable

NAMES_MAX: Final = 8
_NUMBERED = re.compile(r"([^.]*?)(\d{1,9})([^\d.]*(?:\..*)?)", re.DOTALL)


def names_in_words(names: Iterable[str], most: int = NAMES_MAX) -> str:
    """Nodes as people write them: gpu[000-127], login. Beyond `most` such pieces a count of all says the rest."""
    distinct = dict.fromkeys(names)
    runs = _runs(sorted(distinct, key=_order))
    text = ", ".join(printable(_run(*run), 120) for run in runs[:most])
    return text + (f" and others ({len(distinct)} in all)" if len(runs) > most else "")


def _order(name: str) -> tuple[str, str, int, int]:
    before, number, after = _parts(name)
    return before, after, len(number), int(number or 0)


def _parts(name: str) -> tuple[str, str, str]:
    """What stands before the last number of a host's own name, that number, and the rest with its domain."""
    found = _NUMBERED.fullmatch(name)
    return (found.group(1), found.group(2), found.group(3)) if found else (name, "", "")


def _runs(names: list[str]) -> list[tuple[str, str]]:
    """First and last of names that count up."""
    runs: list[tuple[str, str]] = []
    for name in names:
        if runs and _follows(runs[-1][1], name):
            runs[-1] = (runs[-1][0], name)
        else:
            runs.append((name, name))
    return runs


def _follows(one: str, other: str) -> bool:
    (before, number, after), (before_, number_, after_) = _parts(one), _parts(other)
    alike = (before, after) == (before_, after_) and bool(number) and bool(number_)
    return alike and int(number_) == int(number) + 1 and len(one) <= len(other)


def _run(first: str, last: str) -> str:
    if first == last:
        return first
    (before, number, after), (_, last_number, _) = _parts(first), _parts(last)
    if int(last_number) == int(number) + 1:
        return f"{first}, {last}"
    return f"{before}[{number}-{last_number}]{after}"
