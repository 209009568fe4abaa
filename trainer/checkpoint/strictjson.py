"""JSON from a disk that anybody may have written to, and what its values must be: fine, or `Unfit`.

`json.loads` alone takes NaN, a key twice, half a surrogate pair and any depth, and calls `True` an int.
"""

import json
import math
import re
from collections.abc import Iterable
from typing import Any, Final

MAX_DEPTH: Final = 64
MAX_INT: Final = 2**63 - 1
MAX_NAME: Final = 1024  # characters
_SURROGATE: Final = re.compile(rb"\\u[dD][89a-fA-F]")
_SHOWN: Final = 60  # characters of a wrong value in an error text


class Unfit(Exception):
    """Not what it must be: `expected` and `found`, for an error text."""

    def __init__(self, expected: str, found: object) -> None:
        self.expected, self.found = expected, shown(found)
        super().__init__(f"expected {self.expected}, found {self.found}")


def shown(value: object) -> str:
    """A short form of any value, for an error text: one line, whatever it is."""
    try:
        text = repr(value) if not isinstance(value, dict | list) else f"{type(value).__name__} of {len(value)}"
    except ValueError:  # an int of more digits than Python cares to print
        text = "a huge number"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def parsed(data: bytes) -> Any:
    """The JSON value in `data` (UTF-8), with no key twice, no NaN or infinity, no half a surrogate pair."""
    try:
        value = json.loads(
            data.decode(), object_pairs_hook=_each_once, parse_constant=_no_constant, parse_float=_finite
        )
    except (ValueError, RecursionError) as error:
        raise Unfit("JSON", str(error)) from None
    if _SURROGATE.search(data):
        _whole_text(value)
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key twice")
    return members


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name}, which is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("a number out of range")
    return value


def _whole_text(value: Any) -> None:
    for part in walked(value, None):
        if isinstance(part, str) and not _encodes(part):
            raise Unfit("text", part)


def _encodes(part: str) -> bool:
    try:
        part.encode()
    except UnicodeEncodeError:
        return False
    return True


def walked(value: Any, depth: int | None = MAX_DEPTH) -> Iterable[Any]:
    """Every value in a JSON value, keys of objects too; `Unfit` when it is nested deeper than `depth`."""
    level, level_no = [value], 0
    while level:
        if depth is not None and level_no > depth:
            raise Unfit(f"at most {depth} levels of nesting", "more")
        yield from level
        deeper: list[Any] = []
        for part in level:
            if isinstance(part, list):
                deeper.extend(part)
            elif isinstance(part, dict):
                deeper.extend(part)
                deeper.extend(part.values())
        level, level_no = deeper, level_no + 1


def integer(value: Any, what: str, low: int = 0, high: int = MAX_INT) -> int:
    if type(value) is not int or not low <= value <= high:
        raise Unfit(f"{what} between {low} and {high}", value)
    return value


def number(value: Any, what: str) -> float:
    if type(value) not in (int, float) or not -1e18 < value < 1e18:
        raise Unfit(f"{what}, a number", value)
    return float(value)


def text(value: Any, what: str, limit: int = MAX_NAME) -> str:
    if type(value) is not str or len(value) > limit:
        raise Unfit(f"{what}, a text of at most {limit} characters", value)
    return value


def matching(value: Any, what: str, pattern: re.Pattern[str]) -> str:
    if type(value) is not str or not pattern.fullmatch(value):
        raise Unfit(f"{what} like {pattern.pattern}", value)
    return value


def truth(value: Any, what: str) -> bool:
    if type(value) is not bool:
        raise Unfit(f"{what}, true or false", value)
    return value


def items(value: Any, what: str) -> list[Any]:
    if type(value) is not list:
        raise Unfit(f"{what}, an array", value)
    return value


def members(value: Any, what: str) -> dict[str, Any]:
    if type(value) is not dict:
        raise Unfit(f"{what}, an object", value)
    return value


def integers(value: Any, what: str, limit: int = MAX_DEPTH) -> tuple[int, ...]:
    """An array of at most `limit` integers from 0 on."""
    numbers = items(value, what)
    if len(numbers) > limit or any(type(one) is not int or not 0 <= one <= MAX_INT for one in numbers):
        raise Unfit(f"{what}, at most {limit} whole numbers from 0 on", value)
    return tuple(numbers)
