"""A failure log in a CSV file through the estimators: failures per 1,000 node days, MTBF and trend of each system.

Made for the columns of Los Alamos' public failure log (LA-UR-05-7318): System, nodes, `node prod` (when its nodes went
into production), `Prob Started`. A system counts as watched from the month in which its first node was in production
until the last failure in the whole log. By hand, `.gz` or not:

    python -m rankpulse.bench.failure_log FILE --system 18 --system 19 --system 20
"""

import argparse
import csv
import gzip
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from rankpulse.cli import show
from rankpulse.core import estimators, trend

_DAY_S: Final = 86400.0
_PARTS: Final = 4  # of the time watched, each with an MTBF of its own
_MONTH: Final = re.compile(r"(\d{1,2})-([A-Z][a-z]{2})|([A-Z][a-z]{2})-(\d\d)")
_COLUMNS: Final = (
    "system", "nodes", "failures", "days", "per 1,000 node days", "90 %", "MTBF by quarter of the time, h", "Laplace",
    "Lewis-Robinson", "beta", "verdict",
)  # fmt: skip


class System(NamedTuple):
    """One machine: instants in days of its time watched."""

    name: str
    nodes: int
    days: float
    instants: tuple[float, ...]


def read(path: Path) -> list[dict[str, str]]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", newline="", encoding="utf-8", errors="replace") as lines:
        return list(csv.DictReader(lines))


def systems(rows: Iterable[Mapping[str, str]]) -> list[System]:
    """Rows without a start or a number of nodes that can be read are left out."""
    by_name: dict[str, list[tuple[float, Mapping[str, str]]]] = {}
    for row in rows:
        if (at := _instant(row["Prob Started"])) is not None and row["nodes"].isdecimal():
            by_name.setdefault(row["System"], []).append((at, row))
    end = max((at for told in by_name.values() for at, _ in told), default=0.0)
    return [_system(name, told, end) for name, told in by_name.items()]


def _system(name: str, told: Sequence[tuple[float, Mapping[str, str]]], end: float) -> System:
    starts = [start for _, row in told if (start := _month(row["node prod"])) is not None]
    begin = min([*starts, *(at for at, _ in told)])
    instants = tuple((at - begin) / _DAY_S for at, _ in told)
    return System(name, int(told[0][1]["nodes"]), (end - begin) / _DAY_S, instants)


def _instant(text: str) -> float | None:
    try:
        return datetime.strptime(text, "%m/%d/%Y %H:%M").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _month(text: str) -> float | None:
    """`Jan-97`; `2-May` is May 2002: a spreadsheet has had it."""
    match = _MONTH.fullmatch(text)
    if match is None:
        return None
    year, month = match[1] or match[4], match[2] or match[3]
    return datetime.strptime(f"{int(year):02} {month}", "%y %b").replace(tzinfo=UTC).timestamp()


def row_of(system: System) -> tuple[object, ...]:
    count, exposure = len(system.instants), system.nodes * system.days / 1000
    bounds = estimators.rate_exact(count, exposure)
    found = trend.trend(system.instants, system.days)
    return (
        system.name,
        system.nodes,
        count,
        f"{system.days:.0f}",
        f"{count / exposure:.2f}",
        f"{bounds.low:.2f} to {bounds.high:.2f}",
        ", ".join(f"{hours:.1f}" for hours in _by_part(system)),
        f"{found.laplace:.1f}",
        f"{found.lewis_robinson:.1f}",
        f"{found.beta:.2f} ({found.beta_bounds.low:.2f} to {found.beta_bounds.high:.2f})",
        found.verdict,
    )


def _by_part(system: System) -> list[float]:
    length = system.days / _PARTS
    counts = [sum(n * length <= at < (n + 1) * length for at in system.instants) for n in range(_PARTS)]
    return [estimators.mtbf(count, length * 24).best for count in counts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--system", action="append", help="only this one; may be repeated")
    asked = parser.parse_args()
    found = [one for one in systems(read(asked.file)) if not asked.system or one.name in asked.system]
    show.table(show.console(), _COLUMNS, [row_of(one) for one in found])


if __name__ == "__main__":
    main()
